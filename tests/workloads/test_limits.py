"""A file that would take long to read is refused quickly, in one sentence."""

from __future__ import annotations

import time

import pytest

from tamis.workloads import Workload, WorkloadError
from tamis.workloads.limits import LIMITS

X = 'attributes.x = { type = "int", range = [0, 9] }\n'
F = 'rules.filter = "x = 1"\n'
MAX_CPU_SECONDS = 5.0
"""Each takes below one second on a quiet machine."""


def lines(count: int, template: str) -> str:
    return "".join(
        template.replace("N+1", str(n + 1)).replace("N", str(n)) + "\n" for n in range(count)
    )


def alternatives(*templates: str) -> str:
    return f"{X}rules.filter = {[*templates]}\n"


LONG_NUMBER = "9" * 5_000
NAMES = 'attributes."x0..x999" = { type = "bool" }\nrules.filter = "x1 = true"\n'

# The text, the key that is named, and what is said of it.
EXCESSES = [
    # Before it is read as TOML
    ("#" * 300_000, "", "at most 262,144 characters"),
    (lines(5_000, "[aN.b]"), "", "at most 4,000 table headers"),
    ("[[events]]\n" * 5_000, "", "at most 4,000 table headers"),
    ("a" + ".a" * 100_000 + " = 1", "", "line 1 has more than 16 dots in a key"),
    ("\n[" + "a." * 100_000 + "a]", "", "line 2 has more than 16 dots in a key"),
    ("x = { " + '"a" . ' * 20_000 + "a = 1 }", "", "line 1 has more than 16 dots in a key"),
    ("x = '''a\n''''' # '\n" + "a." * 20 + "a = 1", "", "line 3 has more than 16 dots in a key"),
    ('x = "\\\\" # "\n' + "a." * 20 + "a = 1", "", "line 2 has more than 16 dots in a key"),
    ("x = " + "[" * 50_000, "", "at most 32 levels of brackets"),
    ("x = " + "{a=" * 50_000, "", "at most 32 levels of brackets"),
    (f"{X}{F}\nx = {LONG_NUMBER}", "", "line 4 has more than 400 digits in a number"),
    (f"{X}{F}x = 0.{LONG_NUMBER}", "", "line 3 has more than 400 digits in a number"),
    ("a" * 200_000, "", "this is not TOML"),
    ("a" + " " * 200_000 + ".", "", "this is not TOML"),
    # Numbers and names
    ('attributes.x = { type = "float", range = [0, 1e9999999999999999999] }\n' + F,
     "attributes.x", "finite"),
    ('attributes.x = { type = "int", range = [0, 9], zipf = 1e9999999999999999999 }\n' + F,
     "attributes.x.zipf", "it must be a number of at most"),
    (f'attributes."a0..a{LONG_NUMBER}" = {{ type = "bool" }}\n' + F,
     "attributes.a0..a" + "9" * 83 + "…", "at most 250 characters in a name"),
    (f'attributes."a0..a{"9" * 200}" = {{ type = "bool" }}\n' + F,
     "attributes.a0..a" + "9" * 83 + "…", "not a range of 1 to 10,000 names"),
    (lines(3_000, 'attributes."aNx0..aNx9999" = { type = "bool" }') + F, "attributes",
     "1 to 1,024 attributes"),
    (lines(100, 'attributes.xN = { type = "int", range = [1, 999_999], zipf = 1 }') + F,
     "attributes.x12", "at most 12,000,000 weights"),
    # Texts
    (X + F + 'values.v0 = { type = "str", texts = "0123456789" }\n'
     + lines(40, 'values.vN+1 = { type = "str", texts = "{vN}{vN}" }'),
     "values.v21.texts", "at most 16,000,000 characters in texts"),
    (X + F + 'values.v0 = { type = "str", texts = ["0", "1"] }\n'
     + lines(40, 'values.vN+1 = { type = "str", texts = "{vN}{vN}" }'),
     "values.v5.texts", "at most 200,000 texts"),
    (X + F + lines(90, 'values.vN = { type = "str", texts = "{0..399}{0..399}" }'),
     "values.v1", "at most 200,000 texts"),
    (X + F + 'values.a = { type = "str", texts = [""] }\nvalues.b = { type = "str", texts = '
     + f'"{"{0..1}" * 17}{"{a}" * 50_000}" }}\n', "values.b.texts", "characters in texts"),
    # Rules
    (X + lines(101, 'rules.rN = "x = 1"') + F, "rules", "at most 100 rules"),
    (X + F + lines(101, 'pools.pN = { of = "filter", size = 5 }'), "pools", "at most 100 pools"),
    (alternatives(*["x = 1"] * 20_000), "rules.filter", "at most 10,000 alternatives"),
    (alternatives("(" * 20_000 + "x = 1"), "rules.filter", "10,000 characters in a template"),
    (alternatives("not " * 20_000 + "x = 1"), "rules.filter", "10,000 characters in a template"),
    (alternatives("not " * 2_400 + "x = 1"), "rules.filter", "which cannot be used: .*levels"),
    (alternatives(*["not " * 20 + "x = 1"] * 2_000), "rules.filter", "at most 30,000 words"),
    (X + 'rules.filter = "{r0}"\nrules.r90 = "x = 1"\n'
     + lines(90, 'rules.rN = "{rN+1} and {rN+1}"'), "rules.r0", "grows without end"),
    (X + 'rules.filter = "{p0}"\nrules.r60 = "x = 1"\npools.p60 = { of = "r60", size = 9 }\n'
     + lines(60, 'rules.rN = "{pN+1} and {pN+1}"\npools.pN = { of = "rN", size = 999 }'),
     "rules.filter", "at most 20,000 words in a filter, on average"),
    (alternatives("{and 100 t}") + f'rules.t = {["x = {x}"] * 9_000}\n', "rules",
     "at most 1,000,000 characters of filters to check"),
    # Events
    (X + F + f"events = [{'{ has = [] }, ' * 9_000}]", "events", "at most 1,000 forms"),
    (NAMES + '[[events]]\nhas = ["x0..x999"]\n' * 300, "events[50].has",
     "at most 50,000 attributes in forms"),
    (NAMES + f"events = [{{ has = {['x0..x999'] * 9_000} }}]", "events[0].has",
     "at most 50,000 attributes in forms"),
]  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize(("text", "key", "sentence"), EXCESSES, ids=range(len(EXCESSES)))
def test_an_excess_is_one_sentence_soon(text: str, key: str, sentence: str) -> None:
    begun = time.process_time()
    with pytest.raises(WorkloadError, match=sentence) as caught:
        Workload(text, "my.toml")
    assert time.process_time() - begun < MAX_CPU_SECONDS
    assert caught.value.key == key
    assert str(caught.value).startswith(f"my.toml: {key}")
    assert len(str(caught.value)) < 1_000
    assert "\n" not in str(caught.value)


def test_strings_and_comments_are_no_structure() -> None:
    dotted = "a." * 100 + "[" * 100 + LONG_NUMBER
    text = f"# {dotted}\n{X}rules.filter = '''x = 1\n'''\n"
    text += f'values.v = {{ type = "str", texts = ["{dotted}", \'{dotted}\'] }}\n'
    assert Workload(text).subscriptions(0, 1, seed=1).column(1).to_pylist() == ["x = 1"]


@pytest.mark.timing
def test_a_file_within_the_limits_is_read_and_drawn_soon() -> None:
    forms = "[[events]]\n" + 'has = ["x0..x999"]\n'
    begun = time.process_time()
    Workload(NAMES + forms * (LIMITS["attributes in forms"] // 1_000)).events(0, 50, seed=1)
    Workload(alternatives(*["x = 1"] * LIMITS["alternatives"])).subscriptions(0, 50, seed=1)
    assert time.process_time() - begun < MAX_CPU_SECONDS
