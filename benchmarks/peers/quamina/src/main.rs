//! Reads patterns and events, then answers each number on standard input: it matches so many events.

use std::error::Error;
use std::io::BufRead;

use quamina::QuaminaBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let patterns = std::fs::read_to_string(&files[0])?;
    let events = std::fs::read_to_string(&files[1])?;
    let events: Vec<&[u8]> = events.lines().map(str::as_bytes).collect();
    let mut quamina = QuaminaBuilder::<usize>::new().with_arena_byte_budget(1 << 32).build()?;
    for (number, pattern) in patterns.lines().enumerate() {
        quamina.add_pattern(number, pattern)?;
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let count: usize = line?.trim().parse()?;
        let mut counts = Vec::with_capacity(count);
        for event in &events[..count] {
            counts.push(quamina.matches_for_event(event)?.len().to_string());
        }
        println!("{}", counts.join(" "));
    }
    Ok(())
}
