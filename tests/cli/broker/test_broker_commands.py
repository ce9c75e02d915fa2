"""The commands that speak with a broker, and a real broker to speak with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tamis as library
from broker.server import ServerProcess, running
from cli.commands import ROOT, Outcome, tamis
from waiting import eventually

TAMIS = (sys.executable, "-m", "tamis.cli")
COMMANDS = ["pub", "sub", "tail", "history", "subscriptions", "explain", "status", "token"]
EVENTS = ROOT / "examples" / "market" / "events.jsonl"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("broker"), backoff_first="0.05") as server:
        yield server


@pytest.fixture
def url(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAMIS_URL", server.url)
    monkeypatch.delenv("TAMIS_TOKEN", raising=False)
    return server.url


def published(done: Outcome) -> tuple[int, int, int]:
    found = re.search(r"([\d,]+) published, ([\d,]+) duplicates?, ([\d,]+) rejected", done.err)
    assert found, done
    first, second, third = (int(number.replace(",", "")) for number in found.groups())
    return first, second, third


# --- pub -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("url")
def test_events_are_published_from_options_files_and_standard_input(tmp_path: Path) -> None:
    start = next_sequence()
    done = tamis("pub", "-e", '{"n": 1}', "--event", '{"n":\n 2}')
    assert (done.code, done.out, published(done)) == (0, "", (2, 0, 0))
    path = tmp_path / "events.jsonl"
    path.write_text('{"n": 3}\n\n{"n": 4}\n')
    assert published(tamis("pub", path)) == (2, 0, 0)
    assert published(tamis("pub", stdin='{"n": 5}\n{"n": 6}')) == (2, 0, 0)
    assert published(tamis("pub", "-", stdin="")) == (0, 0, 0)
    shown = tamis("tail", "--from", start, "--count", 6)
    assert [event["n"] for event in shown.json] == [1, 2, 3, 4, 5, 6]


def next_sequence() -> int:
    [status] = tamis("status", "--format", "json").json
    number: int = status["log"]["next"]
    return number


@pytest.mark.usefixtures("url")
def test_what_is_no_event_is_named_and_the_rest_goes_on() -> None:
    lines = '{"n": 1}\n{"n": NaN}\n[1]\n{"n": }\n{"n": 2}\n{"n": 3, "n": 4}\n'
    done = tamis("pub", stdin=lines)
    assert (done.code, published(done)) == (1, (2, 0, 4))
    assert "rejected: line 2, n: NaN is not JSON; leave the attribute out\n" in done.err
    assert "rejected: line 3: " in done.err
    assert "an event is a JSON object, not an array" in done.err
    assert "rejected: line 4, column 7: this is not JSON: expecting value" in done.err
    assert "rejected: line 6: n: the name is given twice in one object" in done.err
    done = tamis("pub", "-e", "{}", "-e", "{", "-e", '{"n": 1, "n": 2}')
    assert "rejected: event 2, column 2: this is not JSON" in done.err
    assert "rejected: event 3: n: the name is given twice in one object" in done.err


@pytest.mark.usefixtures("url")
def test_a_line_that_is_much_too_long_is_rejected() -> None:
    err = tamis("pub", stdin='{"a": "' + "x" * 2_000_000 + '"}\n').err
    assert "line 1: bytes of JSON text: more than 1,048,576 exceeds the limit of 1,048,576\n" in err


@pytest.mark.usefixtures("url")
def test_a_file_that_grew_is_published_again_without_repetition(tmp_path: Path) -> None:
    path = tmp_path / "grows.jsonl"
    path.write_text("".join(f'{{"grows": {n}}}\n' for n in range(700)) + "no event\n")
    done = tamis("pub", path, "--publisher", "grows")
    assert published(done) == (700, 0, 1)
    assert f"rejected: {path}: line 701, column 1: this is not JSON" in done.err
    with path.open("a") as file:
        file.write('{"grows": 701}\n')
    assert published(tamis("pub", path, "--publisher", "grows")) == (1, 700, 1)
    assert published(tamis("pub", path, "--publisher", "grows", "--sequence", 703)) == (701, 0, 1)
    shown = tamis("sub", "grows >= 0", "--from", "earliest", "--count", 1402)
    numbers = [*range(700), 701]
    assert [event["grows"] for event in shown.json] == numbers * 2


@pytest.mark.usefixtures("url")
def test_cloudevents_stay_cloudevents() -> None:
    text = '{"specversion": "1.0", "id": "1", "source": "/a", "type": "sold", "data": {"n": 1}}'
    done = tamis("pub", "--cloudevents", stdin=f'{text}\n{{"n": 1}}\n')
    assert published(done) == (1, 0, 1)
    [event] = tamis("sub", 'type = "sold" and data.n = 1', "--from", "earliest", "-n", 1).json
    assert event == json.loads(text)


@pytest.mark.usefixtures("url")
def test_documents_are_published_and_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "order.xml"
    chairs, tables = (
        f"<order>\n<line><sku>{first}</sku><n>9</n></line><line><sku>{second}</sku><n>1</n></line></order>"
        for first, second in (("chair", "table"), ("table", "chair"))
    )
    path.write_text(chairs)
    start = next_sequence()
    assert published(tamis("pub", "--xml", path)) == (1, 0, 0)
    done = tamis("pub", "--xml", "-e", tables, "-e", "<order>")
    assert (done.code, published(done)) == (1, (1, 0, 1))
    assert "rejected: event 2: line 1, column 8: this is not well-formed XML" in done.err
    assert published(tamis("pub", "--xml", stdin=tables)) == (1, 0, 0)
    query = "order/line[sku = 'chair' $and$ $not$ n < 5]"
    for command in ("history", "sub"):
        options = ("--language", "xql", "--from", start, "-n", 1)
        assert [*map(str, tamis(command, query, *options).json)] == [chairs]
        [shown] = tamis(command, query, *options, "--envelope").json
        assert shown["event"] == chairs
    table = tamis("history", query, "-l", "xql", "--from", start, "--format", "table")
    assert "<order> <line><sku>chair</sku>" in table.out
    assert tamis("pub", "--xml", "--cloudevents", path).code == 2
    assert tamis("pub", "<order/>").code == 2


# --- history -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("url")
def test_the_past_is_shown_and_has_an_end() -> None:
    start = next_sequence()
    tamis("pub", stdin="\n".join(f'{{"past": {n}}}' for n in range(5)))
    shown = tamis("history", "past >= 1", "--from", start)
    assert (shown.code, [event["past"] for event in shown.json]) == (0, [1, 2, 3, 4])
    some = tamis("history", "--from", start, "--to", start + 3, "--count", 2, "--envelope")
    assert [event["sequence"] for event in some.json] == [start, start + 1]
    none = tamis("history", "past > 9", "--from", start)
    assert (none.code, none.out, none.err) == (1, "", "")
    wrong = tamis("history", "past >")
    assert (wrong.code, "missing at the end" in wrong.err) == (2, True)


# --- sub and tail --------------------------------------------------------------------------------


@pytest.mark.usefixtures("url")
def test_events_are_shown_as_lines_of_json_or_as_a_table() -> None:
    tamis("pub", "-e", '{"shown": 1, "text": "a b", "evil": "\\u001b[31m"}')
    options = ("shown = 1", "--from", "earliest", "--count", 1)
    assert tamis("sub", *options) == (
        0,
        '{"shown": 1, "text": "a b", "evil": "\\u001b[31m"}\n',
        "",
    )
    table = tamis("sub", *options, "--format", "table").out.splitlines()
    assert re.fullmatch(r" +sequence  time +event", table[0])
    assert re.fullmatch(r' +\d+  \d\d:\d\d:\d\d\.\d{3}  shown=1 text="a b" evil=".+"', table[1])
    assert "\x1b" not in table[1]
    [envelope] = tamis("sub", *options, "--envelope").json
    assert {*envelope} == {"sequence", "time", "publisher", "attempt", "event"}
    assert envelope["event"]["shown"] == 1


@pytest.mark.usefixtures("url")
def test_a_durable_subscription_goes_on_where_it_was() -> None:
    tamis("pub", stdin="".join(f'{{"durable": {n}}}\n' for n in range(5)))
    options = ("durable >= 0", "--durable", "cli-1", "--from", "earliest", "--lifetime", "1h")
    first = tamis("sub", *options, "--count", 2)
    second = tamis("sub", *options, "--count", 3)
    assert [event["durable"] for event in first.json + second.json] == [0, 1, 2, 3, 4]
    assert tamis("subscriptions", "delete", "cli-1").code == 0


@pytest.mark.usefixtures("url")
def test_a_group_shares_events_and_shows_its_members() -> None:
    tamis("pub", stdin="".join(f'{{"shared": {n}}}\n' for n in range(3)))
    options = ("shared >= 0", "--group", "crew", "--ordering-key", "shared", "--from", "earliest")
    assert len(tamis("sub", *options, "--count", 2).json) == 2
    with program("sub", *options) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["shared"] in range(3)
        assert re.search(r"crew +yes +1 member ", tamis("subscriptions").out)
        shown = tamis("subscriptions", "show", "crew").out
        assert re.search(
            r"^members +\S+-\d+-[0-9a-f]{8} since .*, [01] in flight$", shown, re.MULTILINE
        )
        assert re.search(r"^ordering key +shared$", shown, re.MULTILINE)
    taken_over = tamis("sub", "shared >= 0", "--durable", "crew")
    assert (taken_over.code, "is a group" in taken_over.err) == (2, True)
    assert tamis("subscriptions", "delete", "crew").code == 0


@pytest.mark.usefixtures("url")
def test_the_past_is_found_by_time() -> None:
    tamis("pub", "-e", '{"when": 1}')
    # Times on the command line have whole seconds.
    after = int(time.time()) + 1
    eventually(lambda: time.time() > after)
    between = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(after))
    tamis("pub", "-e", '{"when": 2}')
    [event] = tamis("sub", "when > 0", "--from", between, "-n", 1).json
    assert event == {"when": 2}
    [event] = tamis("sub", "when > 0", "--from", "1h", "-n", 1).json
    assert event == {"when": 1}
    assert len(tamis("history", "when > 0", "--from", "1 hour", "--to", "1ms").json) == 2
    assert tamis("history", "when > 0", "--from", "1h", "--to", "59m").code == 1
    done = tamis("sub", "when > 0", "--from", "yesterday", "-n", 1)
    assert done.code == 2
    assert "yesterday" in done.err


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process of its own, for as long as the block lasts."""
    with subprocess.Popen(  # noqa: S603
        [*TAMIS, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_events_are_written_as_they_come_until_interrupted(url: str) -> None:
    """A real process in a pipe, which follows what is published meanwhile."""
    with program("sub", "live >= 0", "--durable", "live", "--from", "earliest") as process:
        assert process.stdout is not None
        for n in range(3):
            tamis("pub", "-e", f'{{"live": {n}}}')
            assert json.loads(process.stdout.readline()) == {"live": n}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("", "", 130)
    with library.connect_sync(url) as bus:
        tamis("pub", "-e", '{"live": 3}')
        with bus.subscribe("live >= 0", durable="live") as subscription:
            assert subscription.next(20)["live"] == 3
        bus.delete("live")


def test_standard_input_is_published_line_by_line(url: str) -> None:
    with program("pub") as process:
        assert process.stdin is not None
        with library.connect_sync(url) as bus, bus.subscribe("typed >= 0") as subscription:
            for n in range(3):
                process.stdin.write(f'{{"typed": {n}}}\n')
                process.stdin.flush()
                assert subscription.next(20)["typed"] == n
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (err, process.returncode) == ("", 130)


@pytest.mark.usefixtures("url")
def test_a_reader_that_goes_away_ends_a_subscription_quietly() -> None:
    tamis("pub", "-e", '{"pipe": 1}')
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(  # noqa: S603
        [*TAMIS, "sub", "pipe = 1", "--from", "earliest"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.usefixtures("url")
def test_a_reader_that_has_enough_is_noticed_before_the_next_event() -> None:
    tamis("pub", "-e", '{"head": 1}')
    with program("sub", "head = 1", "--from", "earliest") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr.read() == ""


# --- looking after subscriptions -----------------------------------------------------------------


def test_subscriptions_are_listed_shown_renewed_and_deleted(url: str) -> None:
    assert tamis("subscriptions").err == "there are no subscriptions\n"
    tamis("pub", "-e", '{"kept": 1}', "-e", '{"kept": 2}')
    options = ("--durable", "laptop-7", "--from", "earliest", "--lifetime", "1 hour", "-n", 1)
    tamis("sub", "kept > 0", *options)
    # The broker writes acknowledgements a moment after it has taken them.
    row = re.compile(r"laptop-7 +yes +no +1 +0 +0 +0 .*kept > 0")
    eventually(lambda: row.search(tamis("subscriptions").out) is not None)
    [view] = tamis("subscriptions", "list", "--format", "json").json
    assert (view["id"], view["filter"], view["pending"]) == ("laptop-7", "kept > 0", 1)
    assert tamis("subscriptions", "--format", "json").json == [view]
    shown = tamis("subscriptions", "show", "laptop-7", "--url", url)
    assert re.search(r"^filter +kept > 0$", shown.out, re.MULTILINE)
    assert re.search(r"^max attempts +10$", shown.out, re.MULTILINE)
    assert "suspended" not in shown.out
    assert tamis("subscriptions", "show", "laptop-7", "--format", "json").json == [view]
    renewed = tamis("subscriptions", "--url", url, "renew", "laptop-7", "never")
    assert renewed.out == "laptop-7 expires: never\n"
    updated = tamis("subscriptions", "update", "laptop-7", "kept > 1")
    assert re.fullmatch(r"laptop-7 has the filter kept > 1, from event \d+ on\n", updated.out)
    again = tamis("subscriptions", "update", "laptop-7", "kept > 1")
    assert again.out == updated.out
    assert re.search(
        r"^filter from +\d+$", tamis("subscriptions", "show", "laptop-7").out, re.MULTILINE
    )
    assert tamis("subscriptions", "delete", "laptop-7").out == "laptop-7 is deleted\n"
    gone = tamis("subscriptions", "show", "laptop-7")
    assert (gone.code, gone.err) == (2, "error: there is no subscription 'laptop-7'\n")


def test_dead_letters_are_shown_and_come_again(url: str) -> None:
    with library.connect_sync(url) as bus:
        subscription = bus.subscribe("dead > 0", durable="dead", max_attempts=1)
        bus.publish_many([{"dead": n} for n in (1, 2, 3)])
        for _ in range(3):
            subscription.next(20).nack(reason="out of paper")
        bus.flush()
        eventually(lambda: len(bus.dead_letters("dead")) == 3)
        subscription.close()
    shown = tamis("subscriptions", "dead-letters", "dead")
    assert re.search(r'1   out of paper   {"dead":1}', shown.out)
    letters = tamis("subscriptions", "dead-letters", "dead", "--format", "json").json
    first, second, third = (str(letter["sequence"]) for letter in letters)
    assert tamis("subscriptions", "requeue", "dead").code == 2
    assert tamis("subscriptions", "requeue", "dead", first).out == "1 event will be sent again\n"
    lists = "tamis subscriptions dead-letters dead lists them\n"
    assert tamis("subscriptions", "requeue", "dead", 999_999) == (
        1,
        "0 events will be sent again\n",
        f"999999 is no dead letter of dead; {lists}",
    )
    discarded = tamis("subscriptions", "discard", "dead", second, third, 999_999, second)
    assert discarded == (
        1,
        "2 dead letters deleted\n",
        f"1 of the 3 sequences is no dead letter of dead; {lists}",
    )
    assert tamis("subscriptions", "discard", "dead", second, third) == (
        1,
        "0 dead letters deleted\n",
        f"{second}, {third} are no dead letters of dead; {lists}",
    )
    assert tamis("subscriptions", "dead-letters", "dead").err == "there are no dead letters\n"
    assert tamis("subscriptions", "requeue", "dead", "--all").out == "0 events will be sent again\n"
    tamis("subscriptions", "delete", "dead")


def test_a_filter_is_explained(url: str) -> None:
    done = tamis("explain", "price < 5", '{"price": 7}', "--url", url)
    assert done.code == 1
    assert "price is 7, so price < 5 is false: it needs less than 5" in done.out
    tamis("pub", "-e", '{"price": 4}')
    tamis("sub", "price < 5", "--durable", "cheap", "--from", "earliest", "-n", 1)
    assert "'cheap' matches" in tamis("explain", "-i", "cheap", '{"price": 4}').out
    [found] = tamis("explain", "-i", "cheap", '{"price": 9}', "--format", "json").json
    assert (found["matched"], found["explanation"][:7]) == (False, "'cheap'")
    [found] = tamis("explain", "price < 5", '{"price": 4}', "-u", url, "--format", "json").json
    assert found["matched"] is True
    tamis("subscriptions", "delete", "cheap")


def test_documents_are_explained(url: str, tmp_path: Path) -> None:
    path = tmp_path / "order.xml"
    path.write_bytes(
        "<?xml version='1.0' encoding='UTF-16'?>\n<o><b>1</b><b>2</b></o>\n".encode("utf-16")
    )
    assert tamis("explain", "//b[1] = '2'", path, "-l", "xql", "--url", url).code == 0
    assert tamis("explain", "//b[0] = '2'", path, "-l", "xql", "--url", url).code == 1
    tamis("pub", "--xml", path)
    tamis("sub", "//b[1]", "-l", "xql", "--durable", "seconds", "--from", "earliest", "-n", 1)
    assert "'seconds' matches" in tamis("explain", "-i", "seconds", path).out
    assert "'seconds' does not match" in tamis("explain", "-i", "seconds", "<o><b/></o>").out
    assert "line 1, column 4" in tamis("explain", "-i", "seconds", "<o>").err
    tamis("subscriptions", "delete", "seconds")


@pytest.mark.usefixtures("url")
def test_the_status_is_a_table_or_json() -> None:
    done = tamis("status")
    assert done.code == 0
    assert re.search(r"^ready +yes *$", done.out, re.MULTILINE)
    assert re.search(r"^uptime +\d+:\d\d:\d\d *$", done.out, re.MULTILINE)
    assert re.search(r"^log next +[\d,]+ *$", done.out, re.MULTILINE)
    [status] = tamis("status", "--format", "json").json
    assert status["ready"] is True


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_grant_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "[roles.chief]\nadmin = true\nsee = true\npublish = true\n\n"
        '[roles.reader]\nsee = "price < 10"\n'
    )
    data = tmp_path / "server" / "data"
    checked = ("--data", data, "--policy", policy)
    wrong = tamis("token", "create", "root", "--role", "chef", "--new", *checked)
    assert (wrong.code, wrong.out) == (2, "")
    assert (
        "the policy has no role 'chef', so it would grant nothing; did you mean \"chief\"?\n"
    ) in wrong.err
    assert tamis("token", "create", "x", "--role", "later", "--undefined-roles", *checked).code == 2
    made = tamis("token", "create", "x", "--role", "later", "--undefined-roles", "--new", *checked)
    assert made.code == 0
    unchecked = tamis("token", "create", "y", "--role", "chief", "--data", data)
    assert (unchecked.code, "1 role could not be checked" in unchecked.err) == (0, True)
    first = tamis("token", "create", "root", "--role", "chief", *checked)
    assert (first.code, first.err) == (0, "")
    (tmp_path / "root.token").write_text(first.out)
    monkeypatch.delenv("TAMIS_TOKEN", raising=False)
    with running(tmp_path / "server", policy=policy) as server:
        monkeypatch.setenv("TAMIS_URL", server.url)
        ways = "name its file with --token-file, or set the variable TAMIS_TOKEN"
        for command in (("status",), ("token", "list"), ("pub", "-e", "{}"), ("tail",)):
            refused = tamis(*command)
            assert (refused.code, refused.err) == (2, f"error: a token is required; {ways}\n")
        bad_file = tmp_path / "wrong.token"
        bad_file.write_text("wrong")
        refused = tamis("status", "--token-file", bad_file)
        assert (
            refused.err
            == f"error: the token is not valid; the broker was sent the one in {bad_file}\n"
        )
        monkeypatch.setenv("TAMIS_TOKEN", "wrong")
        sent = "the broker was sent the one in the variable TAMIS_TOKEN"
        for command in (("token", "list"), ("tail",)):
            assert tamis(*command).err == f"error: the token is not valid; {sent}\n"
        monkeypatch.delenv("TAMIS_TOKEN")
        root = ("--token-file", tmp_path / "root.token")
        assert tamis("status", *root).code == 0
        busy = tamis("token", "create", "x", "--data", data)
        assert (busy.code, "Traceback" in busy.err) == (2, False)
        issued = tamis("token", "create", "alice", "--role", "reader", "--lifetime", "1 day", *root)
        refused = tamis("token", "create", "bob", "--role", "raeder", *root)
        assert (refused.code, refused.out) == (2, "")
        assert 'so it would grant nothing; did you mean "reader"?' in refused.err
        later = tamis("token", "create", "bob", "--role", "later", "--undefined-roles", *root)
        assert later.code == 0
        listed = tamis("token", "list", "--format", "json", *root).json
        hers = next(token for token in listed if token["principal"] == "alice")
        assert hers["roles"] == ["reader"]
        assert re.search(r"alice +reader", tamis("token", "list", *root).out)
        tamis("pub", "-e", '{"price": 4}', "-e", '{"price": 40}', *root)
        monkeypatch.setenv("TAMIS_TOKEN", issued.out.strip())
        assert tamis("sub", "price > 0", "--from", "earliest", "-n", 1).json == [{"price": 4}]
        refused = tamis("pub", "-e", '{"price": 5}')
        assert (refused.code, published(refused)) == (1, (0, 0, 1))
        revoked = tamis("token", "revoke", hers["id"], *root)
        assert revoked.out == f"{hers['id']} is revoked\n"
        assert tamis("tail").code == 2


def test_a_misspelt_variable_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_TOKN", "secret")
    done = tamis("status", "--url", url)
    assert done.code == 0
    assert done.err == (
        "warning: the variable TAMIS_TOKN means nothing; did you mean TAMIS_TOKEN?\n"
    )


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sub", "price <"), "(line 1, column 8)\n  price <\n         ^"),
        (("sub", "a = 1", "--lifetime", "soon"), "'soon' is not a duration"),
        (("sub", "a = 1", "--format", "xml"), "'xml' is not one of 'auto', 'table', 'json'"),
        (("sub", "a = 1", "--language", "sql"), "language is 'sql'; it must be 'tamis',"),
        (("sub", "a = 1", "--durable", ""), "durable is ''; it must be a text of 1 to 200"),
        (("sub", "a = 1", "--group", "a/b"), "group is 'a/b'; it must be a text of 1 to 200"),
        (("sub", "a = 1", "--group", "g", "--durable", "d"), "group is the name of a durable"),
        (("sub", "a = 1", "--ordering-key", "a"), "--ordering-key needs group"),
        (("sub", "a = 1", "--group", "g", "--roaming"), "roaming is not for a group"),
        (("pub", "no-such-file"), "no-such-file cannot be read: No such file"),
        (("pub", "file", "-e", "{}"), "give a file or --event, not both"),
        (("pub", "-e", "{}", "--sequence", "4"), "--sequence counts the lines of a --publisher"),
        (("explain", "a = 1"), "give a filter and an event"),
        (("explain", "-i", "no", '{"a": 1}'), "there is no subscription 'no'"),
        (("explain", "a = 1", "{"), "this is not JSON"),
        (("subscriptions", "show", "no"), "there is no subscription 'no'"),
        (("subscriptions", "renew", "no", "soon"), "'soon' is not a duration"),
        (("subscriptions", "update", "no", "a = 1"), "there is no subscription 'no'"),
        (("subscriptions", "shwo"), "No such command 'shwo'"),
        (("token", "create", ""), "error: principal must be a text of at least 1 character"),
        (("token", "revoke", "no"), "there is no token 'no'"),
        (("status", "--url", "127.0.0.1:8765"), "is not the address of a broker"),
        (("status", "--url", "http://127.0.0.1:1"), "cannot be reached: Connection refused"),
        (("tail", "--url", "http://127.0.0.1:1"), "cannot be reached: Connection refused"),
        (("status", "--token-file", "no-such-file"), "no-such-file cannot be read"),
        (("status", "--token-file", os.devnull), "there is no token in /dev/null"),
        (("status", "--ca", "no-such-file"), "no-such-file cannot be read"),
        (("status", "--ca", os.devnull), "there are no certificates in /dev/null"),
        (("status", "--token", "secret"), "No such option: --token"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("url")
def test_a_mistake_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = tamis(*arguments, stdin="")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_and_exit_codes(command: str) -> None:
    done = tamis(command, "--help")
    assert done.code == 0
    assert f"tamis {command}" in done.out.split("Examples")[1]
    assert "Exit code" in done.out
