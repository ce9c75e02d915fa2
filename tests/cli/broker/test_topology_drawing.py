"""The picture of an overlay: every label has room, and says no more than is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tamis.cli.broker.topology import _print, _write
from tamis.cli.broker.topology_drawing import BOX_WIDTH, CHARACTER_WIDTH, draw_topology
from tamis.errors import OptionError
from tamis.protocol.views import BrokerView, PeerView, TopologyView


def _drawn(sent: int = 1, *, answered: bool = True) -> str:
    there = PeerView("b", "north", connected=answered, sent=sent, forwarded=1)
    asked = BrokerView("a", "south", subscriptions=1, links=[there])
    other = BrokerView("b", "north", links=[PeerView("a", "south", connected=True)])
    return draw_topology(TopologyView("a", [asked, other] if answered else [asked]))


def test_one_is_singular() -> None:
    assert "→ 1 event, 0 stopped · 1 filter, 0 covered" in _drawn()
    assert ">1 subscription<" in _drawn()


def test_a_long_label_makes_room_between_boxes() -> None:
    for sent in (1, 12_345_678_901_234):
        drawn = _drawn(sent)
        first, second = (float(x) for x in re.findall(r'<rect class="[^"]*" x="([^"]*)"', drawn))
        [(end, label)] = re.findall(r'x="([0-9.]+)"[^>]*>(→ [^<]*)<', drawn)
        assert float(end) < second
        assert float(end) - CHARACTER_WIDTH * len(label) > first + BOX_WIDTH


def test_a_broker_that_did_not_answer_has_no_number_of_subscriptions() -> None:
    assert ">no answer<" in _drawn(answered=False)
    assert "0 subscriptions" not in _drawn(answered=False)


def test_a_long_problem_is_printed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    link = PeerView("", url="http://127.0.0.1:1", problem=f"{'word ' * 60}end", queries_sent=1)
    _print(TopologyView("a", [BrokerView("a", "south", links=[link])]))
    printed = capsys.readouterr().out
    assert f"no connection: {link.problem}\n" in printed
    assert "1 query sent" in printed


def test_a_picture_that_cannot_be_written_is_reported_as_that(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^--svg .*x\.svg cannot be written: No such file"):
        _write(tmp_path / "none" / "x.svg", "")
