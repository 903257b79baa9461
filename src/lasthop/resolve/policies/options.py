"""`spec.options` of a BackendTLSPolicy: our keys, their values, and what is wrong with them.

Every accepted value is one that Envoy 1.40 takes, so that it is never Envoy that refuses.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.api.meta import StringMap
from lasthop.plan.tls import TLSOptions

PREFIX: Final = "lasthop.dev/"

VERSIONS: Final = ("1.0", "1.1", "1.2", "1.3")

CIPHER_SUITES: Final = frozenset(
    {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-ECDSA-AES256-SHA",
        "ECDHE-RSA-AES128-SHA",
        "ECDHE-RSA-AES256-SHA",
        "AES128-GCM-SHA256",
        "AES256-GCM-SHA384",
        "AES128-SHA",
        "AES256-SHA",
    }
)
"""Up to TLS 1.2. Those of TLS 1.3 are not configurable in Envoy."""

CURVES: Final = frozenset({"X25519MLKEM768", "MLKEM1024", "X25519", "P-256", "P-384", "P-521"})

ALPN: Final = frozenset({"h2", "http/1.1"})


class Parsed(msgspec.Struct, frozen=True):
    options: TLSOptions
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse(options: StringMap) -> Parsed:
    fields: dict[str, str | tuple[str, ...]] = {}
    problems, warnings = [], []
    for key, value in options:
        if "/" not in key:
            warnings.append(f"option {key} has no effect: names without a domain are reserved for Gateway API")
        if not key.startswith(PREFIX):
            continue
        match key.removeprefix(PREFIX):
            case "min-tls-version" | "max-tls-version" as name:
                if value not in VERSIONS:
                    problems.append(f"option {key} is {value!r}; write one of {', '.join(VERSIONS)}")
                fields[f"{name[:3]}_version"] = value
            case "cipher-suites":
                fields["cipher_suites"] = _words(key, value, CIPHER_SUITES, problems)
            case "curves":
                fields["curves"] = _words(key, value, CURVES, problems)
            case "alpn":
                fields["alpn"] = _words(key, value, ALPN, problems)
            case _:
                known = "min-tls-version, max-tls-version, cipher-suites, curves, alpn"
                problems.append(f"option {key} is unknown; Lasthop has {known}")
    if problems:
        return Parsed(TLSOptions(), tuple(problems), tuple(warnings))
    parsed = msgspec.convert(fields, TLSOptions)
    if VERSIONS.index(parsed.min_version) > VERSIONS.index(parsed.max_version):
        what = f"the lowest TLS version ({parsed.min_version}) is above the highest ({parsed.max_version})"
        return Parsed(TLSOptions(), (what,), tuple(warnings))
    return Parsed(parsed, (), tuple(warnings))


def _words(key: str, value: str, known: frozenset[str], problems: list[str]) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
    unknown = [word for word in words if word not in known]
    if unknown:
        listed = ", ".join(repr(word) for word in unknown)
        problems.append(f"option {key} has {listed}; known are {', '.join(sorted(known))}")
    return words
