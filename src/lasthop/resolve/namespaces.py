"""Which namespaces an `allowedRoutes` or `allowedListeners` lets in."""

from __future__ import annotations

from lasthop.api.core import Namespace
from lasthop.api.gateway import LabelSelector, RouteNamespaces
from lasthop.api.meta import Key, StringMap
from lasthop.store.graph import Graph
from lasthop.store.store import read


def allows_namespace(g: Graph, owner: Key, rule: RouteNamespaces, namespace: str) -> bool:
    """`Same` is the namespace of the object that holds the rule: a ListenerSet's own for its listeners."""
    match rule.from_:
        case "All":
            return True
        case "Same":
            return owner.namespace == namespace
        case "Selector" if rule.selector is not None:
            found = read(g, Key("Namespace", "", namespace), Namespace)
            return found is not None and selects(rule.selector, found.metadata.labels)
        case _:
            return False


def selects(selector: LabelSelector, labels: StringMap) -> bool:
    """Kubernetes' label selection. A selector that asks for nothing selects everything."""
    have = dict(labels)
    if any(have.get(key) != value for key, value in selector.match_labels):
        return False
    for wanted in selector.match_expressions:
        present, inside = wanted.key in have, have.get(wanted.key) in wanted.values
        holds = {"In": inside, "NotIn": not inside, "Exists": present, "DoesNotExist": not present}
        if not holds.get(wanted.operator, False):
            return False
    return True
