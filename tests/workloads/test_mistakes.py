"""Every mistake in a workload file gives one sentence with the key and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.workloads import Workload, WorkloadError

X = 'attributes.x = { type = "int", range = [0, 9] }\n'
F = 'rules.filter = "x = 1"\n'


def attribute(declared: str) -> str:
    return f"attributes.x = {{ {declared} }}\n" + F


def integers(rest: str) -> str:
    return attribute(f'type = "int", {rest}')


def floats(rest: str) -> str:
    return attribute(f'type = "float", {rest}')


def texts(rest: str) -> str:
    return attribute(f'type = "str", {rest}')


def rule(written: str) -> str:
    return f"{X}rules.filter = {written}\n"


# A mistake, the key that is named, and what is said of it.
MISTAKES = [
    # The file
    ("attributes = x", "", "this is not TOML: .*line 1, column"),
    ("", "", '"attributes" is missing'),
    (X, "", '"rules" is missing'),
    (X + "rules = {}", "rules", '"filter" is missing; add filter = "price < {price}"'),
    (X + F + "rule.x = 1", "rule", 'no meaning here; did you mean "rules"?'),
    (X + "rules = 5", "rules", "it must be a table, not an integer"),
    ("attributes = {}\n" + F, "attributes", "1 to 1,024 attributes"),
    (X + F + 'rules.x = "x = 1"', "rules.x", "attributes.x has this name; rename one"),
    ('attributes."f9..f0" = { type = "bool" }\n' + F, "attributes.f9..f0", "write it as f0..f9"),
    ('attributes."f0..g9" = { type = "bool" }\n' + F, "attributes.f0..g9", "write it as f0..f9"),
    ('attributes."f0..f2000" = { type = "bool" }\n' + F, "attributes", "1 to 1,024 attributes"),
    (X + 'attributes."x0..x1" = { type = "bool" }\nattributes.x1 = { type = "bool" }\n' + F,
     "attributes.x1", "x1 is declared twice"),
    # Distributions
    (attribute("range = [0, 9]"), "attributes.x", '"type" is missing'),
    (attribute('type = "integer"'), "attributes.x.type", '"integer" is not a type; the types are'),
    (attribute('type = "int"'), "attributes.x", '"range" is missing; add it'),
    (integers("range = 9"), "attributes.x.range", "it must be a list, not an integer"),
    (integers("range = [9]"), "attributes.x.range", "it must be a list of exactly 2 items, not 1"),
    (integers("range = [9, 0]"), "attributes.x.range", "the first number must not exceed the last"),
    (integers("range = [0, 1.5]"), "attributes.x.range[1]", "it must be an integer, not a number"),
    (integers("range = [0, 9223372036854775808]"), "attributes.x.range[1]", "be an integer"),
    (integers("range = [0, 9223372036854775807]"), "attributes.x.range", "can be drawn"),
    (integers("range = [0, 9], step = 0"), "attributes.x.step", "an integer of at least 1"),
    (integers("range = [0, 9], zipf = 0"), "attributes.x.zipf", "a number greater than 0"),
    (integers("range = [0, 9_999_999], zipf = 1"), "attributes.x.range",
     "10,000,000 values, and 1,000,000 can be drawn; take a larger step"),
    (integers("range = [0, 9], normal = { mean = 900, deviation = 1 }"), "attributes.x.normal",
     "the density is 0"),
    (integers("range = [0, 9], lognormal = { median = 3, deviation = 1 }"), "attributes.x",
     "a lognormal range begins above 0"),
    (integers("range = [0, 9], normal = { mean = 3 }"), "attributes.x.normal",
     '"deviation" is missing'),
    (integers("range = [0, 9], zipf = 1, normal = { mean = 3, deviation = 1 }"), "attributes.x",
     "one shape, not zipf and normal"),
    (integers("range = [0, 9], zpif = 1"), "attributes.x.zpif",
     'this key has no meaning here; did you mean "zipf"?'),
    (integers("range = [0, 9], wide = [3, 3]"), "attributes.x.wide", "values, not windows"),
    (integers("range = [0, 9], present = 1.2"), "attributes.x.present", "number of at most 1"),
    (integers("range = [0, 9], many = [0, 1]"), "attributes.x.many[0]", "of at least 1"),
    (integers("range = [0, 9], many = [2, 1]"), "attributes.x.many", "must not exceed the second"),
    (floats("range = [1, 0]"), "attributes.x.range", "must not exceed the last"),
    (floats('range = [0, "a"]'), "attributes.x.range[1]", "it must be a number"),
    (floats("range = [0, inf], step = 1"), "attributes.x", "finite"),
    (floats("range = [0, nan]"), "attributes.x", "finite"),
    (floats("range = [0, 1e99999999999999]"), "attributes.x", "finite"),
    (integers("range = [0, 9], present = nan"), "attributes.x.present", "it must be a number"),
    (texts("texts = { a = nan }"), "attributes.x.texts", "it must be a number"),
    (integers("range = [0, 9], zipf = inf"), "attributes.x.zipf", "it must be a number"),
    (floats("range = [0, 1], step = 0"), "attributes.x.step", "a step is more than 0"),
    (floats("range = [0, 1], step = 0.00000000001"), "attributes.x", "more digits than"),
    (floats("range = [0, 1e400], step = 1"), "attributes.x", "finite"),
    (floats("range = [0, 1], zipf = 1"), "attributes.x.zipf", "separate values; add step = 0.01"),
    (texts("texts = 5"), "attributes.x.texts", "it must be a (text|table|list)"),
    (texts("texts = []"), "attributes.x.texts", "nothing to choose from"),
    (texts("texts = { a = 0 }"), "attributes.x.texts", "a number greater than 0"),
    (texts("texts = { a = 9, b = 1 }, zipf = 1"), "attributes.x", "either weights or zipf"),
    (texts('texts = "{foo} a"'), "attributes.x.texts", "{foo} names no texts; define them above"),
    (texts('texts = "{5..3}"'), "attributes.x.texts", "in {5..3}, the first number must"),
    (texts('texts = "{0..999}{0..999}"'), "attributes.x.texts", "at most 200,000 texts"),
    (attribute('type = "bool", true = 2'), "attributes.x.true", "number of at most 1"),
    (attribute('type = "timestamp", range = ["soon", "later"]'), "attributes.x.range[0]",
     "Invalid RFC3339"),
    (attribute('type = "timestamp", range = [2026-01-02T00:00:00, 2026-01-02T00:00:00Z]'),
     "attributes.x.range[0]", "it must be a time with a time zone"),
    (attribute('type = "timestamp", range = [2026-01-02T00:00:00Z, 2026-01-01T00:00:00Z]'),
     "attributes.x", "the first time must not exceed the last"),
    (X + F + 'values.w = { type = "int", range = [0, 9], wide = [20, 20] }', "values.w.wide",
     "1 to 10 values wide"),
    (X + F + 'values.w = { type = "bool", present = 0.5 }', "values.w", "only attributes have"),
    # Events
    (X + F + 'attributes.y = { type = "bool" }\nevents = [{ has = ["x"] }]', "events",
     "no event has the attribute y"),
    (X + F + 'events = [{ has = ["z"] }]', r"events[0].has", "there is no attribute z"),
    (X + F + 'events = [{ has = ["x", "x"] }]', "events[0]", "x is in this form twice"),
    (X + F + "events = [{ choose = 3 }]", "events[0].choose", "it must be a list, not an integer"),
    (X + F + 'events = [{ choose = [{ count = 3, of = ["x"] }] }]', "events[0].choose",
     "3 of 1 are too many"),
    (X + F + 'events = [{ has = ["x"] }, { choose = [{ count = 1, of = ["x"] }] }]', "events",
     "x is in a choose, so it can be nowhere else"),
    # Rules and pools
    (rule('["x = 1", ""]'), "rules.filter", "the text is empty"),
    (rule("[]"), "rules.filter", "nothing to choose from"),
    (rule("{ a = -1 }"), "rules.filter", "a number greater than 0"),
    (rule("7"), "rules.filter", "it must be .*, not an integer"),
    (rule('["x = 1", "y = 2"]'), "rules.filter",
     '"y = 2" makes filters such as y = 2, which cannot be used: .*y'),
    (rule('"{rest}"\nrules.test = "x = 1"'), "rules.filter", 'did you mean "test"'),
    (rule('"x = {5..3}"'), "rules.filter", "the range {5..3} is empty"),
    (rule('"x = {x"'), "rules.filter", "which cannot be used"),
    (rule("'x = \"a'"), "rules.filter", "never closed"),
    (rule('"x = 1"\nrules.lost = "x = 2"'), "rules.lost", "nothing leads from filter to it"),
    (rule('"{a}"\nrules.a = "{b}"\nrules.b = "{a}"'), "rules.filter", "it never ends"),
    (rule('["x = 1", "{a}"]\nrules.a = ["not {a}", "({a})"]'), "rules.a", "it never ends"),
    (rule('{ "{filter} and {filter}" = 60, "x = 1" = 40 }'), "rules.filter", "grows without end"),
    (rule('{ "{and 100 t}" = 98, "x = 1" = 2 }\nrules.t = { "{filter}" = 5, "x = 2" = 95 }'),
     "rules.filter", "grows without end"),
    (rule('"x = 1 {join} x = 2"\nrules.join = ["and", "or"]'), "rules.join",
     '"and" cannot be drawn on its own'),
    (rule('"{plus 2 t}"\nrules.t = "x = 1"'), "rules.filter", "{plus 2 t} names no rule"),
    (rule('"{and 0 t}"\nrules.t = "x = 1"'), "rules.filter", "should repeat 1 to 100 times"),
    (rule('"{and 3 distinct t}"\nrules.t = "x = 1"'), "rules.filter",
     "only 1 of 3 begin with different words; ask for fewer"),
    (rule('"x in ({list 4 distinct 1..3})"'), "rules.filter", "only 3 of 4 begin"),
    (rule('["x = 1", "{p}"]\npools.p = { size = 10, of = "filter" }'), "pools.p",
     "made of its own conditions"),
    (rule('["x = 1", "{p}"]\npools.p = { size = 10, of = "q" }'), "pools.p.of",
     "there is no rule q"),
    (rule('["x = 1", "x < < 1"]'), "rules.filter", "such as x < < 1, which cannot be used"),
    (rule("""["x = 1", 'x = "a"']"""), "rules.filter", "asks for text, but the schema declares x"),
    (rule('"x {op} 1"\nrules.op = ["<", "contains"]'), "rules.op", "such as x contains 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_with_the_file_the_key_and_the_fix(
    text: str, key: str, sentence: str
) -> None:
    with pytest.raises(WorkloadError, match=sentence.replace("{", r"\{")) as caught:
        Workload(text, "my.toml")
    assert caught.value.key == key
    assert str(caught.value).startswith(f"my.toml: {key}" if key else "my.toml: ")
    assert "\n" not in str(caught.value)


def test_too_many_rules_are_refused_and_a_long_chain_is_not() -> None:
    chain = "".join(f'rules.r{n} = "{{r{n + 1}}}"\n' for n in range(98))
    long = X + 'rules.filter = "{r0}"\n' + chain + 'rules.r98 = "x = 1"\n'
    assert Workload(long).subscriptions(0, 1, seed=1).column(1).to_pylist() == ["x = 1"]
    with pytest.raises(WorkloadError, match="at most 100 rules"):
        Workload(long.replace('r98 = "x = 1"', 'r98 = "{r99}"\nrules.r99 = "x = 1"'))


def test_the_error_for_a_missing_file_lists_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"come with Tamis are abe, .*did you mean \"paper\""):
        Workload.load("papre")
    with pytest.raises(WorkloadError, match="the file cannot be read"):
        Workload.load(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(WorkloadError, match="the file cannot be read"):
        Workload.load(path)
    path.write_text("#" * 2_000_000)
    with pytest.raises(WorkloadError, match="at most 262,144 characters"):
        Workload.load(path)
