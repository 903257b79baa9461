"""Writes retry budgets as XBackendTrafficPolicies: one for each Service or XBackend, shared by all of its routes."""

from __future__ import annotations

from collections.abc import Iterable

from lasthop_import.model import ImportedRetryBudget, RouteKind
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.rule_hops import RuleHop
from lasthop_import.writer.backends import XAPI
from lasthop_import.writer.objects import OutputFile
from lasthop_import.writer.stage import StageOutput, WriterContext

GROUPS = {"Service": "", "XBackend": XAPI.partition("/")[0]}
HTTP = (RouteKind.HTTP, RouteKind.GRPC)


def write_budgets(context: WriterContext, rule_hops: Iterable[RuleHop]) -> StageOutput:
    """Writes the strictest budget of each backend."""
    objects = context.objects()
    notes: list[Note] = []
    for (kind, namespace, name), budgets in sorted(_by_backend(rule_hops).items()):
        sources = [rule_hop.source for hops in budgets.values() for rule_hop in hops]
        if not context.settings.experimental:
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
    return StageOutput(objects=tuple(objects.objects), notes=tuple(notes))


def _by_backend(rule_hops: Iterable[RuleHop]) -> dict[tuple[str, str, str], dict[ImportedRetryBudget, list[RuleHop]]]:
    """Returns the hops with a budget, by kind, namespace and name of the backend."""
    by_backend: dict[tuple[str, str, str], dict[ImportedRetryBudget, list[RuleHop]]] = {}
    for rule_hop in rule_hops:
        budget, port, rule = rule_hop.hop.budget, rule_hop.port, rule_hop.rule
        if budget is not None and port is not None and rule is not None and rule.kind in HTTP:
            by_backend.setdefault((port.kind, port.namespace, port.name), {}).setdefault(budget, []).append(rule_hop)
    return by_backend
