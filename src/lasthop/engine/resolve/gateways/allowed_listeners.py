"""Decides which ListenerSets a Gateway allows, by namespace as for routes, and their order of precedence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from lasthop.base.api.core import Namespace
from lasthop.base.api.gateway import GROUP, Gateway, LabelSelector, ListenerSet, RouteNamespaces
from lasthop.base.api.meta import Key, StringMap
from lasthop.base.api.names import is_label_value, is_qualified_name
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.routing.http_syntax import shown, word
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read


def parent_gateway(g: Graph, key: Key) -> Key | None:
    """Returns the Gateway that a ListenerSet names, which need not exist; None if it names another kind."""
    obj = read(g, key, ListenerSet)
    ref = obj.spec.parent_ref if obj else None
    if ref is None or (ref.group, ref.kind) != (GROUP, "Gateway"):
        return None
    return Key("Gateway", ref.namespace or key.namespace, ref.name)


LISTENER_SETS = Index[Key, tuple[tuple[str, str], Key, int]]("listener-set")
"""(age, ListenerSet, number of its listeners) by the Gateway that the ListenerSet names."""


@indexer("ListenerSet", keep_on_crash=True)
def index_listener_sets(g: Graph, key: Key) -> Iterator[Entry]:
    obj, gateway = read(g, key, ListenerSet), parent_gateway(g, key)
    if obj and gateway:
        yield LISTENER_SETS.entry((gateway,), (obj.age, key, len(obj.spec.listeners)))


@query
def allowed_sets(g: Graph, gateway: Key) -> tuple[Key, ...]:
    """Returns the ListenerSets that the Gateway allows, the oldest first, then by {namespace}/{name}."""
    obj = read(g, gateway, Gateway)
    if obj is None:
        return ()
    limit = limits(g, gateway).listeners_per_namespace
    taken: Counter[str] = Counter()
    allowed = []
    for _, key, count in sorted(LISTENER_SETS.of(g, gateway)):
        # A ListenerSet that exceeds the limit is omitted completely, and does not count against later ones.
        if allows_set(g, gateway, key.namespace) and taken[key.namespace] + count <= limit:
            taken[key.namespace] += count
            allowed.append(key)
    return tuple(allowed)


def allows_set(g: Graph, gateway: Key, namespace: str) -> bool:
    """Returns whether the Gateway allows ListenerSets of a namespace."""
    obj = read(g, gateway, Gateway)
    return obj is not None and allows_namespace(g, gateway, obj.spec.allowed_listeners.namespaces, namespace)


def unusable_rule(g: Graph, gateway: Key) -> Problem | None:
    """Returns why the rule of a Gateway for ListenerSets is invalid and allows none."""
    obj = read(g, gateway, Gateway)
    problem = namespaces_problem(obj.spec.allowed_listeners.namespaces) if obj else None
    return problem.within("no ListenerSet is allowed").at("spec.allowedListeners.namespaces") if problem else None


def allows_namespace(g: Graph, owner: Key, rule: RouteNamespaces, namespace: str) -> bool:
    """Returns whether a rule allows a namespace. `Same` is the namespace of the object with the rule, which for listeners of a
    ListenerSet is the ListenerSet."""
    match rule.from_:
        case "All":
            return True
        case "Same":
            return owner.namespace == namespace
        case "Selector" if rule.selector is not None:
            obj = read(g, Key("Namespace", "", namespace), Namespace)
            return obj is not None and selects(rule.selector, obj.metadata.labels)
        case _:
            return False


def namespaces_problem(rule: RouteNamespaces) -> Problem | None:
    """Returns why a rule is invalid and allows no namespace."""
    match rule.from_:
        case "All" | "Same" | "None":
            return None
        case "Selector" if rule.selector is None:
            return unsupported_value("from is Selector, but selector is missing", remedy="add one")
        case "Selector" if rule.selector is not None:
            error = invalid_selector(rule.selector)
            return unsupported_value(f"selector.{error}", remedy="correct it") if error else None
        case _:
            return unsupported_value(f"from {word(rule.from_)} is not supported", remedy="use All, Same or Selector")


# --- label selectors -------------------------------------------------------------------------------------------------

_WITH_VALUES: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Operators, and whether they require values or forbid them."""


def selects(selector: LabelSelector, labels: StringMap) -> bool:
    """Returns whether a selector matches labels. An empty selector matches everything, an invalid one nothing."""
    if invalid_selector(selector):
        return False
    values = dict(labels)
    if any(values.get(key) != value for key, value in selector.match_labels):
        return False
    for requirement in selector.match_expressions:
        present, inside = requirement.key in values, values.get(requirement.key) in requirement.values
        if not {"In": inside, "NotIn": not inside, "Exists": present, "DoesNotExist": not present}[requirement.operator]:
            return False
    return True


def invalid_selector(selector: LabelSelector) -> str:
    """Returns the first error of a selector, with its place; empty if it is valid. The rules are those of apimachinery's
    LabelSelectorAsSelector, which the CRDs do not repeat."""
    for key, value in selector.match_labels:
        if error := _invalid_key(key) or _invalid_values((value,)):
            return f"matchLabels: {error}"
    for number, requirement in enumerate(selector.match_expressions):
        if (
            error := _invalid_key(requirement.key)
            or _invalid_operator(requirement.operator, requirement.values)
            or _invalid_values(requirement.values)
        ):
            return f"matchExpressions[{number}]: {error}"
    return ""


def _invalid_key(key: str) -> str:
    return "" if is_qualified_name(key) else f"{shown(key)} is not a label key"


def _invalid_operator(operator: str, values: tuple[str, ...]) -> str:
    if operator not in _WITH_VALUES:
        return f"operator {word(operator)} is not one of {', '.join(_WITH_VALUES)}"
    if _WITH_VALUES[operator] == bool(values):
        return ""
    return f"operator {operator} needs values" if _WITH_VALUES[operator] else f"operator {operator} takes no values"


def _invalid_values(values: tuple[str, ...]) -> str:
    return next((f"{shown(value)} is not a label value" for value in values if not is_label_value(value)), "")
