"""A kind of value is one entry of the table: nothing else has to change for a new one."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import tamis

PACKAGE = Path(tamis.__file__).parent
ENUMERATIONS = {"Kind", "Type"}

SPECIAL = {
    "analysis/candidates.py": "how near two values are, and what lies beside one",
    "covering/programs.py": "kinds whose tests are unions of intervals",
    "diagrams/atom_intervals.py": "tests of text as intervals",
    "analysis/counterfactuals.py": "texts that a test of any attribute sees",
    "analysis/explain.py": "texts that a test of any attribute sees",
    "analysis/mistakes.py": "constants that people write for another kind",
    "diagrams/encoding.py": "bits, texts and arithmetic in diagrams",
    "diagrams/folded_tests.py": "texts without regard to case",
    "diagrams/sketch.py": "a breakpoint in the words that a reader would use",
    "diagrams/value_order.py": "integers and floats lie in one order",
    "diagrams/variable_order.py": "texts read backwards",
    "diagrams/witness.py": "numbers, texts and bits that satisfy several tests at once",
    "events/class_attributes.py": "for Python, booleans are integers and timestamps dates",
    "events/arrow_numbers.py": "columns of numbers, read together",
    "events/arrow_values.py": "Arrow's many integers, instants, and texts as codes",
    "events/arrow.py": "instants and texts that Python cannot hold",
    "events/columns.py": "numbers as floats with a residue, texts as codes",
    "events/gathering.py": "columns of plain numbers, texts and booleans",
    "events/json_columns.py": "the forms of values in JSON",
    "events/kinds.py": "the table",
    "events/packed.py": "columns of numbers, kept together",
    "events/schema.py": "a mask may use the 64th bit",
    "filters/any_text.py": "any attribute is tested for texts",
    "filters/arithmetic.py": "arithmetic is about numbers",
    "filters/atoms.py": "texts that a schema converts",
    "filters/build.py": "tests of text and bits",
    "languages/expressions.py": "the largest integer, before its sign is known",
    "languages/jms.py": "JMS orders only numbers, and has texts for what Tamis has types for",
    "languages/tamis.py": "a keyword is followed by text",
    "matching/compile/leaves.py": "atoms that differ only in their integers",
    "matching/evaluate/": "searches for numbers, texts and bits; arithmetic",
    "matching/store/tables.py": "the types of the columns of a table of subscriptions",
    "objects/": "the classes of Python that are of each kind; decimals are numbers",
    "sources/": "what Arrow and SQLite compare exactly as filters do",
    "spark/library/": "a shard key is text",
    "xml/": "what the text of a node may be compared as, and texts that stand for several values",
    "workloads/": "each type that is drawn has distributions of its own",
}
"""Where a single kind or type is mentioned, and what is special about it there."""


def mentions(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ENUMERATIONS
        and node.attr.isupper()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_only_special_cases_of_a_kind_are_outside_the_table() -> None:
    found = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if mentions(p)}
    assert {path for path in found if not path.startswith(tuple(SPECIAL))} == set()
    assert {
        place for place in SPECIAL if not any(path.startswith(place) for path in found)
    } == set()


# --- a toy kind ------------------------------------------------------------------------------

HELPERS = """
from datetime import timedelta


def parse_duration(text: str) -> timedelta:
    try:
        return timedelta(seconds=int(text.removesuffix("s")))
    except ValueError:
        raise ValueError(f"{text!r} is not a duration such as 60s") from None


def format_duration(value: timedelta) -> str:
    return f"{value // timedelta(seconds=1)}s"


"""
KIND_ENTRY = """
        Kind.DURATION: KindTraits(
            comparisons=ORDER,
            dtype="int64",
            store=lambda value: value // timedelta.resolution,
            restore=lambda stored: timedelta(microseconds=stored),
            lowest=timedelta.min,
            successor=lambda value: value + timedelta.resolution,
            predecessor=lambda value: value - timedelta.resolution,
        ),
"""
TYPE_ENTRY = """
        Type.DURATION: TypeTraits(
            kind=Kind.DURATION,
            cls=timedelta,
            check=lambda value, _: value,
            trusted=True,
            conversions={Type.STR: parse_duration},
            keyword="duration",
            show=lambda value: f'duration "{format_duration(value)}"',
            to_json=format_duration,
            arrow=("duration[us]",),
        ),
"""
PATCHES = (
    ('    BITS = "a bit set"\n', '    BITS = "a bit set"\n    DURATION = "a duration"\n'),
    ('    BITS = "bits"\n', '    BITS = "bits"\n    DURATION = "duration"\n'),
    ("\nEQUALITY: Final", f"{HELPERS}EQUALITY: Final"),
    ("    }\n)\n\n\nclass TypeTraits", f"{KIND_ENTRY}    }}\n)\n\n\nclass TypeTraits"),
    ("    }\n)\n\nKIND_OF_TYPE", f"{TYPE_ENTRY}    }}\n)\n\nKIND_OF_TYPE"),
)


def test_a_kind_that_is_added_to_the_table_works_everywhere(tmp_path: Path) -> None:
    copy = tmp_path / "tamis"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    table = copy / "events" / "kinds.py"
    text = table.read_text(encoding="utf-8")
    for old, new in PATCHES:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    table.write_text(text, encoding="utf-8")
    program = Path(__file__).with_name("toy_kind.py")
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, str(program), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
