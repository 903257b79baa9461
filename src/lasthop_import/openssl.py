"""Translates OpenSSL's syntax of versions and ciphers, which nginx and HAProxy use."""

from __future__ import annotations

from typing import NamedTuple

from lasthop.engine.plan.tls_options import CIPHER_SUITES, TLSOptions


class Translated(NamedTuple):
    options: TLSOptions
    lost_ciphers: bool = False
    """The ciphers are an expression, or Envoy does not support them."""
    old_versions: bool = False
    """TLS 1.0 or 1.1 was permitted."""


def tls_options(protocols: str, ciphers: str) -> Translated:
    """Returns `TLSv1.2 TLSv1.3` and `A:B` as options, without versions below 1.2."""
    versions = sorted(protocol.removeprefix("TLSv") for protocol in protocols.split())
    supported = [version for version in versions if version in ("1.2", "1.3")] or ["1.2", "1.3"]
    suites = tuple(filter(None, ciphers.split(":")))
    lost = not set(suites) <= set(CIPHER_SUITES)
    options = TLSOptions(
        min_version=supported[0] if supported[0] != "1.2" else None,
        max_version=supported[-1],
        cipher_suites=() if lost else suites,
    )
    return Translated(options, lost and suites != ("DEFAULT",), bool({"1", "1.0", "1.1"} & set(versions)))
