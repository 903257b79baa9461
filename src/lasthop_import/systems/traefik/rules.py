"""Translates routers to rules: one rule for each set of hosts with the same matches, with and without TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from lasthop_import import values
from lasthop_import.inputs import Inputs
from lasthop_import.model import ImportedListener, ImportedMatch, ImportedRule, ListenerKey, RouteKind
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.order import order_notes
from lasthop_import.systems.traefik.front import EntryPointListeners, ListenerKeys, Termination
from lasthop_import.systems.traefik.matches import Alternative
from lasthop_import.systems.traefik.middlewares import RedirectMiddleware, Steps, path_modifier
from lasthop_import.systems.traefik.services import ServiceHops
from lasthop_import.systems.traefik.static import EntryPoint
from lasthop_import.values import ROOT, url_rewrite

Groups = list[tuple[tuple[str, ...], tuple[ImportedMatch, ...]]]
"""Sets of hosts with the same matches. An empty set means all hosts."""


class Router(NamedTuple):
    """A router, as Traefik builds it from a route."""

    source: SourceRef
    namespace: str
    route: str
    alternatives: tuple[Alternative, ...]
    points: tuple[EntryPoint, ...]
    priority: int
    service_hops: ServiceHops
    steps: Steps
    tls: Termination | None = None
    """None uses the default certificate on entry points with TLS."""
    only_tls: bool = False
    refused: str = ""

    @property
    def plain_ports(self) -> set[int]:
        """The ports on which it accepts requests without TLS, or whose entry point redirects them."""
        return {point.port for point in self.points if not point.tls and (not self.only_tls or point.redirect)}


class TraefikRules:
    def __init__(self, inputs: Inputs, front: EntryPointListeners) -> None:
        self._inputs = inputs
        self._front = front
        self._routers: list[Router] = []
        self._ranked: list[tuple[tuple[object, ...], ImportedRule]] = []
        self._redirected: dict[EntryPoint, tuple[SourceRef, str]] = {}

    def add(self, router: Router) -> None:
        self._routers.append(router)

    def _write(self, router: Router) -> None:
        """Adds the rules of a router. Refused rules are added too, because their hops are rows of the report."""
        groups = _groups(router.alternatives)
        points = tuple(point for point in router.points if not point.redirect or point.tls)
        for point in router.points:
            if point not in points:
                self._redirected.setdefault(point, (router.source, router.namespace))
        if router.refused:
            self._refuse(router, router.refused)
            return
        keys = self._front.http(router.source, points, _hosts(groups), router.tls, only_tls=router.only_tls)
        if isinstance(keys, str):
            self._refuse(router, keys)
        elif points:
            self._add_groups(router, groups, keys)
        elif not router.points:
            self._refuse(router, "none of its entry points is known")

    def _add_groups(self, router: Router, groups: Groups, keys: ListenerKeys) -> None:
        """Adds the rules of all hosts, with separate rules for TLS where the redirect or headers differ."""
        redirect, headers = router.steps.redirect, router.steps.headers
        problem = router.steps.refused or router.service_hops.refused
        alike = redirect is None and headers.filters(secure=True) == headers.filters(secure=False)
        both = [(False, (*keys.plain, *keys.secure))] if alike else [(False, keys.plain), (True, keys.secure)]
        written = False
        variants = [(secure, listeners) for secure, listeners in both if listeners]
        for names, matches in groups:
            for secure, listeners in variants:
                rules: Iterable[ImportedRule] = ()
                if redirect is not None and redirect.scheme == ("http" if secure else "https"):
                    rules = [self._redirect(router, names, matches, listeners, redirect)]
                elif not problem:
                    rules = self._served(router, names, matches, listeners, secure)
                for rule in rules:
                    self._rank(router, rule)
                    written = True
        if problem and not (written and not router.service_hops.hops):
            self._refuse(router, problem)

    def rules(self) -> tuple[ImportedRule, ...]:
        """Returns all rules in Traefik's order, and lists differences to the order of Gateway API."""
        self._front.plain_ports = frozenset[int]().union(
            *(router.plain_ports for router in self._routers if not router.refused)
        )
        for router in self._routers:
            self._write(router)
        ranked = [rule for _, rule in sorted(self._ranked, key=lambda entry: entry[0])]
        self._inputs.notes += order_notes(rule for rule in ranked if not rule.refused and rule.kind is RouteKind.HTTP)
        self._note_catch_all(ranked)
        return (*ranked, *self._entry_point_redirects())

    def _note_catch_all(self, rules: list[ImportedRule]) -> None:
        """Lists rules for all hosts if other rules name hosts. In Gateway API, a host with its own rules uses only these."""
        ports = {key.port for rule in rules if rule.hostnames for key in rule.listeners}
        for rule in rules:
            if not rule.hostnames and ports & {key.port for key in rule.listeners}:
                text = "applied to requests for any host; now only to those for hosts without other rules"
                remedy = "Add the hostnames for which it is wanted."
                self._inputs.notes.append(Note(Category.LOOSENED, "catch-all-host", text, rule.source, remedy=remedy))

    def _rank(self, router: Router, rule: ImportedRule) -> None:
        self._ranked.append(((-router.priority, *router.source.order, len(self._ranked)), rule))

    def _refuse(self, router: Router, why: str) -> None:
        service_hops = router.service_hops
        rule = ImportedRule(router.source, router.namespace, router.route, (), refused=why)
        rule = msgspec.structs.replace(rule, hops=service_hops.hops, mirrors=service_hops.mirrors, auth=router.steps.auth)
        self._rank(router, rule)

    # --- kinds of rules ----------------------------------------------------------------------------------------------

    def _served(
        self,
        router: Router,
        names: tuple[str, ...],
        matches: tuple[ImportedMatch, ...],
        listeners: tuple[ListenerKey, ...],
        secure: bool,
    ) -> Iterator[ImportedRule]:
        steps, service_hops = router.steps, router.service_hops
        filters = steps.headers.filters(secure=secure)
        for rule_matches in [(match,) for match in matches] if steps.edits else [matches]:
            modifier = path_modifier(rule_matches[0].path, steps.edits) if steps.edits else None
            rewrite = url_rewrite(steps.headers.host, modifier)
            # A rule cannot rewrite the Host twice; the middleware came last in Traefik only for the request's own Host.
            hops = (
                tuple(msgspec.structs.replace(hop, filters=()) for hop in service_hops.hops) if rewrite else service_hops.hops
            )
            yield ImportedRule(
                router.source,
                router.namespace,
                router.route,
                listeners,
                names,
                matches=rule_matches,
                filters=(*filters, *rewrite),
                hops=hops,
                mirrors=service_hops.mirrors,
                auth=steps.auth,
                retry=steps.retry,
                persistence=service_hops.persistence,
            )

    def _redirect(
        self,
        router: Router,
        names: tuple[str, ...],
        matches: tuple[ImportedMatch, ...],
        listeners: tuple[ListenerKey, ...],
        redirect: RedirectMiddleware,
    ) -> ImportedRule:
        filters = (values.redirect(redirect.scheme, port=redirect.port, code=redirect.code),)
        name = f"{router.route}-{redirect.scheme}-redirect"
        return ImportedRule(router.source, router.namespace, name, listeners, names, matches=matches, filters=filters)

    def _entry_point_redirects(self) -> Iterator[ImportedRule]:
        for point, (source, namespace) in sorted(self._redirected.items(), key=lambda item: item[0].name):
            listener = ImportedListener(source, point.port, "HTTP")
            self._front.listeners.append(listener)
            filters = (values.redirect(point.redirect, code=301),)
            name = f"{point.name}-redirect"
            yield ImportedRule(source, namespace, name, (listener.key,), matches=(ROOT,), filters=filters)


def _hosts(groups: Groups) -> tuple[str, ...]:
    """Returns the hosts of all groups, and "" if a group is for any host."""
    hosts = tuple(dict.fromkeys(host for names, _ in groups for host in names))
    return hosts if all(names for names, _ in groups) else ("", *hosts)


def _groups(alternatives: Iterable[Alternative]) -> Groups:
    by_host: dict[str, list[ImportedMatch]] = {}
    for alternative in alternatives:
        match = alternative.match if alternative.match != ImportedMatch() else ROOT
        by_host.setdefault(alternative.host, []).append(match)
    by_matches: dict[tuple[ImportedMatch, ...], list[str]] = {}
    for host, matches in by_host.items():
        by_matches.setdefault(tuple(matches), []).append(host)
    return [
        (tuple(host for host in hosts if host), matches) for matches, group in by_matches.items() for hosts in _split(group)
    ]


def _split(hosts: list[str]) -> list[list[str]]:
    """Separates "", which means all hosts, from the other hosts."""
    names = [host for host in hosts if host]
    return [*([names] if names else []), *([[""]] if "" in hosts else [])]
