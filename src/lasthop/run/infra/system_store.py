"""Copies the host's CA bundle to content-addressed files. Envoy reads a file once, so changed content needs another name."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

from lasthop.engine.plan.tls import SystemStore

CANDIDATES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)
OVERRIDE: Final = "SSL_CERT_FILE"
CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"


class SystemStoreCopies:
    """Copies the host's bundle; `current()` is cheap while the bundle is unchanged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version: tuple[str, int, int, int] | None = None
        self._store: SystemStore | None = None

    def current(self) -> SystemStore | None:
        """Returns the current copy; None without a readable bundle, so that every policy that uses it fails closed."""
        bundle = _locate()
        version = (str(bundle[0]), bundle[1].st_mtime_ns, bundle[1].st_size, bundle[1].st_ino) if bundle else None
        if version != self._version:
            self._store = self._copy(bundle[0]) if bundle else None
            self._version = version
        return self._store

    def _copy(self, path: Path) -> SystemStore | None:
        pem = _read(path)
        if pem is None:
            return None
        digest = _digest(pem)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self._folder / f"{digest}.pem"
        if not copy.exists():
            temporary = copy.with_suffix(".tmp")
            temporary.write_bytes(pem)
            temporary.rename(copy)
        # The previous copy stays, because clusters that still name it may be sent to a proxy that restarts at this moment.
        keep = {copy.name, Path(self._store.path).name if self._store else ""}
        for other in self._folder.glob("*.pem"):
            if other.name not in keep:
                other.unlink(missing_ok=True)
        return SystemStore(str(copy), digest)


def host_store() -> SystemStore | None:
    """Returns the host's own bundle without copying it, for commands that only read."""
    bundle = _locate()
    pem = _read(bundle[0]) if bundle else None
    return SystemStore(str(bundle[0]), _digest(pem)) if bundle and pem is not None else None


def _read(path: Path) -> bytes | None:
    """Reads a bundle without parsing it: real bundles contain certificates that only a parser like OpenSSL's accepts, and
    Envoy has one."""
    try:
        pem = path.read_bytes()
    except OSError:
        return None
    return pem if CERTIFICATE in pem else None


def _digest(pem: bytes) -> str:
    return hashlib.blake2b(pem, digest_size=12).hexdigest()


def _locate() -> tuple[Path, os.stat_result] | None:
    override = os.environ.get(OVERRIDE)
    for candidate in (override,) if override else CANDIDATES:
        with contextlib.suppress(OSError):
            return Path(candidate), os.stat(candidate)
    return None
