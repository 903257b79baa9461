"""`lasthop explain`: lists the objects that affect an object, those that it affects, and the reasons. It is a query."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.unserved import NOT_SERVED, Unserved
from lasthop.engine.outputs.explain.contents import explain_content, explain_grant, explain_service, explain_xbackend
from lasthop.engine.outputs.explain.fact import Fact, bad, corrected, warning
from lasthop.engine.outputs.explain.gateway_policies import FINDINGS_OF, explain_gateway_policy
from lasthop.engine.outputs.explain.gateways import explain_class, explain_gateway, explain_listener_set
from lasthop.engine.outputs.explain.policies import explain_policy
from lasthop.engine.outputs.explain.request_answer import RequestAnswer
from lasthop.engine.outputs.explain.requests import explain_request
from lasthop.engine.outputs.explain.routes import explain_route
from lasthop.engine.plan.messages import CRASHED
from lasthop.engine.plan.request import Request
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.store import OBJECTS

EXPLAINERS: Final[dict[str, Callable[[Graph, Key], Fact]]] = {
    "GatewayClass": explain_class,
    "Gateway": explain_gateway,
    "ListenerSet": explain_listener_set,
    **dict.fromkeys(ROUTE_KINDS, explain_route),
    "BackendTLSPolicy": explain_policy,
    **dict.fromkeys(SERVICE_GROUPS, explain_service),
    "XBackend": explain_xbackend,
    **dict.fromkeys(FINDINGS_OF, explain_gateway_policy),
    "ReferenceGrant": explain_grant,
}


@query
def explain(g: Graph, key: Key) -> Fact | None:
    """Returns the explanation of an object; None if it does not exist."""
    obj = OBJECTS.of(g, key)
    if obj is None:
        return None
    if isinstance(obj, Unserved):
        return warning(f"{key}: {NOT_SERVED.format(key.kind)}", object=key)
    return corrected(EXPLAINERS.get(key.kind, explain_content)(g, key))


Locate = Callable[[Key], tuple[str, int] | None]
Steps = Generator[None, None, Json]


def tree(g: Graph, key: Key, locate: Locate) -> Generator[None, None, Json | None]:
    """Returns the explanation as JSON; None if the object does not exist."""
    if OBJECTS.peek(g, key) is None:
        return None
    fact = explain.attempt(g, key)
    yield
    if isinstance(fact, Crash):
        fact = bad(f"{key}: {CRASHED}", object=key)
    return (yield from _document(fact, functools.cache(locate))) if fact else None


def request_answers(
    g: Graph, gateways: Iterable[Key], routes: Sequence[Key], request: Request, locate: Locate
) -> Generator[None, None, list[Json]]:
    """Returns the routing of a request at each Gateway with its port, as JSON."""
    place = functools.cache(locate)
    answers: list[RequestAnswer] = yield from explain_request(g, gateways, routes, request)
    documents = []
    for answer in answers:
        explanation = yield from _document(answer.explanation, place)
        documents.append({**msgspec.to_builtins(answer), "explanation": explanation})
    return documents


def _document(fact: Fact, locate: Locate) -> Steps:
    because = []
    for child in fact.because:
        because.append((yield from _document(child, locate)))
    yield
    place = locate(fact.object) if fact.object else None
    document = {
        **msgspec.structs.asdict(fact),
        "state": str(fact.state),
        "because": because,
        "object": fact.object._asdict() if fact.object else None,
        "place": f"{place[0]}:{place[1]}" if place else "",
    }
    return {name: value for name, value in document.items() if value}
