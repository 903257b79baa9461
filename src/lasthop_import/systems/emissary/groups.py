"""Reads the matches of Mappings, and groups Mappings with equal matches [ir/irhttpmapping, ir/irhttpmappinggroup].

A group shares its requests by weight. Mappings without a hostname are also grouped by the labels that Hosts select, so that
Mappings of different Hosts are never one group. Emissary does not use a Mapping that contradicts the first of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lasthop_import.model import ImportedMatch, ImportedValueMatch, PathKind, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.hosts import EmissaryHost, MappingHost
from lasthop_import.values import LONGEST_MATCH, exact_path, is_host, methods, string_prefix, value_match

AUTHORITY: Final = ":authority"
ACME: Final = "/.well-known/acme-challenge/"
CORE: Final = (
    *("bypass_auth", "circuit_breakers", "connect_timeout_ms", "cluster_idle_timeout_ms", "keepalive", "labels"),
    *("cluster_max_connection_lifetime_ms", "load_balancer", "prefix_regex", "prefix_exact", "method_regex", "host_regex"),
    *("headers", "regex_headers"),
)
"""Fields that must equal the first Mapping's, if a Mapping sets them."""
ALWAYS: Final = ("circuit_breakers",)
"""Fields of CORE that must equal the first Mapping's even if a Mapping does not set them."""


class MatchedMapping(msgspec.Struct, frozen=True):
    """A Mapping with its matches."""

    spec: FieldReader
    mapping_host: MappingHost
    path: PathMatch
    matches: tuple[ImportedMatch, ...]
    identity: tuple[object, ...]
    """Equal for Mappings that Emissary puts into one group, apart from the labels that Hosts select."""
    rank: tuple[object, ...]
    """Emissary tries the highest rank first."""

    @property
    def labels(self) -> Mapping[str, Any]:
        return self.spec.document.labels

    @property
    def for_acme(self) -> bool:
        """Whether it is routed without TLS regardless of the Host."""
        return self.path == PathMatch(PathKind.STRING, ACME)


class MappingGroup(msgspec.Struct, frozen=True):
    mappings: tuple[MatchedMapping, ...]
    """Empty: a redirect."""
    redirect: MatchedMapping | None
    shadow: MatchedMapping | None

    @property
    def first(self) -> MatchedMapping:
        return self.redirect or self.mappings[0]

    @property
    def members(self) -> tuple[MatchedMapping, ...]:
        return (*self.mappings, *(mapping for mapping in (self.redirect, self.shadow) if mapping))

    @property
    def labels(self) -> Mapping[str, Any]:
        """Labels of all Mappings. A redirect has none, so that no selector matches it."""
        return {key: value for mapping in self.mappings for key, value in mapping.labels.items()}


def grouped(mappings: Iterable[MatchedMapping], hosts: Sequence[EmissaryHost]) -> list[MappingGroup]:
    """Returns the groups of Mappings that Emissary uses, in the order in which it tries them."""
    by_key: dict[tuple[object, ...], list[MatchedMapping]] = {}
    for mapping in mappings:
        by_key.setdefault((mapping.identity, _selected_by(mapping, hosts)), []).append(mapping)
    groups = [group for members in by_key.values() if (group := _group(members))]
    return list(reversed(sorted(groups, key=lambda group: group.first.rank)))


def _selected_by(matched: MatchedMapping, hosts: Sequence[EmissaryHost]) -> tuple[object, ...]:
    if matched.mapping_host.hostname is not None:
        return ()
    selecting = (host.selector or {} for host in hosts if host.selects(matched.labels))
    return tuple(item for selector in selecting for item in sorted(selector.items()))


def _group(members: Sequence[MatchedMapping]) -> MappingGroup | None:
    core = {key: value for key in CORE if (value := members[0].spec.value.get(key)) is not None}
    mappings: list[MatchedMapping] = []
    redirect: MatchedMapping | None = None
    shadow: MatchedMapping | None = None
    for mapping in members:
        written = mapping.spec.value
        differing = [
            key for key in CORE if (key in ALWAYS or written.get(key) is not None) and written.get(key) != core.get(key)
        ]
        if differing:
            _refuse(mapping, f"{', '.join(differing)} is not as in {members[0].spec.document.name}, which matches the same")
        elif written.get("shadow"):
            if shadow:
                _refuse(mapping, f"{shadow.spec.document.name} is the shadow of these requests already")
            shadow = shadow or mapping
        elif redirect or (written.get("host_redirect") and mappings):
            first = redirect or mappings[0]
            _refuse(mapping, f"{first.spec.document.name} matches the same, and only one of the two redirects")
        elif written.get("host_redirect"):
            redirect = mapping
        else:
            mappings.append(mapping)
    if not mappings and not redirect:
        for mapping in filter(None, (shadow,)):
            _refuse(mapping, "it is a shadow, and no other Mapping matches the same")
        return None
    return MappingGroup(tuple(mappings), redirect, shadow)


def _refuse(matched: MatchedMapping, why: str) -> None:
    text = f"Emissary does not use the Mapping: {why}"
    matched.spec.note(Category.SKIPPED, "mapping-refused", text, severity=NoteSeverity.WARNING)
    matched.spec.ignore(*matched.spec.value)


# --- matches ---------------------------------------------------------------------------------------------------------


def read_match(spec: FieldReader) -> MatchedMapping | None:
    """Returns a Mapping with its matches; None if they cannot be written, because the rule would match more."""
    problems: list[str] = []
    mapping_host, path = _mapping_host(spec, problems), _path(spec)
    prefix = spec.text("prefix")
    if not prefix:
        problems.append("no prefix")
    method, pattern = spec.text("method"), spec.boolean("method_regex")
    verbs = methods(method, regex=pattern) if method else ("",)
    if verbs is None:
        problems.append("a method that cannot be listed")
    headers = _values(spec, "headers", "regex_headers", problems)
    query = _values(spec, "query_parameters", "regex_query_parameters", problems)
    if mapping_host.pattern:
        headers = (*headers, ImportedValueMatch("Host", mapping_host.pattern, regex=True))
    precedence = spec.integer("precedence") or 0
    if problems or verbs is None:
        text = f"the Mapping is left out, because it has {', and '.join(problems)}, for which there is no equivalent"
        spec.note(Category.CANNOT, "mapping-left-out", text, severity=NoteSeverity.HIGH)
        spec.ignore(*spec.value)
        return None
    matches = tuple(ImportedMatch(path, headers, query, verb) for verb in verbs)
    compared = _compared(spec, mapping_host, method, pattern)
    asking = _items(spec, "query_parameters", "regex_query_parameters")
    identity = (prefix, *((name, value) for name, value, _ in compared), "?", *((n, v) for n, v, _ in asking), precedence)
    rank = (precedence, len(prefix), _length(compared), _length(asking), prefix, *_keys(compared), *_keys(asking))
    return MatchedMapping(spec, mapping_host, path, matches, identity, rank)


Compared = list[tuple[str, str, bool]]
"""Names, values (empty: any), and whether the values are regular expressions."""


def _compared(spec: FieldReader, mapping_host: MappingHost, method: str, pattern: bool) -> Compared:
    """Returns the headers that Emissary compares, in its order, including Host and method."""
    headers = [item for item in _items(spec, "headers", "regex_headers") if item[2] or item[0].lower() != AUTHORITY]
    host = "*" if mapping_host.hostname == "" else mapping_host.pattern or mapping_host.hostname
    if host:
        headers.append((AUTHORITY, host, bool(mapping_host.pattern)))
    return [*headers, (":method", method, pattern)] if method else headers


def _items(spec: FieldReader, exact: str, regex: str) -> Compared:
    return [
        (name, value if isinstance(value, str) else "", key == regex)
        for key in (exact, regex)
        for name, value in sorted(spec.mapping(key).items())
    ]


def _length(compared: Compared) -> int:
    return sum(len(name) + (len(value) or 1) + regex for name, value, regex in compared)


def _keys(compared: Compared) -> list[str]:
    return [f"{name}-{value or '*'}" for name, value, _ in compared]


def _path(spec: FieldReader) -> PathMatch:
    prefix, insensitive = spec.text("prefix"), spec.value.get("case_sensitive") is False
    regex, exact = spec.boolean("prefix_regex"), spec.boolean("prefix_exact")
    spec.boolean("case_sensitive", True)
    if regex:
        return PathMatch(PathKind.REGEX, f"(?i){prefix}" if insensitive else prefix)
    return exact_path(prefix, ignore_case=insensitive) if exact else string_prefix(prefix, ignore_case=insensitive)


def _mapping_host(spec: FieldReader, problems: list[str]) -> MappingHost:
    """Returns the hosts that a Mapping names: by `hostname`, which v2 and v1 write as `host`, or by `host`."""
    old = spec.document.api_version.rpartition("/")[2] in ("v1", "v2")
    host, pattern, glob = spec.text("host"), spec.boolean("host_regex"), spec.text("hostname")
    if old:
        if glob:
            text = "this version has no such field, and an API server drops it; host is used"
            spec.note(Category.CHANGED, "hostname-in-old-version", text, "hostname")
        glob, host = ("", host) if pattern else (host or "*", "")
    if glob:
        return _glob(glob.lower(), problems)
    host = host or _authority(spec)
    if not host:
        return MappingHost(None)
    if pattern:
        if len(host) > LONGEST_MATCH or not host.isprintable():
            problems.append("host_regex")
        return MappingHost(None, host)
    if "*" in host:
        problems.append(f"the host {host[:100]}, in which Emissary takes no *")
    return _glob(host.lower(), problems)


def _glob(hostname: str, problems: list[str]) -> MappingHost:
    if hostname != "*" and not is_host(hostname):
        problems.append(f"the hostname {hostname[:100]}")
    return MappingHost("" if hostname == "*" else hostname)


def _authority(spec: FieldReader) -> str:
    headers = spec.value.get("headers")
    host = headers.get(AUTHORITY) if isinstance(headers, dict) else None
    return host if isinstance(host, str) else ""


def _values(spec: FieldReader, exact: str, regex: str, problems: list[str]) -> tuple[ImportedValueMatch, ...]:
    matches: list[ImportedValueMatch] = []
    for key, kind in ((exact, "exact"), (regex, "regex")):
        values: dict[str, Any] = spec.mapping(key)
        for name, value in sorted(values.items()):
            if key == "headers" and name.lower() == AUTHORITY:
                continue
            name = "Host" if name.lower() == AUTHORITY else name
            match = value_match(name, "present", "") if value is True else None
            if isinstance(value, str):
                match = value_match(name, kind, value)
            if match is None:
                problems.append(f"{key}: {name[:60]}")
            else:
                matches.append(match)
    return tuple(matches)
