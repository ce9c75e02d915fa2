import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;
import software.amazon.event.ruler.Machine;

/** Reads rules and events, then answers each number on standard input: it matches so many events. */
public final class RulerPeer {
    public static void main(String[] arguments) throws Exception {
        Machine machine = new Machine();
        int number = 0;
        try (BufferedReader rules = Files.newBufferedReader(Paths.get(arguments[0]))) {
            for (String rule = rules.readLine(); rule != null; rule = rules.readLine()) {
                machine.addRule(Integer.toString(number++), rule);
            }
        }
        List<String> events = Files.readAllLines(Paths.get(arguments[1]));
        System.out.println("ready");
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            int[] counts = new int[Integer.parseInt(line)];
            for (int event = 0; event < counts.length; event++) {
                counts[event] = machine.rulesForJSONEvent(events.get(event)).size();
            }
            StringBuilder answer = new StringBuilder();
            for (int count : counts) {
                answer.append(count).append(' ');
            }
            System.out.println(answer);
        }
    }
}
