"""A refusal proves nothing unless a valid certificate is accepted over the same kind of route and Gateway."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from lasthop_judge import trial
from lasthop_judge.adapters import ADAPTERS
from lasthop_judge.cases import ALL
from lasthop_judge.certificates import Issuer
from lasthop_judge.files import FilesTestbed
from lasthop_judge.model import Case, CaseVerdict, Expected, GatewayRole, Json, Outcome, RouteType
from lasthop_judge.objects import CANARY, RunSettings
from lasthop_judge.run import choose, judge, with_controls
from lasthop_judge.trial import Patience
from tests.ports import free_port
from tests.servers import server

CASES = {case.id: case for case in ALL}
BRIEF = Patience(first=2, passes=0.5, refused=0.5, change=0.5, status=0.5)
REFUSING = [case for case in ALL if case.only_refuses]


class Gateway(FilesTestbed):
    """Serves the canaries at one port and everything else at another, and has a backend that never sees a connection."""

    canary_port, other_port = 0, 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, RunSettings("judge", "x", ADAPTERS["none"], Issuer(), {}, {}), 0)

    async def records(self, key: str) -> list[Json]:
        return []

    async def serve(self, key: str, serving: Json) -> None:
        pass

    def address(self, role: GatewayRole, listener: str) -> tuple[str, int]:
        return "127.0.0.1", self.canary_port if listener == f"tcp-{CANARY}" else self.other_port


def refuse_all_but_canaries(connection: socket.socket) -> None:
    request = connection.recv(65536)
    body = b'{"backend": "canary.http"}' if b" /judge-canary" in request else b"no"
    status = b"200 OK" if b" /judge-canary" in request else b"500 No"
    connection.sendall(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)


def serve_a_canary(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n{"backend": "canary.http"}')


def judged(gateway: Gateway, *ids: str) -> dict[str, CaseVerdict]:
    cases = with_controls([CASES[id] for id in ids])
    chosen = choose(cases, None, gateway.settings)
    verdicts = asyncio.run(judge(gateway, gateway.settings, chosen, BRIEF, lambda *_: None))
    return {verdict.case.id: verdict for verdict in verdicts}


def test_a_gateway_that_refuses_everything_passes_nothing(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with server(None, refuse_all_but_canaries) as gateway.other_port:
        verdicts = judged(gateway, "names/other", "invalid/missing", "protocols/client-certificate-ca")
    assert {id: verdict.outcome for id, verdict in verdicts.items()} == {
        "names/other": Outcome.NOT_RUN,
        "invalid/missing": Outcome.NOT_RUN,
        "protocols/client-certificate-ca": Outcome.NOT_RUN,
        "names/exact": Outcome.FAIL,
        "protocols/client-certificate": Outcome.FAIL,
    }
    assert all(verdict.unserved for verdict in verdicts.values() if verdict.outcome is Outcome.NOT_RUN)


@pytest.mark.parametrize("case", REFUSING, ids=lambda case: case.id)
def test_every_refusal_has_a_control(case: Case) -> None:
    selected = with_controls([case])
    control = selected[-1]
    assert (control.via, control.role, control.expect) == (case.via, case.role, Expected.PASSES)
    assert len(selected) == 2 and with_controls(selected) == selected


def test_the_suite_is_its_own_control() -> None:
    assert with_controls(ALL) == ALL


def test_a_stream_whose_listener_never_opens_is_not_run(tmp_path: Path) -> None:
    """The canary has its own listener. A gateway may leave the case's listener closed because of an invalid policy."""
    gateway = Gateway(tmp_path)
    gateway.other_port = free_port()
    with server(None, serve_a_canary) as gateway.canary_port:
        verdicts = judged(gateway, "protocols/tcp-ca", "protocols/tcp-invalid")
    assert "accepts no connection" in verdicts["protocols/tcp-ca"].why
    assert verdicts["protocols/tcp-invalid"].notes == ("the listener accepts no connection",)


def test_only_the_first_cases_wait_for_a_gateway_that_serves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    gateway = Gateway(tmp_path)
    gateway.other_port = free_port()
    ids = [case.id for case in ALL if case.via is RouteType.HTTP and case.id.startswith("names/")][:40]
    old = trial.Trial._ask_canary

    async def counted(self: trial.Trial) -> object:
        asked.append(self.case.id)
        return await old(self)

    monkeypatch.setattr(trial.Trial, "_ask_canary", counted)
    verdicts = judged(gateway, *ids)
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.NOT_RUN}
    assert [id for id in ids if asked.count(id) == 1] == ids[24:]
