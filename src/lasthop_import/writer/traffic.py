"""Writes retry budgets as XBackendTrafficPolicies: one for a Service or XBackend, for all routes that lead there."""

from __future__ import annotations

from collections.abc import Iterable

from lasthop_import.model import ImportedRetryBudget, RouteKind
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.rule_hops import RuleHop
from lasthop_import.writer.backends import XAPI
from lasthop_import.writer.objects import ObjectWriter, OutputFile

GROUPS = {"Service": "", "XBackend": XAPI.partition("/")[0]}
HTTP = (RouteKind.HTTP, RouteKind.GRPC)


def write_budgets(objects: ObjectWriter, rule_hops: Iterable[RuleHop], *, experimental: bool) -> list[Note]:
    """Writes the strictest budget of each backend; returns what there is to say about them."""
    found: dict[tuple[str, str, str], dict[ImportedRetryBudget, list[RuleHop]]] = {}
    for rule_hop in rule_hops:
        if (
            rule_hop.hop.budget is not None
            and rule_hop.port is not None
            and rule_hop.rule is not None
            and rule_hop.rule.kind in HTTP
        ):
            backend = (rule_hop.port.kind, rule_hop.port.namespace, rule_hop.port.name)
            found.setdefault(backend, {}).setdefault(rule_hop.hop.budget, []).append(rule_hop)
    notes: list[Note] = []
    for (kind, namespace, name), budgets in sorted(found.items()):
        sources = [rule_hop.source for each in budgets.values() for rule_hop in each]
        if not experimental:
            text = "a retry budget needs an XBackendTrafficPolicy, which the standard channel does not have"
            notes.append(Note(Category.CANNOT, "retry-budget", text, sources[0]))
            continue
        budget = min(budgets)
        constraint = {
            "budget": {"percent": budget.percent, "interval": "10s"},
            "minRetryRate": {"count": max(budget.at_least, 1), "interval": "1s"},
        }
        metadata = {"name": objects.free_name("XBackendTrafficPolicy", namespace, name), "namespace": namespace}
        spec = {"targetRefs": [{"group": GROUPS[kind], "kind": kind, "name": name}], "retryConstraint": constraint}
        document = {"apiVersion": XAPI, "kind": "XBackendTrafficPolicy", "metadata": metadata, "spec": spec}
        target = objects.add(OutputFile.BACKENDS, document, sources).name
        text = "the budget counts the requests of the last 10 s; the old gateway counted those under way"
        notes.append(Note(Category.CHANGED, "retry-budget", text, sources[0], target=target, severity=NoteSeverity.INFO))
        if len(budgets) > 1:
            text = f"ports or routes of {namespace}/{name} had different retry budgets; the strictest holds for all of them"
            notes.append(
                Note(Category.TIGHTENED, "retry-budget", text, sources[0], target=target, severity=NoteSeverity.WARNING)
            )
    return notes
