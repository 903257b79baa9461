"""The host's CA bundle, as content-addressed copies: Envoy reads a file once, so a changed store must be a changed name."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from lasthop.plan.tls import SystemStore

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
    """`current()` looks at the host's bundle; cheap when it has not changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[str, int, int, int] | None = None
        self._store: SystemStore | None = None
        self.problem = ""

    def current(self) -> SystemStore | None:
        """None if there is no bundle, or none that can be read: then whatever asks for it fails."""
        found = _locate()
        if found is None:
            self._seen, self._store, self.problem = None, None, "this host has no CA bundle"
            return None
        path, stat = found
        seen = (str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._store = self._copy(path)
            self._seen = seen
        return self._store

    def _copy(self, path: Path) -> SystemStore | None:
        try:
            pem = path.read_bytes()
        except OSError as error:
            self.problem = f"{path} cannot be read: {error.strerror}"
            return None
        # Not parsed: real bundles hold certificates that only OpenSSL's kind of parser takes, and Envoy has one.
        if CERTIFICATE not in pem:
            self.problem = f"{path} holds no certificate"
            return None
        self.problem = ""
        digest = _digest(pem)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self._folder / f"{digest}.pem"
        if not copy.exists():
            temporary = copy.with_suffix(".tmp")
            temporary.write_bytes(pem)
            temporary.rename(copy)
        self._forget_all_but({copy.name, Path(self._store.path).name if self._store else ""})
        return SystemStore(str(copy), digest)

    def _forget_all_but(self, names: set[str]) -> None:
        # The one before stays: clusters that still name it may be sent to a proxy that restarts this moment.
        for other in self._folder.glob("*.pem"):
            if other.name not in names:
                other.unlink(missing_ok=True)


def host_store() -> SystemStore | None:
    """The host's own bundle, for commands that only look: nothing is copied."""
    found = _locate()
    if found is None:
        return None
    try:
        pem = found[0].read_bytes()
    except OSError:
        return None
    if CERTIFICATE not in pem:
        return None
    return SystemStore(str(found[0]), _digest(pem))


def _digest(pem: bytes) -> str:
    return hashlib.blake2b(pem, digest_size=12).hexdigest()


def _locate() -> tuple[Path, os.stat_result] | None:
    override = os.environ.get(OVERRIDE)
    for candidate in (override,) if override else CANDIDATES:
        path = Path(candidate)
        try:
            return path, path.stat()
        except OSError:
            continue
    return None
