"""Becomes the first process of a container. The node runs it as `python -I -S launch.py spec.json` in new mount, process and
UTS namespaces and in the pod's network namespace. It needs only the standard library.

Builds the root: a tmpfs with the host's /usr (read-only), a few files of /etc, the image's own files and the volumes; or the
image's whole file system with a separate layer above it, so that containers do not share files. Then drops the privileges that
the securityContext forbids, and executes the command. The file descriptor `report` gets "ok" just before that, or the error.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 1, 2, 4, 32, 4096, 8192, 16384
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
LIBC = ctypes.CDLL(None, use_errno=True)

ETC = ("ssl", "ca-certificates", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def main() -> None:
    report = int(sys.argv[2])
    try:
        with open(sys.argv[1]) as file:
            spec = json.load(file)
        build_root(spec)
        enter_root(spec)
        give_up_rights(spec)
        program = find(spec["command"][0], spec["env"].get("PATH", ""))
        os.write(report, b"ok")
        os.set_inheritable(report, False)
        os.execve(program, spec["command"], spec["env"])
    except Exception as error:
        os.write(report, f"{error}".encode())
        sys.exit(128)


def find(program: str, path: str) -> str:
    places = [program] if "/" in program else [f"{folder}/{program}" for folder in path.split(":")]
    for place in places:
        if os.access(place, os.X_OK):
            return place
    raise FileNotFoundError(f"{program}: executable file not found in $PATH ({path}), or not for this user")


def build_root(spec: dict[str, Any]) -> None:
    root = spec["root"]
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=755")
    if spec["image"]:
        lay_over(root, spec["image"])
    else:
        borrow_from_host(root)
    for name, content in spec["etc"].items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(content)
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV)
    bind(f"{root}/proc/sys", f"{root}/proc/sys", read_only=True)
    mount("sysfs", f"{root}/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_RDONLY)
    build_devices(f"{root}/dev")
    for source, target, read_only in spec["mounts"]:
        bind_into(root, source, target, read_only)
    if spec["readOnlyRootFilesystem"]:
        mount("", root, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)


def lay_over(root: str, image: str) -> None:
    for folder in ("upper", "spare"):
        os.mkdir(f"{root}/{folder}", 0o755)
    mount("overlay", root, "overlay", MS_NOSUID, f"lowerdir={image},upperdir={root}/upper,workdir={root}/spare")


def borrow_from_host(root: str) -> None:
    for folder in ("proc", "sys", "dev", "etc", "usr", "tmp", "run", "var", "root"):
        os.mkdir(f"{root}/{folder}")
    os.chmod(f"{root}/tmp", 0o1777)
    bind("/usr", f"{root}/usr", read_only=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{name}"):
            os.symlink(f"usr/{name}", f"{root}/{name}")
    for name in ETC:
        if os.path.exists(f"/etc/{name}"):
            bind_into(root, f"/etc/{name}", f"/etc/{name}", read_only=True)


def build_devices(folder: str) -> None:
    mount("tmpfs", folder, "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        open(f"{folder}/{name}", "w").close()
        bind(f"/dev/{name}", f"{folder}/{name}", read_only=False)
    os.mkdir(f"{folder}/shm")
    mount("tmpfs", f"{folder}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{folder}/{name}")


def enter_root(spec: dict[str, Any]) -> None:
    socket.sethostname(spec["hostname"])
    os.chdir(spec["root"])
    mount(spec["root"], "/", "", MS_MOVE)
    os.chroot(".")
    os.chdir(spec["workingDir"])


def give_up_rights(spec: dict[str, Any]) -> None:
    kept, uid, gid = set(spec["capabilities"]), spec["uid"], spec["gid"]
    for stream in (1, 2):
        os.fchown(stream, uid, gid)  # so that /dev/stdout can be opened
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for capability in set(range(last + 1)) - kept:
        check(LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")
    os.setgroups(spec["groups"])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # drops all capabilities unless the user is root
    if uid == 0:
        set_capabilities(sum(1 << capability for capability in kept))
    if spec["noNewPrivileges"]:
        check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    # Last, since a change of user clears it: end with the `unshare` that is our parent.
    check(LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    os.umask(0o022)


def set_capabilities(mask: int) -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3: two words of 32 bits
    low, high = mask & 0xFFFFFFFF, mask >> 32
    sets = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)  # effective, permitted, inheritable
    check(LIBC.capset(header, sets), "capset")


def bind_into(root: str, source: str, target: str, read_only: bool) -> None:
    """Bind a file or folder of the host, making its mount point."""
    point = inside(root, target)
    if os.path.isdir(source):
        os.makedirs(point, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(point), exist_ok=True)
        if not os.path.exists(point):
            open(point, "w").close()
    bind(source, point, read_only)


def inside(root: str, path: str) -> str:
    """Return where a path of the container is from outside: a link such as /var/run -> /run must not lead to the host's."""
    names: list[str] = []
    parts = [part for part in path.split("/") if part]
    while parts:
        part = parts.pop(0)
        outside = "/".join((root, *names, part))
        if part == "..":
            names = names[:-1]
        elif os.path.islink(outside):
            link = os.readlink(outside)
            names = [] if link.startswith("/") else names
            parts = [name for name in link.split("/") if name not in ("", ".")] + parts
        else:
            names.append(part)
    return "/".join((root, *names))


def bind(source: str, target: str, read_only: bool) -> None:
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    text = [value.encode() for value in (source, target, kind, options)]
    check(LIBC.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]), f"mount {source or kind} at {target}")


def check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
