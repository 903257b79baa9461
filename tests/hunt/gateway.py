"""Plays a history against `lasthop run` with a real Envoy, and compares what the backends see with what the oracle allows."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.backends import Backend, backend
from tests.hunt.folder import Folder
from tests.hunt.history import ALL, Edit, History, Step
from tests.hunt.oracle import SERVICES, Oracle
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop

PATIENCE = 60.0
"""Seconds until what should happen at once counts as never, on a machine that has much else to do."""
PAUSE = 0.01
AWAY = 1.0
"""Seconds for which a folder is away: nothing tells when that has been noticed."""
LOST = {"all": ("",), "memory": ("**/verification.json",), "contents": ("**/files.sqlite*",)}
NOT_COMPARED = {
    *("lastTransitionTime", "creationTimestamp", "observed", "generation", "observedGeneration", "resourceVersion"),
    *("since", "written", "seen", "traffic", "uid", "changes", "last_handshake", "certificates", "standing"),
    # The time and folder of a report, and the record of that folder.
    *("madeAt", "where", "origin", "inputs", "record", "changedBy", "changedObjects", "observedTlsVersions"),
    "ready",  # It follows from the conditions, including conditions of traffic.
}
REMEMBERED = "NoLongerVerified"
OBSERVED = {"HandshakesSucceed", "HandshakeFailed", "ConnectionsSucceed", "ConnectionFailed", "RequestsFailed", "NotTried"}
"""Reasons that follow from traffic."""


class Violation(Exception):
    """A violation of a rule."""


class Site:
    def __init__(self, root: Path, linked: bool, backends: dict[str, Backend], patience: float) -> None:
        tokens = {service.partition("/")[2].upper(): str(server.port) for service, server in backends.items()}
        tokens["CA"] = "".join(f"    {line}\n" for line in CA.pem.splitlines())
        self._root, self._backends, self._patience = root, backends, patience
        self._folder = Folder(root, linked, tokens)
        self.lasthop = Lasthop(root)
        tokens["LISTENER"] = str(self.lasthop.port)
        self._paths = 0
        self.oracle = Oracle()
        self.slowest = 0.0
        self.probes = 0

    def close(self) -> None:
        self.lasthop.close()

    def begin(self, first: Step) -> None:
        """Plays the first step of a history, on what another history has left behind. Raises `Violation`."""
        written = {edit.path for edit in first.edits}
        left = [Edit(path) for path in self.oracle.state.texts if path not in written]
        self.play(replace(first, edits=(*left, *first.edits), process="" if self.lasthop.process else first.process))

    def play(self, step: Step) -> None:
        """Raises `Violation`."""
        lasthop, began = self.lasthop, time.monotonic()
        self.oracle.take(step)
        down = step.process in ("kill", "term")
        if down and lasthop.process:
            lasthop.kill() if step.process == "kill" else lasthop.stop()
        if step.lose:
            self._lose(step.lose)
        self._folder.play(step)
        if down:
            lasthop.start(ready=False)
        elif step.process == "hup" and lasthop.process:
            lasthop.process.send_signal(signal.SIGHUP)
        if self.oracle.state.lost:
            noticed = time.monotonic() + AWAY
            self._until(lambda: time.monotonic() > noticed, "the folder is away")
        else:
            self._effective()
        self._tightened()
        if step.whole:
            self._mended()
            self.slowest = max(self.slowest, time.monotonic() - began)
            if step.compare:
                self._as_fresh()

    def _lose(self, what: str) -> None:
        state = self._root / "s"
        for pattern in LOST[what]:
            for path in state.glob(pattern) if pattern else [state]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    # --- waiting for evidence, looking all the time -------------------------------------------------------------------

    def _effective(self) -> None:
        """Waits until everything that was written has been read, worked out and, if there is a Gateway, taken by Envoy."""
        self._paths += 1
        name = f"marker-{self._paths}"
        self._folder.mark(name)
        self._until(lambda: f"shop/{name}" in self.lasthop.objects("HTTPRoute"), "a text that was written last is read")
        self._until(self._settled, "everything is worked out")
        if any(text.gateway for text in self.oracle.state.texts.values()):
            self._until(lambda: self.lasthop.get(name).status == 500, "a route that was written last is served")

    def _settled(self) -> bool:
        return bool(json.loads(self.lasthop.ask("/api/readiness")[1])["settled"])

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while True:
            self._look(self.oracle.meanwhile)
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                if condition():
                    return
            process = self.lasthop.process
            if process is None or process.poll() is not None:
                raise Violation(f"lasthop has ended:\n{self.lasthop.log[-2000:]}")
            if time.monotonic() - began > self._patience:
                raise Violation(f"never: {what}")
            time.sleep(PAUSE)

    def _tightened(self) -> None:
        """Plaintext that was permitted and is now forbidden must end soon."""
        began = time.monotonic()
        while plain := self._plaintext() & self.oracle.forbidden:
            if time.monotonic() - began > self._patience:
                raise Violation(f"{', '.join(sorted(plain))}: still plaintext, although a policy in a good text names it")
            time.sleep(PAUSE)
        self._look(self.oracle.forbidden)

    def _mended(self) -> None:
        """Every text is good: each hop answers, over TLS where a policy names it."""
        verified, reachable = self.oracle.verified, self.oracle.reachable
        wanted = {s: "tls" if s in verified else "plaintext" if s in reachable else "none" for s in SERVICES}
        outcomes: dict[str, str] = {}

        def answers() -> bool:
            outcomes.update({service: self._probe(service) for service in SERVICES})
            return outcomes == wanted

        try:
            self._until(answers, "answers")
        except Violation as violation:
            raise Violation(f"{violation}: every text is good; wanted {wanted}, found {outcomes}") from None

    # --- traffic ------------------------------------------------------------------------------------------------------

    def _probe(self, service: str) -> str:
        """Sends a request and returns how it reached the backend: `tls`, `plaintext`, or `none` if it did not."""
        self._paths += 1
        self.probes += 1
        path = f"/{self._paths}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.lasthop.port, timeout=15)
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"Host": f"{service.partition('/')[2]}.test"})
                connection.getresponse().read()
        for seen in reversed(self._backends[service].connections):
            if any(head.split(" ")[1] == path for head in seen.heads if " " in head):
                return "plaintext" if seen.plaintext else "tls"
        return "none"

    def _plaintext(self) -> set[str]:
        return {service for service in SERVICES if self._probe(service) == "plaintext"}

    def _look(self, forbidden: frozenset[str]) -> None:
        """Raises if a forbidden Service gets a request in plaintext, or as much as a connection."""
        before = {service: len(self._backends[service].connections) for service in SERVICES}
        plain = self._plaintext()
        opened = {
            service
            for service in SERVICES
            for seen in self._backends[service].connections[before[service] :]
            if seen.plaintext
        }
        if wrong := (plain | opened) & forbidden:
            raise Violation(f"plaintext to {', '.join(sorted(wrong))}: {self._why(wrong)}")

    def _why(self, services: set[str]) -> str:
        texts = self.oracle.state.texts.values()
        named = [f"{text.path} ({text.how})" for text in texts if services & set(text.names)]
        unknown = [f"{text.path} ({text.how})" for text in texts if text.unknown == ALL or services & set(text.unknown)]
        return f"named by {', '.join(named) or 'no good text'}, perhaps by the unknown {', '.join(unknown) or 'none'}"

    # --- a fresh start ------------------------------------------------------------------------------------------------

    def _as_fresh(self) -> None:
        root = self._root / "fresh"
        root.mkdir()
        try:
            shutil.copytree(self._folder.path, root / "objects", symlinks=True)
            fresh = Lasthop(root)
            for path in (root / "objects").rglob("*"):
                if path.is_file() and not path.is_symlink():
                    path.write_bytes(path.read_bytes().replace(b"%d" % self.lasthop.port, b"%d" % fresh.port))
            with contextlib.closing(fresh):
                fresh.start()
                self._compare(fresh)
        finally:
            shutil.rmtree(root)

    def _compare(self, fresh: Lasthop) -> None:
        began = time.monotonic()
        for command in (("status", "-A", "-o", "json"), ("audit", "-o", "json")):
            while (ours := _said(self.lasthop, *command)) != (theirs := _said(fresh, *command)):
                if time.monotonic() - began > self._patience:
                    only = "\n".join((*(f"- {line}" for line in ours - theirs), *(f"+ {line}" for line in theirs - ours)))
                    raise Violation(f"lasthop {' '.join(command)} differs from that of a fresh start (+):\n{only}")
        self.slowest = max(self.slowest, time.monotonic() - began)


def _said(lasthop: Lasthop, *command: str) -> set[str]:
    """Returns the output of a command by line, without the parts that only time and traffic decide."""
    done = lasthop.command(*command, "--dir" if command[0] == "status" else "--admin", *_place(lasthop, command[0]))
    if done.returncode:
        return {f"exit code {done.returncode}: {done.stderr}"}
    same = {str(lasthop.folder): "FOLDER", str(lasthop.port): "LISTENER"}
    return {reduce(lambda line, pair: line.replace(*pair), same.items(), line) for line in _lines(json.loads(done.stdout), "")}


def _place(lasthop: Lasthop, command: str) -> tuple[str]:
    return (str(lasthop.folder),) if command == "status" else (f"127.0.0.1:{lasthop.admin}",)


def _lines(value: Any, path: str) -> Iterator[str]:
    match value:
        case dict():
            if REMEMBERED in value.values() or value.get("reason") in OBSERVED:
                return
            for key, held in value.items():
                if key not in NOT_COMPARED:
                    yield from _lines(held, f"{path}.{key}")
        case list():
            for number, held in enumerate(value):
                yield from _lines(held, f"{path}[{_identity(held) or number}]")
        case str() if REMEMBERED in value:
            return
        case _:
            yield f"{path}: {re.sub(r'marker-[0-9]+', 'marker', str(value))}"


def _identity(value: Any) -> str:
    """Lists are compared by what their entries are, not by their place."""
    if not isinstance(value, dict):
        return ""
    metadata = value.get("metadata") or {}
    return "/".join(str(part) for part in (value.get("kind"), metadata.get("namespace"), metadata.get("name")) if part)


@contextlib.contextmanager
def site(linked: bool, patience: float = PATIENCE) -> Iterator[Site]:
    """Makes backends that accept TLS and plaintext, and a gateway before them."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp")))
        backends = {s: stack.enter_context(backend(issued(), name=s, plaintext_too=True)) for s in SERVICES}
        yield stack.enter_context(contextlib.closing(Site(root, linked, backends, patience)))


def replay(history: History, patience: float = PATIENCE) -> tuple[int, str]:
    """Plays a history on a new folder. Returns the step that fails and why; without a violation, the number of steps."""
    with site(history.linked, patience) as gateway:
        return replay_on(gateway, history)


def replay_on(gateway: Site, history: History) -> tuple[int, str]:
    for number, step in enumerate(history.steps):
        try:
            gateway.play(step) if number else gateway.begin(step)
        except Violation as violation:
            return number, str(violation)
    return len(history.steps), ""
