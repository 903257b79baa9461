"""Finds the gateways of this machine: running, left to the next Lasthop, or orphaned."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from lasthop.base import foreign_file
from lasthop.base.text.printable import printable
from lasthop.cli.args import paths
from lasthop.cli.render.terminal import note

ABOUT: Final = "about.json"
MAX_ABOUT: Final = 64 * 1024
SECOND_SIGNAL_DELAY: Final = 0.3
"""Seconds until a second signal, which ends a gateway at once."""
FORCED_STOP_TIMEOUT: Final = 10.0
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class LocalGateway(NamedTuple):
    run_dir: Path
    uid: int
    about: dict[str, Any]
    """The description that Lasthop wrote at its start; empty: unknown. Untrusted: another user may have written the file."""

    @property
    def name(self) -> str:
        folder = self.about.get("folder")
        return folder if isinstance(folder, str) else str(self.run_dir)

    @property
    def started(self) -> float | None:
        """Unix time; None: unknown."""
        started = self.about.get("started")
        return started if isinstance(started, int | float) and 0 < started <= time.time() else None

    @property
    def stop_command(self) -> str:
        """The command that ends it, to be copied into a shell."""
        return shlex.join(("lasthop", "stop", self.name))

    @property
    def is_own(self) -> bool:
        return self.uid == os.geteuid()


def describe(run_dir: Path, about: dict[str, Any]) -> None:
    """Writes the description of a gateway that other commands show."""
    import json

    (run_dir / ABOUT).write_text(json.dumps(about))


def clear(run_dir: Path) -> None:
    """Removes the files of an ended gateway, so that the next one starts with an empty directory. The lock of a gateway
    without a folder (`lasthop run --to`) stays, because the next one may be waiting for it."""
    from lasthop.edge.proxy import handover

    if (run_dir / paths.OBJECTS).is_dir():
        import shutil

        for path in run_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != "lock":
                path.unlink(missing_ok=True)
        return
    handover.remove_handover(run_dir)
    for name in (ABOUT, paths.USED_FOR, paths.ADMIN_SOCKET, "xds.sock"):
        (run_dir / name).unlink(missing_ok=True)


def gateways() -> list[LocalGateway]:
    """Returns the gateways of this user, running or not; for root, those of all users."""
    listed = (LocalGateway(path, uid, about(path)) for root, uid in paths.roots() for path in _folders(root, uid))
    return sorted(listed, key=lambda gateway: (not gateway.is_own, gateway.uid, gateway.name))


def _folders(root: Path, uid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for path in sorted(root.iterdir()):
            info = path.lstat()
            if stat.S_ISDIR(info.st_mode) and info.st_uid in (uid, 0) and (path / "lock").exists():
                yield path


def about(run_dir: Path) -> dict[str, Any]:
    import json

    try:
        document = json.loads(foreign_file.read(run_dir / ABOUT, MAX_ABOUT))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def holder(run_dir: Path) -> int:
    """Returns the pid of the Lasthop process that locks the directory, or 0. Does not try to lock it, because that could
    prevent a Lasthop from starting."""
    try:
        lock = run_dir / "lock"
        text = foreign_file.read(lock, 32)
        pid = int(text) if text.isdigit() else 0
        if not pid or os.stat(f"/proc/{pid}").st_uid != run_dir.stat().st_uid:
            return 0
        return pid if any(os.readlink(entry) == str(lock.resolve()) for entry in _descriptors(pid)) else 0
    except (OSError, ValueError):
        return 0


def _descriptors(pid: int) -> Iterator[Path]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if entry.is_symlink():
            yield entry


def interrupt(run_dir: Path, *, now: bool) -> bool:
    """Stops the Lasthop that holds the directory, like Ctrl-C; with `now`, like a second Ctrl-C. Returns whether it has
    ended."""
    with _open_holder(run_dir) as pidfd:
        if pidfd is None:
            return True
        signal.pidfd_send_signal(pidfd, signal.SIGINT)
        if not now:
            return _wait_ended(pidfd, None)
        until = time.monotonic() + FORCED_STOP_TIMEOUT
        while time.monotonic() < until:
            if _wait_ended(pidfd, SECOND_SIGNAL_DELAY):
                return True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGINT)
        return False


def take_over(run_dir: Path, limit: float) -> bool:
    """Signals the Lasthop that holds the directory to end and to leave its proxies running. Returns whether it has ended.

    The signal kills a version that does not handle it, and its proxies serve on all the same."""
    with _open_holder(run_dir) as pidfd:
        if pidfd is None:
            return True
        signal.pidfd_send_signal(pidfd, signal.SIGUSR2)
        return _wait_ended(pidfd, limit)


@contextlib.contextmanager
def _open_holder(run_dir: Path) -> Iterator[int | None]:
    """Opens the process that holds the directory, so that no signal reaches another process that has reused its pid."""
    pid = holder(run_dir)
    try:
        pidfd = os.pidfd_open(pid) if pid else -1
    except ProcessLookupError:
        pidfd = -1
    try:
        yield pidfd if pidfd >= 0 and holder(run_dir) == pid else None
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def _wait_ended(pidfd: int, limit: float | None) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(None if limit is None else limit * 1000))


def at_address(host: str, port: int) -> list[LocalGateway]:
    from lasthop.base.api.addresses import split_port

    names = LOOPBACK if host in LOOPBACK else (host,)
    bound = ((gateway, split_port(str(gateway.about.get("admin", "")))) for gateway in gateways())
    return [gateway for gateway, (address, number) in bound if number == str(port) and address in (*names, "0.0.0.0", "::")]


def present() -> list[tuple[LocalGateway, str]]:
    """Returns the gateways that have not ended, each with its state."""
    return [(gateway, gateway_state) for gateway in gateways() if (gateway_state := state(gateway)) != "ended"]


def chosen(folder: Path | None, everything: bool = False) -> list[LocalGateway]:
    """Returns the gateways to stop: the one on a folder, the only one that runs, or all of this user."""
    if folder is not None:
        return _on_folder(folder)
    running = [gateway for gateway, _ in present()]
    own_gateways = [gateway for gateway in running if gateway.is_own]
    if len(own_gateways) > 1 and not everything:
        commands = ", or ".join(gateway.stop_command for gateway in own_gateways)
        raise click.ClickException(f"several gateways run on this machine; choose one: {commands}; or all: lasthop stop --all")
    if not own_gateways:
        _print_others(running)
    return own_gateways


def _print_others(running: list[LocalGateway]) -> None:
    click.echo("No gateway of this user runs on this machine" if running else "No gateway runs on this machine")
    note_others()
    for gateway in running:
        click.echo(f"That on {printable(gateway.name)} is {paths.user_name(gateway.uid)}'s: {printable(_as_owner(gateway))}")


def _on_folder(folder: Path) -> list[LocalGateway]:
    """Returns this user's gateway on a folder, running or not. Raises if only another user's runs there."""
    run_dir, about = paths.of_folder(paths.runtime_root(), folder), {"folder": paths.absolute(folder)}
    candidates = [gateway._replace(about=about) for gateway in gateways() if gateway.run_dir.name == run_dir.name]
    # Another user's gateway there must not prevent this user from stopping their own.
    running = sorted((gateway for gateway in candidates if state(gateway) != "ended"), key=lambda gateway: not gateway.is_own)
    for gateway in running[:1]:
        _require_own(gateway)
    return [gateway for gateway in candidates if gateway.is_own] or [LocalGateway(run_dir, os.geteuid(), about)]


def note_others() -> None:
    """Notes that other users may have gateways, which the command does not search for."""
    if hint := paths.others_hint():
        note(f"{hint[:1].upper()}{hint[1:]}")


def with_address(host: str, port: int) -> list[LocalGateway]:
    matching = [gateway for gateway in at_address(host, port) if state(gateway) != "ended"]
    if not matching:
        others = f"; {hint}" if (hint := paths.others_hint()) else ""
        advice = "lasthop ps lists them"
        raise click.ClickException(f"no gateway of this machine has the admin address {host}:{port}; {advice}{others}")
    for gateway in matching:
        _require_own(gateway)
    return matching


def _require_own(gateway: LocalGateway) -> None:
    if not gateway.is_own:
        name = paths.user_name(gateway.uid)
        raise click.ClickException(f"the gateway on {gateway.name} is {name}'s; end it as that user: {_as_owner(gateway)}")


def _as_owner(gateway: LocalGateway) -> str:
    """Returns the command that ends another user's gateway. Only root gets it."""
    return f"sudo -u {paths.user_name(gateway.uid)} {gateway.stop_command}"


def state(gateway: LocalGateway) -> str:
    """Returns `running`, `left` (to the next Lasthop, for a while), `orphaned` (Envoys without a Lasthop) or `ended`."""
    from lasthop.edge.proxy import handover

    if holder(gateway.run_dir):
        return "running"
    if not envoys(gateway):
        return "ended"
    return "left" if handover.read_handover(gateway.run_dir) else "orphaned"


def envoys(gateway: LocalGateway) -> list[int]:
    from lasthop.edge.proxy.handle import find_envoys

    handles = find_envoys(gateway.run_dir, gateway.uid)
    for handle in handles:
        handle.close()
    return [handle.pid for handle in handles]
