"""Computes the result of a securityContext: ids, capabilities, a read-only root. The container's value overrides the pod's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.api import Object

# linux/capability.h, in order
_NAMES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
    NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
    SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
    BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"""
CAPABILITIES = {name: number for number, name in enumerate(_NAMES.split())}

# The default capabilities of container runtimes.
_RUNTIME_DEFAULT = """
    CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL
    AUDIT_WRITE"""
_DEFAULT = frozenset(_RUNTIME_DEFAULT.split())

# Sysctls that a kubelet allows by default, as far as they belong to a network namespace.
SAFE_SYSCTLS = frozenset(
    {
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)


class NotAllowed(Exception):
    """The container must not be started; the kubelet's words."""


@dataclass(frozen=True)
class Security:
    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: frozenset[int]
    no_new_privileges: bool
    read_only_root: bool


def security(pod: Object, container: dict[str, Any], image_user: int) -> Security:
    of_pod: dict[str, Any] = pod["spec"].get("securityContext") or {}
    of_container: dict[str, Any] = container.get("securityContext") or {}
    both = {**of_pod, **of_container}
    uid = both.get("runAsUser", image_user)
    if both.get("runAsNonRoot") and uid == 0:
        raise NotAllowed("container has runAsNonRoot and image will run as root")
    groups = set(of_pod.get("supplementalGroups") or ())
    if (fs_group := of_pod.get("fsGroup")) is not None:
        groups.add(fs_group)
    return Security(
        uid=uid,
        gid=both.get("runAsGroup", 0),
        groups=tuple(sorted(groups)),
        capabilities=_capabilities(of_container),
        no_new_privileges=of_container.get("allowPrivilegeEscalation") is False,
        read_only_root=of_container.get("readOnlyRootFilesystem") is True,
    )


def _capabilities(context: dict[str, Any]) -> frozenset[int]:
    if context.get("privileged"):
        return frozenset(CAPABILITIES.values())
    capabilities = context.get("capabilities") or {}
    dropped, added = (
        {name.upper().removeprefix("CAP_") for name in capabilities.get(which) or ()} for which in ("drop", "add")
    )
    kept = frozenset() if "ALL" in dropped else _DEFAULT - dropped
    wanted = kept | (CAPABILITIES.keys() if "ALL" in added else added)
    return frozenset(CAPABILITIES[name] for name in wanted if name in CAPABILITIES)


def forbidden_sysctls(pod: Object) -> list[str]:
    sysctls = (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
    return [entry["name"] for entry in sysctls if entry["name"] not in SAFE_SYSCTLS]
