"""Upgrades a gateway on a folder from another version to this commit and back, under load: `make upgrade FROM=REF`.

Each version is its wheel, in its own virtual environment or in place of the other one. No request may fail, and all
statuses stay unchanged. `python -m conformance upgrade` does the same in a cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from release.installed import installed, pip_install
from release.versions import Version, version
from tests.backends import backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Conditions, Lasthop, conditions
from tests.proxy.load import Load

KINDS = ("GatewayClass", "Gateway", "HTTPRoute", "BackendTLSPolicy")
CLIENTS = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release.upgrade")
    parser.add_argument("before", help="the commit, tag or branch to upgrade from")
    parser.add_argument("after", nargs="?", default="HEAD", help="the one to upgrade to (HEAD)")
    arguments = parser.parse_args()
    before, after = version(arguments.before), version(arguments.after)
    with tempfile.TemporaryDirectory(prefix="lh-") as folder, backend(issued()) as answering:
        live = Path(folder) / "venv"
        installed(before.wheel, live)
        with contextlib.closing(Lasthop(Path(folder), "--concurrency", "2", "--handover", "120")) as lasthop:
            try:
                return upgraded(lasthop, answering.port, steps(before, after, live))
            except Exception:
                print(lasthop.log)
                raise


class Step(NamedTuple):
    words: str
    program: Path
    restart: Callable[[Lasthop], None]
    install: Path | None = None
    """A wheel that replaces what the program is made of, while that runs."""


def steps(before: Version, after: Version, live: Path) -> list[Step]:
    program = live / "bin" / "lasthop"
    return [
        Step("the new version from a folder of its own: SIGTERM, start", after.program, again),
        Step("the old one again: SIGTERM, start", before.program, again),
        Step("the new version with --replace", after.program, replacing),
        Step("the old one with --replace", program, replacing),
        Step("pip install of the new version, SIGHUP", program, reloading, after.wheel),
        Step("pip install of the old one, SIGTERM, start", program, again, before.wheel),
    ]


def upgraded(lasthop: Lasthop, port: int, todo: list[Step]) -> int:
    lasthop.executable = [todo[-1].program]
    lasthop.standard()
    lasthop.write(
        "objects.yaml",
        docs.config_map("ca", CA.pem),
        *docs.hop("api", port, docs.policy("api", "api.example", "ca")),
        *docs.hop("missing", port, docs.policy("missing", "api.example", "nowhere")),
    )
    lasthop.start()
    lasthop.until_status("missing", 500)
    connected = functools.partial(says, lasthop, "BackendTLSPolicy", "shop/api", "BackendConnected", "True")
    failed = 0
    for keep_alive in (True, False):
        with Load(lasthop, "api", CLIENTS, keep_alive=keep_alive) as load:
            until(connected, "what the proxy sees is in the status")
            kept = statuses(lasthop)
            for step in todo:
                envoys = lasthop.envoys()
                if step.install:
                    pip_install(step.program.parent / "python", "--no-deps", "--force-reinstall", step.install)
                lasthop.executable = [step.program]
                step.restart(lasthop)
                load.more(100)
                until(lambda: len(lasthop.envoys()) == 1, "an Envoy that was replaced has ended")
                until(connected, "what the proxy sees is in the status")
                same = "the same Envoy" if lasthop.envoys() == envoys else "another Envoy"
                changed = differing(kept, statuses(lasthop))
                result = "FAILED  " if changed else "ok      "
                print(f"{result} {step.words} ({same}); statuses: {'; '.join(changed) or 'as before'}")
                failed += bool(changed)
        lost = [taken for taken in load.taken if taken.what != (200, "backend")]
        kind = "kept" if keep_alive else "new"
        print(f"{len(load.taken):,} requests on {kind} connections, {len(lost)} failed (promised: 0) {lost[:3] or ''}")
        failed += bool(lost)
    return 1 if failed else 0


def again(lasthop: Lasthop) -> None:
    assert lasthop.stop() == 0
    lasthop.start()


def replacing(lasthop: Lasthop) -> None:
    first, args = lasthop.process, lasthop.args
    assert first
    lasthop.args = (*args, "--replace")
    lasthop.start()
    lasthop.args = args
    assert first.wait(120) == 0  # the gateway before answers until the next one has started


def reloading(lasthop: Lasthop) -> None:
    def started() -> int:
        return lasthop.log.count('"event": "running"')

    assert lasthop.process
    before = started()
    lasthop.process.send_signal(signal.SIGHUP)
    until(lambda: started() > before, "it has started anew")
    until(lasthop.ready)


Statuses = dict[tuple[str, str], Conditions]


def statuses(lasthop: Lasthop) -> Statuses:
    """Without the times of conditions: of a folder's objects they are kept in memory, and begin with the process."""
    return {
        (kind, path): conditions(obj) for kind in KINDS for path, obj in lasthop.objects(kind).items() if "marker-" not in path
    }


def says(lasthop: Lasthop, kind: str, path: str, condition: str, status: str) -> bool:
    state = lasthop.conditions(kind, path).get(condition)
    return state is not None and state[0] == status


def differing(kept: Statuses, after: Statuses) -> list[str]:
    return [
        f"{' '.join(key)} was {kept.get(key)}, is {after.get(key)}"
        for key in sorted(kept.keys() | after.keys())
        if kept.get(key) != after.get(key)
    ]


if __name__ == "__main__":
    sys.exit(main())
