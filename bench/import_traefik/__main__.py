"""Presents wrong certificates to a real Traefik, and to Lasthop with the imported objects: `make import-traefik`.

bench/import_traefik/go  ->  traefik (built once)  <─watch─  the rows' IngressRoutes and ServersTransports
                                                                    └─ lasthop import ─>  lasthop run
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from bench.import_traefik.rows import ASKING, ROWS, accepted_before, accepted_now, documents
from bench.import_traefik.traefik import PROGRAM, traefik
from conformance.build import build_one
from tests.backends import backend, until
from tests.importers.end_to_end import CERTIFICATES, GOOD, imported, status, surroundings
from tests.proxy.lasthop import Lasthop

STATICS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "insecureSkipVerify": {"serversTransport": {"insecureSkipVerify": True}},
}
Seen = dict[tuple[str, str], bool]


def main() -> int:
    program = build_one(PROGRAM)
    console = Console(width=200)
    wrong = 0
    for title, static in STATICS.items():
        levels, before, now = _compared(program, static)
        table = Table("row", "was", *CERTIFICATES, "is now", title=f"static configuration: {title}")
        for row, (old, new) in levels.items():
            cells = []
            for name in CERTIFICATES:
                expected = (name in accepted_before(row, old), name in accepted_now(row, new))
                seen = (before[row, name], now[row, name])
                wrong += seen != expected
                cells.append(f"{_word(seen[0])}/{_word(seen[1])}{'' if seen == expected else ' [red]WRONG[/red]'}")
            table.add_row(row, old, *cells, new)
        console.print(table)
    console.print(f"Traefik/Lasthop for each certificate; {wrong} not as the report says")
    return 1 if wrong else 0


def _compared(program: Path, static: dict[str, Any]) -> tuple[dict[str, tuple[str, str]], Seen, Seen]:
    """Returns each row's levels in the report, and who accepted which certificate: Traefik, then Lasthop."""
    with contextlib.ExitStack() as stack:
        roots = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp"))) for _ in range(2)]
        server = stack.enter_context(backend(CERTIFICATES[GOOD].server_context()))
        objects = [*documents(), *surroundings(ROWS, server.port)]
        old = stack.enter_context(traefik(program, roots[0], objects, static))
        until(lambda: status(old, "verified") == 200, "Traefik serves")
        lasthop = stack.enter_context(contextlib.closing(Lasthop(roots[1])))
        (roots[1] / "static.yaml").write_text(yaml.safe_dump({"entryPoints": {"web": {"address": ":80"}}, **static}))
        hops = imported("traefik", objects, ASKING, lasthop, "--traefik-static", roots[1] / "static.yaml")
        lasthop.start(ready=False)
        until(lasthop.ready, "lasthop is ready")
        before: Seen = {}
        now: Seen = {}
        for name, certificate in CERTIFICATES.items():
            # Connections to the backend that are open were verified when they were made; only new ones are tried.
            server.context = certificate.server_context()
            server.drop()
            before |= {(row, name): _accepted(old, row) for row in ROWS}
            server.drop()
            now |= {(row, name): _accepted(lasthop.port, row) for row in ROWS}
        return {row: (hops[row]["old"], hops[row]["new"]) for row in ROWS}, before, now


def _accepted(port: int, row: str) -> bool:
    """Whether a request reaches the backend. A host that is not served proves nothing about certificates."""
    seen = status(port, row)
    assert seen in (200, 500, 502, 503), f"{row}: {seen}"
    return seen == 200


def _word(accepted: bool) -> str:
    return "yes" if accepted else "no"


if __name__ == "__main__":
    sys.exit(main())
