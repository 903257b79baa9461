"""`make promtool`: Prometheus' own tool on the metrics of a real gateway, on the alert rules and on their tests.

It is $PROMTOOL, or the one on the PATH, or built by Go into the user's cache folder, once: about six minutes on two cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from tests.backends import backend, until
from tests.proxy.certs import issued
from tests.proxy.lasthop import Lasthop
from tests.proxy.scrape import complete, write

MONITORING: Final = Path(__file__).parents[1] / "deploy/monitoring"
VERSION: Final = "v0.315.0"
"""Version of the Go module, for Prometheus 3.15."""
PACKAGE: Final = "github.com/prometheus/prometheus/cmd/promtool"


def promtool() -> str:
    return os.environ.get("PROMTOOL") or shutil.which("promtool") or str(_built())


def _built() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lasthop" / f"promtool-{VERSION}"
    target = cache / "promtool"
    if target.exists():
        return target
    go = shutil.which("go") or sys.exit("promtool is not on the PATH, and building it needs Go: install one of them")
    print(f"Building promtool {VERSION} into {cache}, once", flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "auto"}
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        # A module of its own: `go install` refuses one with replace directives. Service discovery would be most of the work.
        for command in (
            ["mod", "init", "scratch"],
            ["get", f"{PACKAGE}@{VERSION}"],
            ["build", "-tags", "remove_all_sd", "-o", "promtool", PACKAGE],
        ):
            subprocess.run([go, *command], cwd=scratch, env=environment, check=True)
        (Path(scratch) / "promtool").rename(target)
    return target


def scrape() -> bytes:
    """Returns the metrics of a gateway with backends of every manner, after some requests."""
    with ExitStack() as stack:
        lasthop = stack.enter_context(closing(Lasthop(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-"))))))
        contexts = (issued(), issued("old.example"), None)
        good, other, plain = (stack.enter_context(backend(context)) for context in contexts)
        write(lasthop, good, other, plain)
        until(lambda: complete(lasthop), "what happened is counted")
        return lasthop.ask("/metrics")[1]


def main() -> int:
    tool = promtool()
    failed = 0
    for title, command, stdin in (
        ("metrics", ["check", "metrics"], scrape()),
        ("rules", ["check", "rules", str(MONITORING / "alerts.yaml")], b""),
        ("tests of the rules", ["test", "rules", str(MONITORING / "alerts.test.yaml")], b""),
    ):
        done = subprocess.run([tool, *command], input=stdin, capture_output=True, check=False)
        failed += bool(done.returncode)
        print(f"{title}: {'failed' if done.returncode else 'ok'}", (done.stdout + done.stderr).decode(), sep="\n", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
