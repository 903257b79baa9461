"""`make upgrade FROM=REF`: a gateway on a folder goes from another version to this commit and back, while clients ask.

Each version is its wheel in a virtual environment of its own. No request may fail, and what the statuses say stays as it is,
down to the times of their conditions. `python -m conformance upgrade` does the same in a cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from release.versions import Version, version
from tests.backends import backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop
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
        # No variable of Python's: nothing of this repository is to be found by either version.
        lasthop = Lasthop(Path(folder), "--concurrency", "2", "--handover", "120")
        with contextlib.closing(lasthop):
            try:
                return upgraded(lasthop, answering.port, before, after)
            except Exception:
                print(lasthop.log)
                raise


def upgraded(lasthop: Lasthop, port: int, before: Version, after: Version) -> int:
    use(lasthop, before)
    lasthop.standard()
    lasthop.write(
        "objects.yaml",
        docs.config_map("ca", CA.pem),
        *docs.hop("api", port, docs.policy("api", "api.example", "ca")),
        *docs.hop("missing", port, docs.policy("missing", "api.example", "nowhere")),
    )
    lasthop.start()
    lasthop.until_status("missing", 500)
    until(lasthop.settled)
    kept, failed = statuses(lasthop), 0
    for keep_alive in (True, False):
        with Load(lasthop, "api", CLIENTS, keep_alive=keep_alive) as load:
            for step, (target, restart) in {
                "SIGTERM, then the new version": (after, again),
                "SIGTERM, then the old one again": (before, again),
                "the new version with --replace": (after, replacing),
                "the old one with --replace": (before, replacing),
            }.items():
                envoys = lasthop.envoys()
                use(lasthop, target)
                restart(lasthop)
                until(lasthop.settled)
                load.more(100)
                until(lambda: len(lasthop.envoys()) == 1, "an Envoy that was replaced has ended")
                same = "the same Envoy" if lasthop.envoys() == envoys else "another Envoy"
                changed = differing(kept, statuses(lasthop))
                print(f"{'ok      ' if not changed else 'FAILED  '} {step}: {same}{''.join(f'; {each}' for each in changed)}")
                failed += bool(changed)
        answered = {(200, "backend")}
        lost = [taken for taken in load.taken if taken.what not in answered]
        print(
            f"{len(load.taken):,} requests on {'kept' if keep_alive else 'new'} connections, {len(lost)} failed {lost[:3] or ''}"
        )
        failed += bool(lost)
    return 1 if failed else 0


def use(lasthop: Lasthop, chosen: Version) -> None:
    lasthop.executable = [chosen.program]


def again(lasthop: Lasthop) -> None:
    assert lasthop.stop() == 0
    lasthop.start()


def replacing(lasthop: Lasthop) -> None:
    first, args = lasthop.process, lasthop.args
    assert first
    lasthop.args = (*args, "--replace")
    lasthop.start()
    lasthop.args = args
    assert first.wait(10) == 0


Statuses = dict[str, Any]


def statuses(lasthop: Lasthop) -> Statuses:
    return {f"{kind} {path}": each.get("status") for kind in KINDS for path, each in lasthop.objects(kind).items()}


def differing(kept: Statuses, found: Statuses) -> list[str]:
    """Returns what is another status now, in words. Markers of the test itself come and go."""
    names = {name for name in kept.keys() | found.keys() if "marker-" not in name}
    return [
        f"{name} was {json.dumps(kept.get(name))}, is {json.dumps(found.get(name))}"
        for name in sorted(names)
        if kept.get(name) != found.get(name)
    ]


if __name__ == "__main__":
    sys.exit(main())
