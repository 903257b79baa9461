"""Explains a route: its state at each Gateway that it names, its hostnames, and each of its rules."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api import routes as api
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.hops import hop_fact
from lasthop.engine.outputs.status.routes import REFUSAL
from lasthop.engine.plan.routing import Parent
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import BackendTarget, target
from lasthop.engine.resolve.gateways.listener_sets import route_parent
from lasthop.engine.resolve.gateways.ours import is_ours, not_ours
from lasthop.engine.resolve.routing.attachment import PARENT_KINDS, parent_key, parents
from lasthop.engine.resolve.routing.route_references import filter_references
from lasthop.engine.resolve.routing.routes import read_route, request_rules, route_judgement
from lasthop.engine.resolve.routing.streams import owner as stream_owner
from lasthop.engine.store.graph import Graph


def explain_route(g: Graph, key: Key) -> Fact:
    obj = read_route(g, key)
    if obj is None:
        return bad(f"{key} does not exist")
    attached = parents(g, key)
    facts = [_foreign(g, key, ref) for ref in obj.spec.parent_refs if not is_ours(g, key, ref)]
    for owner in dict.fromkeys(parent.owner for parent in attached):
        facts.append(_at(g, key, obj, owner, [parent for parent in attached if parent.owner == owner]))
    return Fact(str(key), worst(facts), tuple(facts), key)


def _foreign(g: Graph, key: Key, ref: api.ParentReference) -> Fact:
    parent = parent_key(key, ref)
    if (ref.group, ref.kind) not in PARENT_KINDS:
        return plain(f"{parent}: ignored, only Gateways and ListenerSets are supported")
    return warning(f"{parent}: no effect, ", object=parent, why=not_ours(g, parent))


def _at(g: Graph, key: Key, obj: api.Route, owner: Key, attached: list[Parent]) -> Fact:
    accepted = [parent for parent in attached if parent.problem is None]
    refused = [_refused(parent) for parent in attached if parent.problem]
    if not accepted:
        return bad(f"{owner}: not accepted", *refused, object=owner)
    facts = [*refused, *(_served(g, parent) for parent in accepted), *_rules(g, key, obj, accepted)]
    return Fact(f"{owner}: accepted", worst(facts), tuple(facts), owner)


def _rules(g: Graph, key: Key, obj: api.Route, accepted: list[Parent]) -> Iterator[Fact]:
    gateway = accepted[0].gateway
    protocols = tuple(dict.fromkeys(protocol for parent in accepted for protocol in parent.protocols))
    if isinstance(obj, api.StreamRoute):
        yield from _rivals(g, key, accepted)
        yield from (_stream(g, key, gateway, rule, protocol) for rule in obj.spec.rules[:1] for protocol in protocols)
    else:
        yield from (_rule(g, key, gateway, number, rule, protocols[0]) for number, rule in enumerate(request_rules(obj)))


def _refused(parent: Parent) -> Fact:
    assert parent.problem is not None
    where = f"listener {parent.section_name}: " if parent.section_name else ""
    return bad(f"{where}{parent.problem.reason}, ", why=parent.problem)


def _served(g: Graph, parent: Parent) -> Fact:
    names = sorted({hostname or "any hostname" for _, hostname in parent.hosts})
    owner = route_parent(g, parent.owner)
    ports = {listener.name: f"{listener.name} (port {listener.port})" for listener in (owner.listeners if owner else ())}
    listeners = ", ".join(ports.get(name, name) for name in parent.listeners)
    if not names:
        return bad(f"attached to listener {listeners}, which serves none of its hostnames")
    return good(f"served by listener {listeners} for {', '.join(names)}")


def _rivals(g: Graph, key: Key, accepted: list[Parent]) -> Iterator[Fact]:
    """Yields routes that take the connections of this one."""
    for parent in accepted:
        for table, hostname in parent.hosts:
            winner = stream_owner(g, parent.gateway, table, hostname)
            if winner and winner != key:
                yield warning(
                    f"{f'not for {hostname}' if hostname else 'for nothing'}: {winner} takes precedence", object=winner
                )


def _stream(g: Graph, key: Key, owner: Key, rule: api.StreamRouteRule, protocol: Protocol) -> Fact:
    facts = _shares(g, key, owner, rule, protocol)
    if not any(ref.weight for ref in rule.backend_refs):
        facts.append(bad("no backend, so nothing is forwarded"))
    texts = {Protocol.UDP: "datagrams are forwarded", Protocol.PASSTHROUGH: "connections are forwarded as they are"}
    return Fact(texts.get(protocol, "connections are forwarded"), worst(facts), tuple(facts))


def _shares(
    g: Graph, key: Key, owner: Key, rule: api.RequestRouteRule | api.StreamRouteRule, protocol: Protocol
) -> list[Fact]:
    total, several = sum(ref.weight for ref in rule.backend_refs), len(rule.backend_refs) > 1
    shares = (f"{ref.weight} of {total} to " if several else "" for ref in rule.backend_refs)
    return [reference_fact(g, key, owner, ref, share, protocol) for ref, share in zip(rule.backend_refs, shares, strict=True)]


def _rule(g: Graph, key: Key, owner: Key, number: int, rule: api.RequestRouteRule, protocol: Protocol) -> Fact:
    text = f"rule {number}{f' ({rule.name})' if rule.name else ''}: {' or '.join(matched(m) for m in rule.matches)}"
    wrong = [bad(problem_text) for problem_text in map(str, route_judgement(g, key, owner).rules[number].problems)]
    if wrong:
        return bad(f"{text} returns {REFUSAL[key.kind]}", *wrong)
    facts = [*_filters(g, key, owner, rule, protocol), *_shares(g, key, owner, rule, protocol)]
    redirected = any(filter.request_redirect for filter in rule.filters)
    if not any(ref.weight for ref in rule.backend_refs) and not redirected:
        facts.append(bad(f"no backend, so every request gets {REFUSAL[key.kind]}"))
    return Fact(text, worst(facts), tuple(facts))


def _filters(g: Graph, key: Key, owner: Key, rule: api.RequestRouteRule, protocol: Protocol) -> Iterator[Fact]:
    for filter in rule.filters:
        if leads := list(filter_references(filter)):
            yield from (reference_fact(g, key, owner, lead.ref, lead.role, lead.protocol or protocol) for lead in leads)
        elif redirect := filter.request_redirect:
            to = "".join((redirect.scheme and f" {redirect.scheme}://", redirect.hostname and f" {redirect.hostname}"))
            yield good(f"returns {redirect.status_code}, redirect{to}")
        else:
            yield plain(f"filter {filter.type}")


def reference_fact(g: Graph, key: Key, owner: Key, ref: api.BackendObjectReference, role: str, protocol: Protocol) -> Fact:
    """Explains the hop of a reference, or why the reference is invalid."""
    backend = target(g, key, ref)
    if not isinstance(backend, BackendTarget):
        return bad(f"{role}{ref.kind} {ref.namespace or key.namespace}/{ref.name}: refused, ", why=backend)
    return hop_fact(g, Hop(owner, backend.backend, backend.port, protocol), role)


def matched(match: api.HTTPRouteMatch | api.GRPCRouteMatch) -> str:
    """Describes a match: `GET /path/* with header x: y`."""
    if isinstance(match, api.GRPCRouteMatch):
        called = "/".join(part or "*" for part in (match.method.service, match.method.method))
        called = f"~{called}" if match.method.type != "Exact" else called
        return _with(called, [f"header {header.name}: {header.value}" for header in match.headers])
    path = {"Exact": match.path.value, "RegularExpression": f"~{match.path.value}"}.get(match.path.type)
    path = path or f"{match.path.value.rstrip('/')}/*"
    conditions = [f"header {header.name}: {header.value}" for header in match.headers]
    conditions += [f"query {query.name}={query.value}" for query in match.query_params]
    return _with(f"{match.method} {path}" if match.method else path, conditions)


def _with(text: str, conditions: list[str]) -> str:
    return f"{text} with {' and '.join(conditions)}" if conditions else text
