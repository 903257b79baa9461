"""Finds the directories where a running gateway keeps its sockets and state."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import click

from lasthop.base import foreign_file
from lasthop.run.infra.ports import MAX_PATH
from lasthop.run.infra.ports import USED_FOR as USED_FOR

ADMIN_SOCKET = "admin.sock"


def runtime_root() -> Path:
    """Returns a short path, because unix sockets limit it, and a private one, because a process that can write there controls
    Envoy."""
    if override := os.environ.get("LASTHOP_RUN_DIR"):
        return Path(override)
    if os.geteuid() == 0:
        return Path("/run/lasthop")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "lasthop"
    return Path(tempfile.gettempdir()) / f"lasthop-{os.geteuid()}"


SERVICES = Path("/run")
SERVICE_ROOTS = "lasthop-service*"
"""Directories of the systemd unit in deploy/ and of its copies. Only root can have created them, for the unit's user."""


def roots() -> list[tuple[Path, int]]:
    """Returns the socket directories of this machine's gateways with their owners: this user's; for root, all users'.

    Omits directories that another user than root may have created."""
    own_root, uid = runtime_root(), os.geteuid()
    if os.environ.get("LASTHOP_RUN_DIR"):
        return [(own_root, uid)]
    services = ((path, _owner(path)) for path in sorted(SERVICES.glob(SERVICE_ROOTS)))
    places = {path: owner for path, owner in services if owner is not None and uid in (0, owner)}
    # A session has XDG_RUNTIME_DIR; cron, su and sudo -u do not, and must find gateways started in a session.
    places |= dict.fromkeys((Path(f"/run/user/{uid}/lasthop"), Path(tempfile.gettempdir()) / f"lasthop-{uid}"), uid)
    if uid == 0:
        places |= _roots_of_users()
    return [(own_root, uid), *((path, owner) for path, owner in places.items() if path != own_root and _owner(path) == owner)]


def _roots_of_users() -> dict[Path, int]:
    """Returns the possible socket directories of any user, each with the user in its path."""
    sessions = {path: path.parent.name for path in Path("/run/user").glob("[0-9]*/lasthop")}
    temporary = {path: path.name.partition("-")[2] for path in Path(tempfile.gettempdir()).glob("lasthop-[0-9]*")}
    return {path: int(number) for path, number in (sessions | temporary).items() if number.isdecimal()}


def others_hint() -> str:
    """Returns a hint for "no gateway runs" if other users have, or had, gateways, which only root may search; empty: none."""
    uid = os.geteuid()
    if uid == 0 or os.environ.get("LASTHOP_RUN_DIR"):
        return ""
    places = [Path("/run/lasthop"), *SERVICES.glob(SERVICE_ROOTS), *Path(tempfile.gettempdir()).glob("lasthop-[0-9]*")]
    theirs = [path for path in places if _owner(path) not in (None, uid)]
    return f"only gateways of user {user_name(uid)} are visible; for all: sudo lasthop ps" if theirs else ""


def _owner(path: Path) -> int | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_uid if stat.S_ISDIR(info.st_mode) else None


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def state_root() -> Path:
    base = os.environ.get("LASTHOP_STATE_DIR") or os.environ.get("XDG_STATE_HOME")
    return Path(base) / "lasthop" if base else Path.home() / ".local" / "state" / "lasthop"


def absolute(folder: Path) -> str:
    """Returns the absolute path of a folder without resolving links: a deployment may switch releases by a link, and it is
    still the same folder."""
    shell = os.environ.get("PWD", "")
    current = shell if os.path.isabs(shell) and os.path.realpath(shell) == os.getcwd() else os.getcwd()
    return os.path.normpath(os.path.join(current, folder))


def of_folder(root: Path, folder: Path) -> Path:
    """Returns the directory below `root` for a folder of objects: named by its path, or in use for the same folder under
    another path."""
    named = root / hashlib.blake2b(os.fsencode(absolute(folder)), digest_size=5).hexdigest()
    if os.path.lexists(named):
        return named
    real_path = os.path.realpath(folder)
    with contextlib.suppress(OSError):
        for place in sorted(root.iterdir()):
            if (used_for := folder_of(place)) and os.path.realpath(used_for) == real_path:
                return place
    return named


def claim(root: Path, folder: Path) -> Path:
    """Creates the directory of a folder, and records there the path by which the folder is used."""
    place = private(of_folder(root, folder))
    try:
        (place / USED_FOR).write_bytes(os.fsencode(absolute(folder)))
    except OSError as error:
        raise click.ClickException(f"cannot write {place / USED_FOR}: {error.strerror}") from error
    return place


OBJECTS = "objects"
"""The folder in the run directory of a `lasthop run --to`, which has no folder of its own."""


def without_folder(address: str, port: int) -> Path:
    """Returns the run directory of a gateway without a folder, one per listen address."""
    return runtime_root() / f"{address.replace(':', '_')}-{port}"


def claim_without_folder(run_dir: Path) -> None:
    """Creates the contents of a run directory. The caller holds its lock; otherwise a gateway that ends could remove them."""
    folder = private(run_dir / OBJECTS)
    private(run_dir / "state")
    (run_dir / USED_FOR).write_bytes(os.fsencode(folder))


def folder_of(place: Path) -> str:
    """Returns the folder of a run directory; empty: unknown."""
    try:
        text = foreign_file.read(place / USED_FOR, MAX_PATH)
    except OSError:
        return ""
    return "" if b"\0" in text else os.fsdecode(text)


def is_text(path: str) -> bool:
    """Returns whether a path is UTF-8, as the log, the page and Envoy's configuration require."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def private(folder: Path) -> Path:
    """Creates the folder for this user only; rejects one that another user has created."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot create {folder}: {error.strerror}") from error
    _require_ours(folder, folder.parent)
    try:
        folder.chmod(0o700)
    except PermissionError:
        raise click.ClickException(f"{folder} is {_whose(folder)}; set LASTHOP_RUN_DIR to a folder of your own") from None
    return folder


def _whose(folder: Path) -> str:
    owner = _owner(folder)
    return "another user's" if owner is None else f"{user_name(owner)}'s"


def _ours(info: os.stat_result) -> bool:
    """Returns whether a folder belongs to this user or to root; False for a link, which might lead anywhere."""
    return info.st_uid in (0, os.geteuid()) and stat.S_ISDIR(info.st_mode)


def _require_ours(*folders: Path) -> None:
    """Raises if another user could have created one of the existing folders, to impersonate the gateway."""
    for path in folders:
        if not os.path.lexists(path) or _ours(info := path.lstat()):
            continue
        owned = f"belongs to uid {info.st_uid}, not to you (uid {os.geteuid()})"
        problem = owned if stat.S_ISDIR(info.st_mode) else "is not a folder"
        raise click.ClickException(f"{path} {problem}, so it is not used; set LASTHOP_RUN_DIR to a folder of your own")


def running(folder: Path) -> Path:
    """Returns the admin socket of the gateway on this folder; for root, also another user's. Raises if another user could have
    placed it there."""
    place = of_folder(runtime_root(), folder)
    _require_ours(place.parent, place)
    for directory in (
        place,
        *(of_folder(root, folder) for root, owner in roots() if _owner(of_folder(root, folder)) == owner),
    ):
        try:
            exists = (socket_path := directory / ADMIN_SOCKET).exists()
        except PermissionError:
            raise click.ClickException(
                f"the gateway on {folder} is {_whose(directory)}; only that user, or root, may query it"
            ) from None
        if exists:
            if _is_left(socket_path):
                raise click.ClickException(
                    f"the Lasthop on {folder} was killed, and its proxies may serve on; take them over with: "
                    f"lasthop run {folder}, or end them with: lasthop stop {folder}"
                )
            return socket_path
    others = f"; {hint}" if (hint := others_hint()) else ""
    raise click.ClickException(f"no gateway runs on {folder}; start one with: lasthop run {folder}{others}")


def all_running() -> list[Path]:
    """Returns the admin sockets of this user's running gateways; for root without any, those of other users. A killed gateway
    leaves a socket without a listener. Raises if the folder belongs to another user, who could impersonate the gateway."""
    root, uid = runtime_root(), os.geteuid()
    _require_ours(root)
    own_sockets = [path for path in _sockets(root) if _ours(path.parent.lstat())]
    elsewhere = [(path, owner) for place, owner in roots() if place != root for path in _sockets_of(place, owner)]
    own_sockets += [path for path, owner in elsewhere if owner == uid]
    return own_sockets or [path for path, _ in elsewhere]


def left_behind() -> bool:
    """Returns whether a gateway of this user was killed; its proxies may serve on."""
    return any(map(_is_left, runtime_root().glob(f"*/{ADMIN_SOCKET}")))


def _sockets_of(root: Path, owner: int) -> list[Path]:
    return [path for path in _sockets(root) if _owner(path.parent) == owner]


def _sockets(root: Path) -> list[Path]:
    """Returns the admin sockets below a folder that have a listener."""
    return [path for path in sorted(root.glob(f"*/{ADMIN_SOCKET}")) if _connection_error(path) is None]


def _is_left(path: Path) -> bool:
    return isinstance(_connection_error(path), ConnectionRefusedError)


def _connection_error(path: Path) -> OSError | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
        except OSError as error:
            return error
    return None
