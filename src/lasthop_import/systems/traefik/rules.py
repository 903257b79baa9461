"""Turns routers into rules: one rule for each set of hosts with the same matches, with and without TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from lasthop_import import values
from lasthop_import.inputs import Inputs
from lasthop_import.model import ImportedListener, ImportedMatch, ImportedRule, ListenerKey, RouteKind
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.order import order_notes
from lasthop_import.systems.traefik.front import EntryPointListeners, Keys, Termination
from lasthop_import.systems.traefik.matches import Alternative
from lasthop_import.systems.traefik.middlewares import RedirectMiddleware, Steps, path_modifier
from lasthop_import.systems.traefik.services import ServiceHops
from lasthop_import.systems.traefik.static import EntryPoint
from lasthop_import.values import ROOT, url_rewrite

Groups = list[tuple[tuple[str, ...], tuple[ImportedMatch, ...]]]
"""Hosts that are matched alike, with their matches; without hosts: all."""


class Router(NamedTuple):
    """One router, as Traefik would have it."""

    source: SourceRef
    namespace: str
    route: str
    alternatives: tuple[Alternative, ...]
    points: tuple[EntryPoint, ...]
    priority: int
    found: ServiceHops
    steps: Steps
    tls: Termination | None = None
    """None: on entry points with TLS the default certificate is used."""
    only_tls: bool = False
    refused: str = ""

    @property
    def plain_ports(self) -> set[int]:
        """The ports on which it takes requests without TLS, or whose entry point redirects them."""
        return {each.port for each in self.points if not each.tls and (not self.only_tls or each.redirect)}


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
        """Writes the rules of a router. Refused rules are added all the same: their hops are rows of the report."""
        groups = _groups(router.alternatives)
        points = tuple(each for each in router.points if not each.redirect or each.tls)
        for each in router.points:
            if each not in points:
                self._redirected.setdefault(each, (router.source, router.namespace))
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

    def _add_groups(self, router: Router, groups: Groups, keys: Keys) -> None:
        """Adds the rules of all hosts, with and without TLS apart where that makes a difference."""
        redirect, headers = router.steps.redirect, router.steps.headers
        problem = router.steps.refused or router.found.refused
        alike = redirect is None and headers.filters(secure=True) == headers.filters(secure=False)
        both = [(False, (*keys.plain, *keys.secure))] if alike else [(False, keys.plain), (True, keys.secure)]
        written = False
        ways = [(secure, listeners) for secure, listeners in both if listeners]
        for names, matches in groups:
            for secure, listeners in ways:
                rules: Iterable[ImportedRule] = ()
                if redirect is not None and redirect.scheme == ("http" if secure else "https"):
                    rules = [self._redirect(router, names, matches, listeners, redirect)]
                elif not problem:
                    rules = self._served(router, names, matches, listeners, secure)
                for rule in rules:
                    self._rank(router, rule)
                    written = True
        if problem and not (written and not router.found.hops):
            self._refuse(router, problem)

    def rules(self) -> tuple[ImportedRule, ...]:
        """Returns all rules in the order in which Traefik tries them, and lists where Gateway API has another."""
        self._front.plain_ports = frozenset[int]().union(*(each.plain_ports for each in self._routers if not each.refused))
        for router in self._routers:
            self._write(router)
        ranked = [rule for _, rule in sorted(self._ranked, key=lambda each: each[0])]
        self._inputs.notes += order_notes(each for each in ranked if not each.refused and each.kind is RouteKind.HTTP)
        self._note_catch_all(ranked)
        return (*ranked, *self._entry_point_redirects())

    def _note_catch_all(self, rules: list[ImportedRule]) -> None:
        """Lists rules for all hosts beside rules for some: a host that has rules is served by these only."""
        named = {key.port for rule in rules if rule.hostnames for key in rule.listeners}
        for rule in rules:
            if not rule.hostnames and named & {key.port for key in rule.listeners}:
                text = "applied to requests for any host; now not to those for hosts that have rules of their own"
                remedy = "Add the hostnames for which it is wanted."
                self._inputs.notes.append(Note(Category.LOOSENED, "catch-all-host", text, rule.source, remedy=remedy))

    def _rank(self, router: Router, rule: ImportedRule) -> None:
        self._ranked.append(((-router.priority, *router.source.order, len(self._ranked)), rule))

    def _refuse(self, router: Router, why: str) -> None:
        found = router.found
        rule = ImportedRule(router.source, router.namespace, router.route, (), refused=why)
        rule = msgspec.structs.replace(rule, hops=found.hops, mirrors=found.mirrors, auth=router.steps.auth)
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
        steps, found = router.steps, router.found
        filters = steps.headers.filters(secure=secure)
        for some in [(each,) for each in matches] if steps.edits else [matches]:
            modifier = path_modifier(some[0].path, steps.edits) if steps.edits else None
            rewrite = url_rewrite(steps.headers.host, modifier)
            # A rule cannot rewrite the Host twice; the middleware came last in Traefik only for the request's own Host.
            hops = tuple(msgspec.structs.replace(each, filters=()) for each in found.hops) if rewrite else found.hops
            yield ImportedRule(
                router.source,
                router.namespace,
                router.route,
                listeners,
                names,
                matches=some,
                filters=(*filters, *rewrite),
                hops=hops,
                mirrors=found.mirrors,
                auth=steps.auth,
                retry=steps.retry,
                persistence=found.persistence,
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
        for point, (source, namespace) in sorted(self._redirected.items(), key=lambda each: each[0].name):
            listener = ImportedListener(source, point.port, "HTTP")
            self._front.listeners.append(listener)
            filters = (values.redirect(point.redirect, code=301),)
            name = f"{point.name}-redirect"
            yield ImportedRule(source, namespace, name, (listener.key,), matches=(ROOT,), filters=filters)


def _hosts(groups: Groups) -> tuple[str, ...]:
    """Returns the hosts of all groups, and "" if one of them is for any."""
    hosts = tuple(dict.fromkeys(host for names, _ in groups for host in names))
    return hosts if all(names for names, _ in groups) else ("", *hosts)


def _groups(alternatives: Iterable[Alternative]) -> Groups:
    by_host: dict[str, list[ImportedMatch]] = {}
    for each in alternatives:
        match = each.match if each.match != ImportedMatch() else ROOT
        by_host.setdefault(each.host, []).append(match)
    by_matches: dict[tuple[ImportedMatch, ...], list[str]] = {}
    for host, matches in by_host.items():
        by_matches.setdefault(tuple(matches), []).append(host)
    return [
        (tuple(each for each in hosts if each), matches) for matches, found in by_matches.items() for hosts in _split(found)
    ]


def _split(hosts: list[str]) -> list[list[str]]:
    """Returns the hosts apart from "", which is all of them."""
    named = [each for each in hosts if each]
    return [*([named] if named else []), *([[""]] if "" in hosts else [])]
