"""Links over TLS: a broker that is dialled shows a certificate, which the dialler has to trust."""

from __future__ import annotations

import ssl
from pathlib import Path

from broker.server import ServerProcess, make_certificate, running
from waiting import eventually

from .brokers import QUICK
from .test_link_rights import events_until, link_of


def test_a_link_over_tls_passes_events_both_ways_if_the_certificate_is_trusted(
    tmp_path: Path,
) -> None:
    certificate, key = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)
    secure = {"tls_certificate": certificate, "tls_key": key}
    hub_settings = {"name": "hub", "accept_peers": True, **secure, **QUICK}
    with running(tmp_path / "hub", **hub_settings) as hub:
        assert hub.url.startswith("https://")
        branch = ServerProcess(tmp_path / "branch", {"name": "branch", **QUICK})
        branch.settings["peers"] = f"{hub.url} ca={certificate}"
        with branch.start().client() as near, hub.client(verify=trusting) as far:
            try:
                eventually(lambda: link_of(near).get("connected"))
                for client in (near, far):
                    client.post("/v1/subscriptions", json={"id": "all", "filter": "n >= 0"})
                eventually(lambda: link_of(near).get("routes") and link_of(far).get("routes"))
                for number, client in enumerate((near, far)):
                    client.post("/v1/events", json={"n": number})
                events_until(near, {"n": 1})
                events_until(far, {"n": 0})
            finally:
                branch.kill()


def test_a_link_is_not_made_to_whom_the_dialler_does_not_trust(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = make_certificate(tmp_path / "other")
    settings = {"name": "hub", "accept_peers": True, "tls_certificate": certificate, "tls_key": key}
    with running(tmp_path / "hub", **settings, **QUICK) as hub:
        peers = f"{hub.url} ca={other}"
        with (
            running(tmp_path / "branch", peers=peers, **QUICK) as branch,
            branch.client() as client,
        ):
            eventually(lambda: "certificate verify failed" in str(link_of(client)))
            assert not link_of(client).get("connected")
        with hub.client(verify=ssl.create_default_context(cafile=certificate)) as client:
            assert link_of(client) == {}
