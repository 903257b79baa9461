"""Provides the common parts of every cluster scenario: a backend with its CA, progress output and storage for figures."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.control import objects
from bench.control.side_by_side import Figures
from bench.others import Others
from bench.processes import backend
from bench.rows import Row
from conformance import children
from conformance.cluster import Cluster
from conformance.network import NODE_IP
from examples.quickstart.certificates import Issued

FOUND = "found.json"


@dataclasses.dataclass(frozen=True)
class Ground:
    home: Path
    """A short path: unix sockets live in it."""
    name: str
    ca: Issued
    other_ca: str
    ports: tuple[int, int]
    """Of the backend."""
    began: float = dataclasses.field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        children.say(f"{self.name} {time.monotonic() - self.began:5.0f} s  {text}")

    def fitting(self) -> str:
        """Returns another edition of the CA."""
        return objects.edition(self.ca)

    @contextlib.contextmanager
    def keeping(self, figures: Figures) -> Iterator[None]:
        """Writes the figures and the CPU of other processes, even after an error."""
        others = Others()
        try:
            yield
        finally:
            report = {"rows": [dataclasses.asdict(row) for row in figures.rows()], "others": others.cores()}
            (self.home / FOUND).write_text(json.dumps(report))


def kept(home: Path) -> tuple[list[Row], float]:
    """Returns the figures that a scenario has stored, if any, and the CPU of other processes."""
    if not (home / FOUND).exists():
        return [], 0.0
    report = json.loads((home / FOUND).read_text())
    return [Row(**row) for row in report["rows"]], report["others"]


@contextlib.asynccontextmanager
async def ground(cluster: Cluster, home: str, name: str) -> AsyncIterator[Ground]:
    await cluster.controller_manager.stop()  # nothing here needs it, and it would watch everything
    ca, other = Issued("bench CA"), Issued("another CA")
    Issued("*.bench.example", ca).write(cluster.scratch, "backend")
    with backend(cluster.scratch / "backend.crt", cluster.scratch / "backend.key", NODE_IP) as (_, ports):
        yield Ground(Path(home), name, ca, other.pem.decode(), ports)
