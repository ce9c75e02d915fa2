"""A Kafka server in KRaft mode, from its jars, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from waiting import eventually

POM = Path(__file__).with_name("pom.xml")
SECONDS_TO_START = 120

CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{more}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/log
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""

TLS = """
ssl.keystore.type=PEM
ssl.keystore.location={keys}
"""


@contextmanager
def running_kafka(
    jars: list[Path], folder: Path, certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Run a server; yield its address, which takes TLS if there is a certificate with its key."""
    port, controller, secure = free_port(), free_port(), free_port()
    config = folder / "server.properties"
    more = f",SSL://127.0.0.1:{secure}" if certificate else ""
    text = CONFIG.format(port=port, controller=controller, folder=folder, more=more)
    if certificate is not None:
        keys = folder / "keys.pem"
        keys.write_text("".join(path.read_text() for path in reversed(certificate)))
        text += TLS.format(keys=keys)
    config.write_text(text)
    java = [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        ":".join(map(str, jars)),
    ]
    cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    storage = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    subprocess.run(storage, check=True, capture_output=True)  # noqa: S603
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)  # noqa: S603
        try:
            wait_for_port(port, server)
            yield f"127.0.0.1:{secure if certificate else port}"
        finally:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    def listens() -> bool:
        assert server.poll() is None, "the Kafka server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    eventually(listens, "the Kafka server did not start", timeout=SECONDS_TO_START)
