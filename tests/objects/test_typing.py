"""What type checkers see: in `where`, the parameter of a function is the class."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = """
from dataclasses import dataclass
from tamis import Engine, ObjectFilter, message, where

@dataclass
class Trade:
    symbol: str
    price: float

right: ObjectFilter = where(Trade, lambda t: t.symbol.startswith("A") and 1 < t.price < 5)
also: ObjectFilter = (message(Trade).price > 5) & ~(message(Trade).symbol == "A")
engine = Engine()
engine.add("right", right)
engine.add("also", also)
engine.add("all", message(Trade))
wrong = where(Trade, lambda t: t.symbl == "A")
mixed = where(Trade, lambda t: t.price > "5")
"""


@pytest.mark.slow
def test_a_misspelled_member_is_an_error_for_mypy(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    found, _, _ = api.run(["--strict", "--no-error-summary", str(program)])
    lines = [line.partition("error: ")[2] for line in found.splitlines() if "error: " in line]
    assert len(lines) == 2, found
    assert lines[0].startswith('"Trade" has no attribute "symbl"')
    assert "Unsupported operand types" in lines[1]
