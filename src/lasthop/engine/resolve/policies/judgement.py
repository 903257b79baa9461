"""Validates a BackendTLSPolicy or the TLS of an XBackend, and converts it into one `BackendTLS`.

    spec.options ──────────────┐
    hostname, subjectAltNames ─┼──> Judgement
    caCertificateRefs, … ──────┘    (the BackendTLS, or its problem)

Every API that describes the verification of a backend ends in one `BackendTLS` here, so that later code is independent of the
API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.meta import Key, StringMap
from lasthop.base.api.policies import BackendTLSPolicyValidation
from lasthop.base.api.profiles import PREFIX
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid, joined
from lasthop.engine.plan.tls import BackendTLS, San, SanType
from lasthop.engine.plan.tls_options import OPTIONS, Option, TLSOptions
from lasthop.engine.resolve.policies.references import verification
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.resolve.routing.http_syntax import is_hostname, shown
from lasthop.engine.resolve.trust.certificates import key_pair
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

FIELD: Final = "spec.options"
OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
OPTIONS_BY_KEY: Final = {f"{PREFIX}{option.name}": option for option in OPTIONS}


class ParsedOptions(msgspec.Struct, frozen=True):
    options: TLSOptions
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


NONE: Final = ParsedOptions(TLSOptions())


def parse(options: StringMap) -> ParsedOptions:
    if not options:
        return NONE
    fields: dict[str, str | tuple[str, ...]] = {}
    problems, warnings = [], []
    for key, value in options:
        if "/" not in key:
            warnings.append(f"option {key} has no effect: names without a domain are reserved for Gateway API")
        if not key.startswith(PREFIX):
            continue
        option = OPTIONS_BY_KEY.get(key)
        if option is None:
            problems.append(f"option {key} is unknown; Lasthop has {', '.join(known_option.name for known_option in OPTIONS)}")
            continue
        fields[option.field] = parsed_value = tuple(dict.fromkeys(map(str.strip, value.split(",")))) if option.label else value
        problems += _wrong_values(key, option, parsed_value)
    parsed = TLSOptions() if problems else msgspec.convert(fields, TLSOptions)
    if parsed.lowest > parsed.max_version:
        problems.append(f"the lowest TLS version ({parsed.lowest}) is above the highest ({parsed.max_version})")
    return ParsedOptions(parsed, tuple(invalid(problem).at(FIELD) for problem in problems), tuple(warnings))


def _wrong_values(key: str, option: Option, value: str | tuple[str, ...]) -> list[str]:
    if isinstance(value, str) and not option.values:
        return (
            [] if OBJECT_NAME.fullmatch(value) else [f"option {key} is {value!r}; write the name of a Secret of its namespace"]
        )
    supported = ", ".join(sorted(option.values))
    if isinstance(value, str):
        return [] if value in option.values else [f"option {key} is {value!r}; write one of {supported}"]
    unknown = ", ".join(repr(word) for word in value if word not in option.values)
    return [f"option {key} has {unknown}; choose from {supported}"] if unknown else []


MAX_NAMES: Final = 32
"""More than any release of the CRD permits (5), and few enough to compare at every handshake."""
CLIENT_CERTIFICATE: Final = f"option {PREFIX}client-certificate"
PUT_CERTIFICATE: Final = "put a PEM certificate chain and its key into that Secret, as tls.crt and tls.key"
URI: Final = re.compile(r"[!-~]{1,2048}")
"""Characters of a URI (RFC 3986); URIs are compared byte for byte."""


class Judgement(msgspec.Struct, frozen=True):
    tls: BackendTLS | None
    """The required TLS; None if there is a problem."""
    problem: Problem | None = None
    """Why the policy is invalid and connections fail."""
    unresolved: Problem | None = None
    """The problem of invalid references; the remaining ones may suffice."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Information for the author that needs no correction."""


def validation_of(g: Graph, source: Key) -> BackendTLSPolicyValidation | None:
    """Returns the validation of a BackendTLSPolicy or an XBackend; None if it configures no TLS."""
    if source.kind == XBACKEND:
        backend = read(g, source, XBackend)
        return backend.spec.tls.validation if backend else None
    policy = read_policy(g, source)
    return policy.spec.validation if policy else None


@query
def judgement(g: Graph, source: Key) -> Judgement | None:
    """Returns the TLS and the problems of a policy or XBackend that are common to all Gateways; None if it configures no
    TLS."""
    validation = validation_of(g, source)
    if validation is None:
        return None
    policy = read_policy(g, source) if source.kind != XBACKEND else None
    field = "spec.validation" if policy else "spec.tls.validation"
    parsed = parse(policy.spec.options if policy else StringMap())
    verified = verification(g, source.namespace, validation, field)
    problem = verified.problem
    names = [invalid(f"{name} {message}").at(f"{field}.{name}") for name, message in _name_problems(validation)]
    secret = parsed.options.client_certificate
    unusable = _unusable(g, Key("Secret", source.namespace, secret)) if secret else None
    unresolved = (
        joined([verified.unresolved, unusable]) if verified.unresolved and unusable else verified.unresolved or unusable
    )
    if faults := [*parsed.problems, *names, *([unusable.with_reason(reasons.INVALID)] if unusable else [])]:
        problem = joined([*faults, problem], problem.reason).at(problem.field) if problem else joined(faults)
    tls = BackendTLS(
        source=source,
        sni=validation.hostname,
        trust=verified.trust,
        names=_names(validation) if verified.names else (),
        pins=verified.pins,
        waiver=verified.waiver,
        options=parsed.options,
    )
    warnings = parsed.warnings + verified.warnings
    return Judgement(None if problem else tls, problem, unresolved, warnings, verified.notes)


def _unusable(g: Graph, secret: Key) -> Problem | None:
    """Returns why the client certificate of a policy is invalid. A policy can name only Secrets in its own namespace."""
    pair = key_pair(g, secret)
    if not isinstance(pair, Problem):
        return None
    problem = pair.within(CLIENT_CERTIFICATE, reason=reasons.INVALID_CLIENT_CERTIFICATE_REF).at(FIELD)
    return problem if problem.remedy else msgspec.structs.replace(problem, remedy=PUT_CERTIFICATE)


def _name_problems(validation: BackendTLSPolicyValidation) -> Iterator[tuple[str, str]]:
    """Yields (field, problem) pairs. The CRDs check most of them too; Envoy refuses a cluster with an SNI of more than 255
    characters."""
    sans = validation.subject_alt_names
    yield from _hostname_problem("hostname", validation.hostname)
    if len(sans) > MAX_NAMES:
        yield "subjectAltNames", f"has {len(sans)} entries; use at most {MAX_NAMES}"
    for number, san in enumerate(sans[:MAX_NAMES]):
        name = f"subjectAltNames[{number}]"
        if san.type == "Hostname":
            yield from _hostname_problem(f"{name}.hostname", san.hostname, wildcard=True)
        elif san.type != "URI":
            yield f"{name}.type", f"{shown(san.type)} is unknown; use Hostname or URI"
        elif not URI.fullmatch(san.uri):
            yield f"{name}.uri", f"{shown(san.uri)} is not a URI; escape characters that are not printable ASCII"


def _hostname_problem(field: str, name: str, *, wildcard: bool = False) -> Iterator[tuple[str, str]]:
    if is_ip(name.strip("[]")):
        yield field, f"{name} is an IP address; a backend is verified by a DNS name or a URI"
    elif not is_hostname(name, wildcard=wildcard):
        yield field, f"{shown(name)} is not a DNS name; correct it"


def _names(validation: BackendTLSPolicyValidation) -> tuple[San, ...]:
    """Returns the names to verify. The hostname authenticates only where no subjectAltNames are given (GEP-1897)."""
    if not validation.subject_alt_names:
        return (San(SanType.DNS, validation.hostname.lower()),)
    return tuple(
        San(SanType.URI, san.uri) if san.type == "URI" else San(SanType.DNS, san.hostname.lower())
        for san in validation.subject_alt_names
    )
