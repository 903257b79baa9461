"""Queries a running gateway over its admin socket."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

import click

from lasthop.base.api.addresses import with_port
from lasthop.base.api.documents import Json
from lasthop.cli.views.command_view import Size
from lasthop.edge import unix_http

if TYPE_CHECKING:
    from lasthop.base.api.meta import Key
    from lasthop.edge.probe.result import ProbeResult
    from lasthop.engine.memory.record import Record
    from lasthop.engine.outputs.audit.audit import Audit
    from lasthop.engine.plan.finding import Finding
    from lasthop.engine.plan.request import Request

T = TypeVar("T")
TIMEOUT: Final = 10.0
PROBE_TIMEOUT: Final = 120.0
"""Timeout of a request for which the gateway connects to backends that may not answer."""
MISDIRECTED: Final = 421
"""Status of a gateway's answer to a request at an address that other gateways may share; the body names the right address."""
POLL: Final = 0.5
"""Seconds between two polls of `follow`."""


class AdminSocketView:
    where = "the running gateway"
    home = ""
    observes = True

    def __init__(self, path: unix_http.Endpoint, namespace: str = "") -> None:
        self._path, self.namespace = path, namespace
        self._known = isinstance(path, Path)
        """Whether a gateway certainly listens there: any program may have an address from the command line."""

    @property
    def address(self) -> str:
        return str(self._path) if isinstance(self._path, Path) else with_port(*self._path)

    def ask(self, path: str, timeout: float = TIMEOUT, /, **query: str) -> Any:
        if not self._known:
            about = self._query("/api/about", timeout)
            if not isinstance(about, dict) or not {"version", "where"} <= about.keys():
                raise self._not_a_gateway()
            self._known = True
        return self._query(f"{path}?{urlencode(query)}" if query else path, timeout)

    def change(self, path: str, timeout: float = TIMEOUT, /, **query: str) -> Any:
        return self._query(f"{path}?{urlencode(query)}", timeout, "POST")

    def _query(self, path: str, timeout: float, method: str = "GET") -> Any:
        try:
            status, body = unix_http.get(self._path, path, timeout, method)
        except (OSError, unix_http.BadResponse) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise click.ClickException(f"the gateway does not answer on {self.address}: {why}") from error
        if status not in (200, MISDIRECTED) and not self._known:
            raise self._not_a_gateway()
        if status != 200:
            raise click.ClickException(body.decode(errors="replace").strip() or f"the gateway answers {status}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self._not_a_gateway() from None

    def _not_a_gateway(self) -> click.ClickException:
        return click.ClickException(
            f"{self.address} is not the admin address of a gateway; lasthop ps lists those of this machine"
        )

    async def origin(self) -> str:
        return str(self.ask("/api/about")["where"])

    async def record(self, controller_namespace: str = "") -> Record:
        from lasthop.engine.memory.record import Record

        return _read(self.ask("/api/changes"), Record)

    async def size(self) -> Size:
        return Size(self.ask("/api/count", namespace=self.namespace)["objects"])

    async def objects(self, *kinds: str) -> list[Json]:
        if not kinds:
            documents: list[Json] = self.ask("/api/objects")
            return documents
        return [document for kind in kinds for document in self.ask("/api/objects", kind=kind)]

    async def names(self, kind: str) -> list[tuple[str, str]]:
        metadata = (document["metadata"] for document in await self.objects(kind))
        return [(item.get("namespace", ""), item["name"]) for item in metadata]

    async def namespaces(self) -> list[str]:
        return [name for _, name in await self.names("Namespace")]

    async def findings(self) -> list[Finding]:
        from lasthop.base.api.meta import Key
        from lasthop.engine.plan.finding import Finding

        decoded = ({**item, "object": Key.parse(item["object"] or "")} for item in self.ask("/api/findings"))
        return [_read(item, Finding) for item in decoded]

    def broken_objects(self, findings: list[Finding]) -> dict[Key, str]:
        from lasthop.edge.sources.files.report import broken_objects

        return broken_objects(findings)

    def unseen(self, finding: Finding) -> Finding | None:
        return None

    async def problems(self) -> tuple[str, ...]:
        return tuple(self.ask("/api/readiness")["problems"])

    async def hidden(self) -> tuple[str, ...]:
        return ()

    async def audit(self) -> Audit:
        from lasthop.engine.outputs.audit.audit import read

        return read(self.ask("/api/audit"))

    async def explain(self, key: Key) -> Json | None:
        explanation: Json = self.ask("/api/explain", **key._asdict())
        return explanation

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        import msgspec

        encoded = msgspec.json.encode(request).decode()
        answers: list[Json] = self.ask("/api/explain-request", request=encoded, gateway=gateway)
        return answers

    async def probe(self, key: Key, address: str) -> ProbeResult:
        from lasthop.edge.probe.result import ProbeResult

        return _read(self.ask("/api/probe", PROBE_TIMEOUT, **key._asdict(), address=address), ProbeResult)

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        while True:
            time.sleep(POLL)  # noqa: ASYNC251  # there is no event loop, see `without_loop`
            await changed()


def _read(written: Any, type: type[T]) -> T:
    import msgspec

    return msgspec.convert(written, type)
