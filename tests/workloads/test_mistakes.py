"""Every mistake in a workload file is told in a sentence, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.workloads import Workload, WorkloadError

X = "attribute x : int 0..9\n"

# A mistake, what is said of it, and the line and column of the caret.
MISTAKES = {
    # Definitions
    "": ("defines no .attribute.", 1, 1),
    X: ("defines no .filter.", 1, 1),
    "  filter = x = 1": ("indented line continues a definition", 1, 3),
    X + "x = x = 1": ("x is defined already, in line 1", 2, 1),
    X + "and = x = 1": ("and is a word of the language", 2, 1),
    X + "filter x = 1": ('"=" is missing after filter', 2, 8),
    X + "5 = x": ('name of a definition should stand here, not "5"', 2, 1),
    "attribute `x : int 0..9": ("` is never closed", 1, 11),
    "attribute x..y : int 0..9": ("x..y is no range of names; write it as f0..f9", 1, 11),
    "attribute f9..f0 : int 0..9": ("f9..f0 should be 1 to 10,000 names", 1, 11),
    "attribute f0..f2000 : int 0..9": ("1,024 attributes at the most", 1, 11),
    # Distributions
    "attribute x : integer 0..1": ("a type should stand here.*the types are int, float", 1, 15),
    "attribute x : int": ("low end of a range such as 0..80 should stand here", 1, 18),
    "attribute x : int 0 9": ('".." is missing between the ends', 1, 21),
    "attribute x : int 9..0": ("the range 9..0 is empty", 1, 19),
    "attribute x : int 0..1.5": ("the ends of a range of int are whole numbers", 1, 19),
    "attribute x : int 0..1e400": ("beyond what 64 bits can hold", 1, 22),
    "attribute x : int 0..1e99999999999999999999": ("beyond what 64 bits can hold", 1, 22),
    "attribute x : int 0..9223372036854775808": ("more digits than numbers of 64 bits", 1, 19),
    "attribute x : int 0..9223372036854775807": ("values, and 2.*53 can be drawn", 1, 41),
    "attribute x : float 0..1 step 0.00000000001": ("more digits than", 1, 21),
    "attribute x : float 0..1 step 0": ("the step is 0, but should be more than 0", 1, 31),
    "attribute x : int 0..9 step 0.5": ("the step is 0.5.*a whole number from 1 up", 1, 29),
    "attribute x : float 0..1 zipf 1": ('"zipf" needs values one by one', 1, 26),
    "attribute x : int 0..9 zipf 0": ("exponent of zipf should be more than 0", 1, 29),
    "attribute x : int 0..9999999 zipf 1": ("10,000,000 values, and zipf takes 1,000,000", 1, 30),
    "attribute x : int 0..9 normal 900 1": ("so far out of this normal", 1, 24),
    "attribute x : int 0..9 lognormal 3 1": ("a lognormal range begins above 0", 1, 24),
    "attribute x : int 0..9 zpif 1": ('"zpif" does; did you mean "zipf"?', 1, 24),
    "attribute x : int 1..9 zipf 1 step 2": ('the order is range, "step", shape', 1, 31),
    "attribute x : int 0..9 wide 3": ("an attribute has values, not windows", 1, 15),
    X + "value w : int 0..9 wide 20": ("a whole number from 1 to 10", 2, 25),
    "attribute x : str a": ('a text in quotes should stand here, not "a"', 1, 19),
    'attribute x : str "a': ('this " is never closed', 1, 19),
    r'attribute x : str "\q"': (r"the text has \\q, which stands for nothing", 1, 19),
    'attribute x : str 50% "a" | 40% "b"': ("percentages.*sum to 90%", 1, 19),
    'attribute x : str 50% "a" | "b"': ("some have none; give one to all", 1, 19),
    'attribute x : str 90% "a" | 10% "b" zipf 1': ("either percentages or zipf", 1, 19),
    'attribute x : str "{foo} a"': ("{foo} should name texts that are defined above", 1, 19),
    'attribute x : str "{5..3}"': ("the range in {5..3} is empty", 1, 19),
    'attribute x : str "{0..999}{0..999}"': ("more than 200,000 texts of this one", 1, 19),
    'attribute x : timestamp "soon".."later"': ("'soon' is not a timestamp", 1, 25),
    'attribute x : timestamp "2026-01-02".."2026-01-01"': ("the range is empty", 1, 25),
    "attribute x : int 0..9 present 120%": ("more than 0 and at most 100", 1, 32),
    "attribute x : int 0..9 present": ('"present" takes a percentage', 1, 31),
    "attribute x : int 0..9 many 0": ("a whole number from 1 to 16", 1, 29),
    # Events
    X + "attribute y : int 0..1\nevent = x\nfilter = x = 1": ("no event has.*y", 2, 1),
    X + "event = z\nfilter = x = 1": ("there is no attribute z", 2, 9),
    X + "event = x, x\nfilter = x = 1": ("x stands twice in one form", 2, 12),
    X + "event = 3 of x\nfilter = x = 1": ("3 of 1 attributes cannot be chosen", 2, 14),
    X + "event = x | 1 of x\nfilter = x = 1": ("x can stand only once", 2, 9),
    X + "event = x\nevent = x\nfilter = x = 1": ('"event" is defined already', 3, 1),
    "attribute x : bool many 2\nevent = 1 of x\nfilter = x = true": ("neither", 2, 9),
    # Rules
    X + "filter =": ("an alternative should stand here, not the end", 2, 9),
    X + "filter = x = 1 |": ("an alternative should stand here, not the end", 2, 17),
    X + "filter = x = 1 | y = 2": ("nothing is defined as y", 2, 18),
    X + "filter = rest\ntest = x = 1": ('nothing is defined as rest; did you mean "test"', 2, 10),
    X + "filter = `y` = 1": ("there is no attribute y", 2, 10),
    X + "filter = x = some y": ('"some" stands before an attribute, and y is none', 2, 19),
    X + "filter = x = some v\nvalue v : int 0..1": ("drawn by its name alone", 2, 19),
    X + "filter = x = 5..3": ("the range 5..3 is empty", 2, 14),
    X + "filter = x = 1 ; x = 2": ('";" has no meaning here', 2, 16),
    X + 'filter = x = "a': ('this " is never closed', 2, 14),
    X + "filter = 40% x = 1 | 50% x = 2": ("sum to 90%, not to 100%", 2, 10),
    X + "filter = 40% x = 1 | x = 2": ("some have none", 2, 10),
    X + "filter = x = 1\nlost = x = 2": ('nothing leads from "filter" to lost', 3, 1),
    X + "filter = a\na = b\nb = a": ("never ends", 2, 1),
    X + "filter = x = 1 | a\na = not a | (a)": ("a never ends", 3, 1),
    X + "filter = 60% filter and filter | 40% x = 1": ("filter grows without end", 2, 1),
    X + "filter = 98% t{100 and} | 2% x = 1\nt = 5% filter | 95% x = 2": ("grows", 2, 1),
    X + "filter = x = 1 join x = 2\njoin = and | or": ('"and" cannot be drawn', 3, 8),
    X + "filter = x{2 and}": ("only a rule, a drawn value or a range of names", 2, 11),
    X + "filter = t{2 plus}\nt = x = 1": ('"and", "or", "xor" or ","', 2, 14),
    X + "filter = t{0 and}\nt = x = 1": ("a whole number from 1 to 100", 2, 12),
    X + "filter = t{2 and\nt = x = 1": ('"}" is missing', 2, 17),
    X + "filter = t{3 distinct and}\nt = x = 1": ("only 1 different words", 2, 10),
    X + "filter = x in (v{4 distinct ,})\nvalue v : int 1..3": ("only 3 different", 2, 10),
    X + "pool p : 10 of filter\nfilter = x = 1 | p": ("made of its own conditions", 2, 6),
    X + "pool p : 10 of q\nfilter = x = 1 | p": ("q is not a rule", 2, 16),
    # What the rules make
    X + "filter = x = 1\n    | x < < 1": ("filters such as x < < 1.*cannot be used", 3, 7),
    X + 'filter = x = 1 | x = "a"': ("asks for text, but the schema declares x", 2, 18),
    X + "filter = x op 1\nop = < | contains": ("such as x contains 1", 3, 10),
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_place(text: str) -> None:
    sentence, line, column = MISTAKES[text]
    with pytest.raises(WorkloadError, match=sentence) as caught:
        Workload(text, "my.workload")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith("my.workload: ")


def test_too_many_rules_are_refused_and_a_long_chain_is_not() -> None:
    chain = "".join(f"r{n} = r{n + 1}\n" for n in range(98))
    long = X + "filter = r0\n" + chain + "r98 = x = 1\n"
    assert Workload(long).subscriptions(0, 1, seed=1).column(1).to_pylist() == ["x = 1"]
    with pytest.raises(WorkloadError, match="100 rules at the most"):
        Workload(long.replace("r98 = x = 1", "r98 = r99\nr99 = x = 1"))


def test_a_file_that_is_not_there_is_told_with_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"come with Tamis are abe, .*did you mean \"paper\""):
        Workload.load("papre")
    with pytest.raises(WorkloadError, match="the file cannot be read"):
        Workload.load(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.workload"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(WorkloadError, match="the file cannot be read"):
        Workload.load(path)
    path.write_text("#" * 2_000_000)
    with pytest.raises(WorkloadError, match="has 2,000,000 characters"):
        Workload.load(path)
