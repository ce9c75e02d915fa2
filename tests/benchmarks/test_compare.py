"""Two checkouts are compared on the same inputs, and only if they compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.compare.__main__ import Compared, Result, check, main
from benchmarks.harness import DisagreementError

HERE = Path(__file__).parents[2]
QUICK = ("--divide", "60", "--repeats", "1", "--processes", "1")


@pytest.mark.slow
def test_a_checkout_compared_with_itself_gives_a_row_per_measurement(tmp_path: Path) -> None:
    main([str(HERE), str(HERE), "parsing", *QUICK, "--out", str(tmp_path)])
    table = (tmp_path / "compare.md").read_text("utf-8")
    for row in ("parsing: tamis", "parsing: jms", "parsing: siena"):
        assert row in table
    assert "Not compared" not in table
    assert (tmp_path / "compare.svg").stat().st_size > 1000


@pytest.mark.slow
def test_a_checkout_without_the_package_is_named_in_a_note(tmp_path: Path) -> None:
    main([str(HERE), str(tmp_path / "nothing"), "parsing", *QUICK, "--out", str(tmp_path)])
    assert "Not compared: parsing" in (tmp_path / "compare.md").read_text("utf-8")


def test_checkouts_that_compute_something_else_are_refused() -> None:
    check("a row", Result(5.0, 7), Result(6.0, 7))
    with pytest.raises(DisagreementError, match="the old checkout finds 7, the new one 8"):
        check("a row", Result(5.0, 7), Result(6.0, 8))


def test_a_line_has_both_medians_their_spread_and_the_ratio() -> None:
    compared = Compared("paper", "total", [90.0, 100.0, 110.0], [40.0, 50.0, 60.0])
    line = ("paper: total", "100", "90 to 110", "50", "40 to 60", "0.50")
    assert compared.line() == line


def test_a_name_that_is_no_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["old", "new", "parsnig"])
    assert "parsnig: the cases are parsing, relations" in capsys.readouterr().err
