"""Pairs certificate and key from two local files, which are renewed one after the other and do not match in between.

Until they match again the last matching pair stays in force, as the last good content of a broken file does; it is kept in
the state directory too, so a restart in between changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from lasthop.base.pki import parse
from lasthop.base.pki.parse import Unreadable
from lasthop.edge.sources.files.local_file import LocalFile
from lasthop.edge.sources.files.state import NoState, Pair, PairPaths

CERTIFICATE, KEY = "tls.crt", "tls.key"


class Pairs:
    def __init__(self, state: NoState) -> None:
        self._state = state
        self._good: dict[PairPaths, Pair] = {}
        self.unsaved: dict[PairPaths, Pair | None] = {}

    def older(self, paths: PairPaths, certificate: LocalFile, key: LocalFile) -> tuple[Pair, str] | None:
        """Returns the last good pair if the current files do not match, and why; None if they do, or if there is none."""
        if paths not in self._good and paths not in self.unsaved and (last := self._state.pair(paths)):
            self._good[paths] = last
        good = self._good.get(paths)
        if good and (certificate.content, key.content) == good[:2]:
            return None
        why = mismatch(certificate.content, key.content)
        if not why:
            assert certificate.content is not None and key.content is not None
            times = (file.stamp.mtime for file in (certificate, key) if file.stamp)
            self._good[paths] = self.unsaved[paths] = Pair(certificate.content, key.content, max(times, default=0))
            return None
        return (good, why) if good else None

    def keep_only(self, used: Collection[str]) -> None:
        for paths in [paths for paths in self._good if not all(path in used for path in paths)]:
            del self._good[paths]
            self.unsaved[paths] = None


def mismatch(certificate: bytes | None, key: bytes | None) -> str:
    """Returns why the two do not match; empty if the key is that of the first certificate."""
    if certificate is None or key is None:
        return f"{KEY if certificate else CERTIFICATE} cannot be read"
    chain, private = parse.certificates(certificate), parse.private_key(key)
    if isinstance(chain, Unreadable):
        return f"{CERTIFICATE} {chain.message}"
    if isinstance(private, Unreadable):
        return f"{KEY} {private.message}"
    return "" if private.spki == chain[0].spki else f"{KEY} does not belong to {CERTIFICATE}"
