"""Lasthop in files mode with a real Envoy, judged by `lasthop judge`, status included."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lasthop.base.api.bundle import supported_features
from lasthop_judge.adapters import ADAPTERS
from lasthop_judge.certificates import Issuer
from lasthop_judge.files import LOOPBACK, BackendProcess, FilesTestbed, backend_process
from lasthop_judge.model import Case, CaseVerdict, Json
from lasthop_judge.objects import RunSettings, gateways, servings, wanted_listeners
from lasthop_judge.run import choose, judge
from lasthop_judge.trial import Patience
from tests.backends import until
from tests.ports import free_port
from tests.proxy.lasthop import Lasthop

PATIENCE = Patience(first=90, passes=45, refused=20, change=60, status=30)
"""On a busy machine; what is wrong is wrong at once."""


class LasthopTestbed(FilesTestbed):
    """A folder whose statuses come from the running gateway."""

    has_status = True

    def __init__(self, lasthop: Lasthop, settings: RunSettings, control: int) -> None:
        super().__init__(lasthop.folder, settings, control)
        self._lasthop = lasthop
        self._told: tuple[float, dict[str, Json]] = (0.0, {})
        self._reading = threading.Lock()

    async def status(self, kind: str, name: str) -> Json:
        assert kind == "BackendTLSPolicy"
        return (await asyncio.to_thread(self._policies)).get(f"{self.settings.namespace}/{name}", {})

    def _policies(self) -> dict[str, Json]:
        with self._reading:  # every case sends this query, and one result serves them all
            read_at, policies = self._told
            if time.monotonic() - read_at > 0.2:
                policies = self._lasthop.objects("BackendTLSPolicy")
                self._told = (time.monotonic(), policies)
            return policies


def make_settings(cases: Sequence[Case], backend: BackendProcess, issuer: Issuer) -> RunSettings:
    settings = RunSettings(
        "judge", "lasthop", ADAPTERS["lasthop"], issuer, backend.ports, {}, LOOPBACK, bind="127.0.0.1", dated=True
    )
    wanted = wanted_listeners(cases, gateways(settings, cases))
    return dataclasses.replace(settings, listeners={listener: free_port() for listener in wanted})


def judged(cases: Sequence[Case], patience: Patience = PATIENCE, executable: Sequence[str | Path] = ()) -> list[CaseVerdict]:
    """Runs Lasthop on the objects of these cases and returns their verdicts. `executable` is another Lasthop."""
    issuer = Issuer()
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as root, backend_process(servings(cases), issuer) as backend:
        settings = make_settings(cases, backend, issuer)
        chosen = choose(cases, supported_features(()), settings)
        with contextlib.closing(Lasthop(Path(root))) as lasthop:
            if executable:
                lasthop.executable = [*executable]
            testbed = LasthopTestbed(lasthop, settings, backend.control)
            testbed.write(chosen.cases)
            lasthop.start(ready=False)
            until(lasthop.ready, "lasthop is ready")
            return asyncio.run(judge(testbed, settings, chosen, patience, lambda *_: None))
