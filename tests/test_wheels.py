"""Each extra, installed from the wheel into a fresh environment, runs its quick start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from waiting import eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TIMEOUT_SECONDS = 1_800.0
"""Long, because the machine may be busy with other tests."""
PYTHON_BLOCK = re.compile(r"^```python\n(>>> .*?)^```$", re.MULTILINE | re.DOTALL)


class Environment:
    """A virtual environment with Tamis and one of its extras, away from the checkout."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)  # noqa: S603
        requirement = f"{wheel}[{extra}]" if extra else str(wheel)
        python = str(self.bin / "python")
        # `make setup` installs uv, which installs the same as pip in a fraction of the time.
        uv = Path(sys.executable).with_name("uv")
        command = [str(uv), "pip", "install", "--python", python]
        pip = [python, "-m", "pip", "install"]
        install = [*(command if uv.exists() else pip), "--quiet", requirement]
        subprocess.run(install, check=True, timeout=TIMEOUT_SECONDS)  # noqa: S603

    def start(self, program: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """Start a program of the environment, in a folder of its own."""
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)
        # The first program compiles modules for all.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]  # noqa: S603
            [self.bin / program, *arguments],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def run(self, program: str, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run a program of the environment; return its output, or its errors if it fails."""
        with self.start(program, *arguments, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(stdin, timeout=TIMEOUT_SECONDS)
        assert process.returncode == code, out + err
        return err if code else out

    def run_doctests(self, text: str) -> None:
        """Run the examples of a page."""
        page = self.folder / "page.md"
        page.write_text(text, encoding="utf-8")
        options = ["-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE"]
        self.run("python", "-m", "doctest", *options, page.name)

    def packages(self) -> set[str]:
        listed = json.loads(self.run("python", "-m", "pip", "list", "--format=json"))
        return {one["name"].lower() for one in listed}

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run a broker; give its address."""
        with self.start("tamis", "serve", "--set=port=0", "--set=data=data") as server:
            assert server.stdout is not None
            try:
                yield server.stdout.readline().rpartition(" ")[2].strip()
            finally:
                server.terminate()
        assert server.returncode == 0


Install = Callable[[str], Environment]


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Give a function that returns an environment with an extra."""
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)  # noqa: S603
    [wheel] = dist.glob("*.whl")
    return cache(lambda extra: Environment(tmp_path_factory.mktemp(extra or "base"), wheel, extra))


def python_blocks(page: str) -> list[str]:
    return PYTHON_BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def check_round_trip(server: Environment, client: Environment) -> None:
    """Publish to a broker and receive, with the command line."""
    with server.serving() as url:
        subscriber = client.start("tamis", "sub", "price < 5", "--url", url, "--count", "1")
        show = ["status", "--url", url, "--format", "json"]
        eventually(lambda: json.loads(client.run("tamis", *show))["subscriptions"] == 1)
        event = '{"symbol": "ACME", "price": 4.5}'
        client.run("tamis", "pub", "--url", url, "-e", event)
        out, err = subscriber.communicate(timeout=TIMEOUT_SECONDS)
        assert json.loads(out) == json.loads(event), err


def test_the_base_matches_in_python_and_in_the_shell(install: Install) -> None:
    base = install("")
    base.run_doctests(python_blocks("README.md")[0])
    events = '{"price": 4}\n{"price": 6}\n'
    matched = base.run("tamis", "match", "price < 5", "--only-matched", stdin=events)
    assert json.loads(matched)["event"] == {"price": 4}
    others = {"httpx", "joserfc", "prometheus-client", "pyspark", "uvicorn", "websockets"}
    assert not base.packages() & others
    message = base.run("tamis", "serve", code=2)
    assert message.endswith("pip install 'tamis[broker]'\n")


def test_the_client_talks_to_a_broker(install: Install) -> None:
    check_round_trip(install("broker"), install("client"))
    assert "uvicorn" not in install("client").packages()


def test_the_broker_serves_and_runs_inside_a_program(install: Install) -> None:
    check_round_trip(install("broker"), install("broker"))
    install("broker").run_doctests(python_blocks("README.md")[1])


def test_spark_compiles_and_matches(install: Install) -> None:
    blocks = "\n".join(python_blocks("docs/how-to/match-on-spark.md")[:5])
    install("spark").run_doctests(blocks.replace("local[2]", "local[1]"))
    assert "uvicorn" not in install("spark").packages()


def test_xml_documents_are_matched(install: Install) -> None:
    xml = install("xml")
    (xml.folder / "order.xml").write_text("<order><sku>a</sku></order>", encoding="utf-8")
    found = xml.run("tamis", "match", "--language", "xql", "order/sku", "order.xml")
    assert json.loads(found) == {"document": "order.xml", "filters": ["1"]}
    assert not xml.packages() & {"httpx", "pyspark", "uvicorn", "websockets"}


def test_the_kafka_sink_has_what_it_imports(install: Install) -> None:
    names = "import confluent_kafka; from tamis.spark.connectors.kafka_sink import KafkaSink"
    install("kafka").run("python", "-c", names)


def test_all_is_all(install: Install) -> None:
    check_round_trip(install("all"), install("all"))
    names = "import tamis.spark; from tamis import *; print(Engine, connect, open_bus)"
    install("all").run("python", "-c", names)
