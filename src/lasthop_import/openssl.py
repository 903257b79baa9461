"""Translates versions and ciphers as OpenSSL, and so nginx and HAProxy, write them."""

from __future__ import annotations

from typing import NamedTuple

from lasthop.engine.plan.tls_options import CIPHER_SUITES, TLSOptions


class Translated(NamedTuple):
    options: TLSOptions
    lost_ciphers: bool = False
    """The ciphers are an expression, or Envoy does not have them."""
    old_versions: bool = False
    """TLS 1.0 or 1.1 was permitted."""


def tls_options(protocols: str, ciphers: str) -> Translated:
    """Returns `TLSv1.2 TLSv1.3` and `A:B` as options. Versions below 1.2 are not kept."""
    versions = sorted(each.removeprefix("TLSv") for each in protocols.split())
    known = [each for each in versions if each in ("1.2", "1.3")]
    lowest = known[0] if known and known[0] != "1.2" else None
    highest = known[-1] if known else "1.3"
    suites = tuple(each for each in ciphers.split(":") if each)
    lost = any(each not in CIPHER_SUITES for each in suites)
    options = TLSOptions(min_version=lowest, max_version=highest, cipher_suites=() if lost else suites)
    return Translated(options, lost and suites != ("DEFAULT",), bool({"1", "1.0", "1.1"} & set(versions)))
