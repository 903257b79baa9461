"""Decides which BackendTLSPolicy applies to a port of a Service or ServiceImport.

A policy that names the port (`sectionName`) takes precedence over one that names the whole Service. Among policies with the
same target the oldest wins, then the first by {namespace}/{name}. Precedence never looks at validity: an invalid or unreadable
policy that wins fails closed, or trust would change hands with a typo."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import LASTHOP_API, SERVICE_GROUPS
from lasthop.base.api.meta import LAST, Key, Object
from lasthop.base.api.names import is_dns_label
from lasthop.base.api.policies import BackendTLSPolicy, PolicyTargetReference, RejectedPolicy
from lasthop.base.text.suggestions import closest, typo_of
from lasthop.engine.resolve.policies.texts import read_texts
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

_IMPOSSIBLE: Final = re.compile("[^a-z0-9-]")
"""Characters that no Service name contains."""
_WORDS: Final = re.compile("[a-z0-9*-]+")
"""Possible names and patterns."""
_PLACEHOLDER: Final = re.compile(r"\$?\{+[^}]*\}+|\$\([^)]*\)|\$\w+|<[^>]*>|(?:enc)?\[[^]]*\]")
"""Parts that a template or an encrypted file leaves open."""
_PARTS: Final = re.compile(r"[\s,;|&+]+")
"""Separators of names in a list."""
_RESERVED: Final = re.compile(rf"(?:^|\.)(?:(?:x-)?k8s\.io|kubernetes\.io|{re.escape(LASTHOP_API)})$")
"""Groups of Kubernetes and Lasthop: they have no Services except those of `SERVICE_GROUPS`."""
WHOLE = ""
"""The section of a target for the whole Service."""


def service_of(policy: Key, target: PolicyTargetReference) -> Key | None:
    """Returns the Service or ServiceImport that a target names; None for other kinds."""
    group = "" if target.group == "core" else target.group
    return Key(target.kind, policy.namespace, target.name) if SERVICE_GROUPS.get(target.kind) == group else None


class TargetClaim(msgspec.Struct, frozen=True, order=True):
    """A policy's claim on a Service, in the order of precedence."""

    age: tuple[str, str]
    policy: Key
    sections: tuple[str, ...]
    rejected: str = ""
    """Why the policy could not be read completely."""


def rule_of(winner: tuple[str, str], loser: tuple[str, str]) -> str:
    """Returns the rule by which an object of one age takes precedence over another."""
    if winner[0] == loser[0]:
        return "is as old and comes first by name"
    return "has a creationTimestamp" if loser[0] == LAST else "is older"


CLAIMS = Index[Key, tuple[TargetClaim, ...]]("claim")
"""The claims of each policy by Service: one for each of its texts."""


@indexer("BackendTLSPolicy", keep_on_crash=True)
def index_claims(g: Graph, key: Key) -> Iterator[Entry]:
    """Indexes the claims of a policy, and for missing Services the closest existing ones. An unreadable text claims only
    targets that the policy's last good text does not name, because the last good text is in force. Against other policies,
    each text keeps its age."""
    policy, rejected = read_texts(g, key)
    sections_in_force = _sections(key, policy.spec.target_refs) if policy else {}
    by_service = (
        {service: (TargetClaim(policy.age, key, sections),) for service, sections in sections_in_force.items()}
        if policy
        else {}
    )
    if rejected:
        for service, sections in _sections(key, rejected.targets).items():
            good = sections_in_force.get(service, ())
            if new_sections := tuple(section for section in sections if section not in good and WHOLE not in good):
                by_service[service] = (
                    *by_service.get(service, ()),
                    TargetClaim(rejected.age, key, new_sections, rejected.message),
                )
    for service, claims in by_service.items():
        yield CLAIMS.entry((service,), claims)
    targets = (*(policy.spec.target_refs if policy else ()), *(rejected.targets if rejected else ()))
    for guesses in (g.shielded(_misaimed, key, sections_in_force), g.shielded(_mistyped, key, targets)):
        if not isinstance(guesses, Crash):
            yield from guesses


def _sections(policy: Key, targets: tuple[PolicyTargetReference, ...]) -> dict[Key, tuple[str, ...]]:
    sections: dict[Key, tuple[str, ...]] = {}
    for target in targets:
        if service := service_of(policy, target):
            sections[service] = (*sections.get(service, ()), target.section_name)
    return sections


def named_services(obj: Object | None) -> tuple[Key, ...]:
    """Returns the Services that a policy names in any of its texts; empty for other objects."""
    match obj:
        case BackendTLSPolicy():
            targets = obj.spec.target_refs
        case RejectedPolicy(last_good=good):
            targets = obj.targets + (good.spec.target_refs if good else ())
        case _:
            return ()
    return tuple(_sections(Key("BackendTLSPolicy", obj.metadata.namespace, obj.metadata.name), targets))


def claims(g: Graph, service: Key) -> tuple[TargetClaim, ...]:
    """Returns all policies that name the Service, in the order of precedence."""
    return tuple(sorted(itertools.chain.from_iterable(CLAIMS.of(g, service))))


def _first_of_each_section(claims: Collection[tuple[TargetClaim, ...]]) -> Mapping[str, TargetClaim]:
    first: dict[str, TargetClaim] = {}
    for claim in sorted(itertools.chain.from_iterable(claims)):
        for section in claim.sections:
            first.setdefault(section, claim)
    return first


WINNERS = CLAIMS.summary("winners", _first_of_each_section)
"""The winning policy of each section that a policy names, by Service."""


def section_winner(g: Graph, service: Key, section: str) -> TargetClaim | None:
    """Returns the winner among the policies that name exactly this section."""
    return WINNERS.of(g, service).get(section)


def port_winner(g: Graph, service: Key, port_name: str) -> TargetClaim | None:
    """Returns the policy that applies to a port. Only a policy for the whole Service can apply to an unnamed port."""
    winners = WINNERS.of(g, service)
    return (winners.get(port_name) if port_name else None) or winners.get(WHOLE)


class MissedTarget(msgspec.Struct, frozen=True, order=True):
    """A target that probably means a port of this Service, but names none that exists."""

    policy: Key
    target: str
    """The wrong part of the target, for example `port htps`."""
    section: str = WHOLE


class WildcardTarget(msgspec.Struct, frozen=True, order=True):
    """A target with `*` in its name. It may mean every Service whose name begins and ends like it."""

    first: str
    last: str
    missed: MissedTarget


MISTYPED = Index[Key, MissedTarget]("mistyped")
"""Targets with an impossible kind or name, by the Service that they probably mean."""
WILDCARDS = Index[str, str, tuple[WildcardTarget, ...]]("wildcard")
"""Targets with `*` in their name, by kind and namespace, one value for each policy."""


@query
def missed_targets(g: Graph, service_key: Key) -> tuple[MissedTarget, ...]:
    """Returns the targets that probably mean a port of this Service but name none that exists, the winning policy first."""
    name, wildcards = service_key.name, itertools.chain.from_iterable(WILDCARDS.of(g, service_key.kind, service_key.namespace))
    matching = (wildcard.missed for wildcard in wildcards if name.startswith(wildcard.first) and name.endswith(wildcard.last))
    return (*_missed_sections(g, service_key), *sorted((*MISTYPED.of(g, service_key), *matching)))


def _missed_sections(g: Graph, service_key: Key) -> list[MissedTarget]:
    service = read(g, service_key, AnyService)
    if service is None:
        return []
    names = {port.name for port in service.spec.ports}
    return [
        MissedTarget(claim.policy, f"port {section}", section)
        for claim in claims(g, service_key)
        for section in claim.sections
        if section != WHOLE and section not in names
    ]


def missed_target_text(g: Graph, service: Key, missed: MissedTarget) -> str:
    """Describes the error of a target, and its effect on the ports of the Service."""
    return missing_port(g, service, missed.section) if missed.section else mistyped_text((service,), missed.target)


def mistyped_text(services: Iterable[Key], target: str) -> str:
    names = list(map(str, services))
    verb = "is" if len(names) == 1 else "are"
    return f"{target} does not exist; {' and '.join(names)} {verb} probably meant, so {CLOSED_PORTS}"


CLOSED_PORTS: Final = "its ports without a policy return 500 unless their appProtocol is a plaintext protocol"


def mistyped_services(g: Graph, policy: Key, target: PolicyTargetReference) -> tuple[tuple[Key, ...], str]:
    """Returns the Services that a target with an impossible kind, group or name probably means, and the wrong part. Targets
    that may exist, or that belong to other systems, return no Services. A Key with `*` in its name means all matching
    Services."""
    kinds, wrong_part = _probable_kinds(policy, target)
    if not kinds or (is_dns_label(target.name) and not wrong_part):
        return (), ""
    wrong_part = wrong_part or f"{target.kind} {target.name!r}"
    keys = [Key(kind, policy.namespace, target.name) for kind in kinds]
    if is_dns_label(target.name):
        return tuple(key for key in keys if read(g, key, AnyService)) or tuple(keys), wrong_part
    parts = _PARTS.split(_PLACEHOLDER.sub("*", target.name.casefold()))
    existing_services = [existing for key in keys for part in parts if (existing := _existing_service(g, key, part))]
    guessed = existing_services or [key._replace(name=name) for key in keys if (name := closest_service(g, key))]
    return tuple(dict.fromkeys(guessed)), wrong_part


def _probable_kinds(policy: Key, target: PolicyTargetReference) -> tuple[tuple[str, ...], str]:
    """Returns the kinds that a target may mean, and the wrong part; no kinds for objects of other systems."""
    if service_of(policy, target):
        return (target.kind,), ""
    kind = target.kind if target.kind in SERVICE_GROUPS else closest(target.kind, SERVICE_GROUPS)
    if not kind or ("." in target.group and not _RESERVED.search(target.group)):
        return (), ""
    of_group = [kind for kind, group in SERVICE_GROUPS.items() if group and group == target.group]
    wrong_part = f"kind {target.kind}" + (f" of group {target.group}" if target.group else "")
    return tuple(dict.fromkeys((kind, *of_group))), wrong_part


def _existing_service(g: Graph, key: Key, text: str) -> Key | None:
    """Returns the Service that a text names with other characters around it, as in `shop/api`, `api.shop.svc` or `api:443`."""
    words = [word for segment in reversed(text.split("/")) for word in _WORDS.findall(segment)]
    alone = () if "*" in text else (_IMPOSSIBLE.sub("", text),)
    candidates = (key._replace(name=name.strip("-")) for name in (*alone, *words))
    return next(
        (
            candidate
            for candidate in candidates
            if "*" in candidate.name or (candidate.name and read(g, candidate, AnyService))
        ),
        None,
    )


@query
def missing_port(g: Graph, service_key: Key, section: str) -> str:
    """Describes the missing port of a Service, the existing ones, and the effect on them."""
    service = read(g, service_key, AnyService)
    names = [p.name for p in service.spec.ports if p.name] if service else []
    guess = typo_of(section, names)
    existing = f"it has {', '.join(names) or 'no named port'}" + (f"; did you mean {guess}?" if guess else "")
    return f"{service_key} has no port named {section} ({existing}), so {CLOSED_PORTS}"


SERVICES = Index[str, str, str]("service")
"""Names of Services by kind and namespace, for suggestions."""
MAX_SERVICES: Final = 200
"""Namespaces with more Services get no suggestions: every change of a Service would run the comparison for each misspelled
policy again."""


@indexer("Service")
def index_services(g: Graph, key: Key) -> Iterator[Entry]:
    yield SERVICES.entry((key.kind, key.namespace), key.name)


@indexer("ServiceImport")
def index_service_imports(g: Graph, key: Key) -> Iterator[Entry]:
    yield SERVICES.entry((key.kind, key.namespace), key.name)


@query
def closest_service(g: Graph, service: Key) -> str:
    """Suggests the closest existing name for a missing Service; empty if there is none."""
    if SERVICES.size(g, service.kind, service.namespace) > MAX_SERVICES:
        return ""
    return typo_of(service.name, SERVICES.of(g, service.kind, service.namespace))


MISAIMED = Index[Key, tuple[Key, str]]("misaimed")
"""(policy, misspelled name) of policies for missing Services, by the Service that they probably mean."""


def _misaimed(g: Graph, policy: Key, services: Iterable[Key]) -> list[Entry]:
    missing = [service for service in services if read(g, service, AnyService) is None]
    guesses = [(service, closest_service(g, service)) for service in missing]
    return [MISAIMED.entry((service._replace(name=guess),), (policy, service.name)) for service, guess in guesses if guess]


def _mistyped(g: Graph, policy: Key, targets: Iterable[PolicyTargetReference]) -> list[Entry]:
    entries: list[Entry] = []
    patterns: dict[Key, tuple[WildcardTarget, ...]] = {}
    for target in targets:
        services, wrong_part = mistyped_services(g, policy, target)
        for service in services:
            missed, before = MissedTarget(policy, wrong_part), service._replace(name="")
            if "*" in service.name:
                first, last = service.name.partition("*")[0], service.name.rpartition("*")[2]
                patterns[before] = (*patterns.get(before, ()), WildcardTarget(first, last, missed))
            else:
                entries.append(MISTYPED.entry((service,), missed))
    return [*entries, *(WILDCARDS.entry((key.kind, key.namespace), wildcards) for key, wildcards in patterns.items())]


def misaimed(g: Graph, service: Key) -> tuple[tuple[Key, str], ...]:
    """Returns the policies that probably mean this Service, each with the misspelled name."""
    return MISAIMED.of(g, service)
