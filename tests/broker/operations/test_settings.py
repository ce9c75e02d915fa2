"""Settings: where they come from, which wins, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.broker.operations.settings import (
    I_KNOW,
    BrokerSettings,
    PeerSetting,
    load_settings,
    unknown_variables,
)
from tamis.cli.broker import serve
from tamis.errors import SettingsError
from tamis.units import format_seconds, format_size

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('port = 1\nwindow = 1\nbuffer = 1\nretention_age = "2 days"\n')
    monkeypatch.setenv("TAMIS_PORT", "2")
    monkeypatch.setenv("TAMIS_WINDOW", "2")
    settings = load_settings(file, {"port": 3, "host": None})
    assert (settings.port, settings.window, settings.buffer) == (3, 2, 1)
    assert settings.retention_age == 2 * 86_400
    assert settings.host == "127.0.0.1"


def test_the_file_in_the_folder_is_read_if_it_is_there(tmp_path: Path) -> None:
    assert load_settings().port == 8765
    (tmp_path / "tamis.toml").write_text("port = 5\n")
    assert load_settings().port == 5


def test_settings_inside_a_program_do_not_look_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tamis.toml").write_text("port = 5\n")
    monkeypatch.setenv("TAMIS_WINDOW", "2")
    assert BrokerSettings() == BrokerSettings(port=8765, window=1000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("1.5 hours", 5400), ("250ms", 0.25), ("7 days", 604_800)],
)
def test_durations_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert load_settings(None, {"ack_timeout": text}).ack_timeout == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("12000", 12_000), ("64KiB", 65_536), ("1 MB", 1_000_000), ("0.5 MiB", 524_288)],
)
def test_sizes_are_written_as_people_write_them(text: str, size: int) -> None:
    assert load_settings(None, {"largest_event": text}).largest_event == size


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("prot = 5", "broker.toml: prot: there is no such setting; did you mean port?"),
        ("port = true", "broker.toml: port: a number is needed, not true"),
        ("port = 70000", "broker.toml: port: it must be at most 65535, not 70000"),
        ("ack_timeout = 'soon'", "broker.toml: ack_timeout: 'soon' is not a duration"),
        ("ack_timeout = 0", "broker.toml: ack_timeout: it must be more than 0"),
        ("largest_event = '1 lot'", "broker.toml: largest_event: '1 lot' is not a size"),
        ("mode = 'fuzzy'", "broker.toml: mode: it must be 'total', 'strict'"),
        ("[server]\nport = 5", "broker.toml: server: there is no such setting"),
        ("port = ", "broker.toml is not a TOML file"),
        ("allow_anonymous = true", "broker.toml: allow_anonymous: it must be 'yes, I know'"),
        ("jwt_keys = 'keys.json'", "jwt_keys needs policy"),
        ("peers = ['hub']", "broker.toml: peers: 'hub' is not the address of a broker"),
        ("peers = ['http://:1']", "broker.toml: peers: 'http://:1' is not the address"),
        ("peers = ['https://b role']", "broker.toml: peers: an address is followed by options"),
        ("[[peers]]\nrole = 'a'", "broker.toml: peers: it is missing"),
        ("peers = ['http://b:1 rol=a']", "peers: there is no 'rol' in it; did you mean role?"),
        ("peers = 7", "broker.toml: peers: it must be"),
        ("jwt_keys = 'keys.json'\npolicy = 'p.toml'", "jwt_keys needs jwt_issuer"),
    ],
)
def test_mistakes_in_the_file_are_reported_with_their_place(
    tmp_path: Path, file: str, words: str
) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(file)
    with pytest.raises(SettingsError) as error:
        load_settings(path)
    assert words in str(error.value)


def test_mistakes_elsewhere_are_reported_with_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_PORT", "many")
    with pytest.raises(SettingsError, match="TAMIS_PORT: it must be an integer, not"):
        load_settings()
    with pytest.raises(SettingsError, match="--port: it must be"):
        load_settings(None, {"port": -1})
    with pytest.raises(SettingsError, match=r"^--set ack_timeout: '7 moons' is not a duration"):
        load_settings(None, {"port": "1"}, {"ack_timeout": "7 moons"})
    with pytest.raises(SettingsError, match=r"^--set port: it must be"):
        load_settings(None, {"port": "1"}, {"port": "-1"})
    with pytest.raises(SettingsError, match=r"^--set prot: there is no such setting"):
        load_settings(None, {"port": "1"}, {"prot": "1"})


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "broker.example"])  # noqa: S104
def test_where_others_can_reach_it_tls_and_a_policy_are_needed(host: str) -> None:
    tls = {"tls_certificate": "cert.pem", "tls_key": "key.pem"}
    for enough in (
        {**tls, "policy": "policy.toml"},
        {**tls, "allow_anonymous": I_KNOW},
        {"allow_plain_text": I_KNOW, "policy": "policy.toml"},
        {"allow_plain_text": I_KNOW, "allow_anonymous": I_KNOW},
    ):
        assert load_settings(None, {"host": host, **enough}).host == host
        for left_out in enough:
            rest = {name: value for name, value in enough.items() if name != left_out}
            with pytest.raises(SettingsError):
                load_settings(None, {"host": host, **rest})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_on_this_machine_alone_nothing_is_needed(host: str) -> None:
    assert load_settings(None, {"host": host}).is_loopback


def test_peers_are_addresses_with_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[[peers]]\nurl = 'https://b'\nrole = 'branch'\ntoken_file = 'b.token'\n")
    whole = PeerSetting(url="https://b", role="branch", token_file=Path("b.token"))
    with pytest.raises(SettingsError, match=r"https://b has token_file=b\.token, but there is no"):
        whole.require_files()
    assert load_settings(path).peers == (whole,)
    monkeypatch.setenv("TAMIS_PEERS", "http://a:1,https://b role=branch token_file=b.token")
    assert load_settings(path).peers == (PeerSetting(url="http://a:1"), whole)
    assert load_settings(path, {"peers": ["http://c:1"]}).peers == (PeerSetting(url="http://c:1"),)


def test_every_option_of_serve_is_a_setting() -> None:
    options = set(serve.serve.__annotations__) - {"config", "set_", "return"}
    assert options <= set(BrokerSettings.model_fields)


def row(name: str) -> str:
    """Return how the reference describes a setting."""
    field = BrokerSettings.model_fields[name]
    return f"| `{name}` | {_shown(name, field.default)} | {field.description} |"


def _shown(name: str, value: Any) -> str:
    if value in (None, ()):
        return ""
    if isinstance(value, tuple):
        return f"`{', '.join(value)}`"
    if name.endswith("_bytes") or name in ("largest_event", "largest_frame", "largest_header"):
        return f"`{format_size(value)}`"
    if isinstance(value, float):
        return f"`{format_seconds(value)}`"
    return f"`{value}`"


def test_the_reference_lists_every_setting() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    written = [line for line in text.splitlines() if line.startswith("| `")]
    assert sorted(written) == sorted(map(row, BrokerSettings.model_fields))
    for line in written:
        shown = line.split("|")[2].strip(" `")
        if shown:
            name = line.split("|")[1].strip(" `")
            assert getattr(load_settings(None, {name: shown}), name) == (
                BrokerSettings.model_fields[name].default
            )


def test_a_variable_that_is_no_setting_is_named_with_the_nearest() -> None:
    environment = {"TAMIS_PROT": "3", "TAMIS_URL": "x", "TAMIS_TOKEN": "x", "TAMIS_DATA": "x"}
    assert unknown_variables({**environment, "TAMIS_XYZZY": "1", "PATH": "/bin"}) == [
        "TAMIS_PROT: there is no such setting; did you mean TAMIS_PORT?",
        "TAMIS_XYZZY: there is no such setting",
    ]
