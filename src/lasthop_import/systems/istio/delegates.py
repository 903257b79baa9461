"""Merges the rules of delegates into the rules that delegate to them, as pilot does.

A rule of the delegate inherits the fields that it does not set. Each of its matches must be narrower than a match of the
root; otherwise the rule is not served. [pilot/pkg/model/virtualservice.go: MergeHTTPRoutes; virtualservice_controller.go]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from lasthop_import.documents import Document, mapping, texts
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.istio.kinds import VIRTUAL_SERVICE, exported, gateway_name

INHERITED: Final = (
    *("rewrite", "directResponse", "timeout", "retries", "fault", "corsPolicy", "headers"),
    *("mirror", "mirrors", "mirrorPercent", "mirrorPercentage"),
)
_STRINGS: Final = ("uri", "scheme", "method", "authority")
_MAPS: Final = ("headers", "withoutHeaders", "queryParams", "sourceLabels")
_SINGLE: Final = (*_STRINGS, "port", "sourceNamespace", "gateways", "statPrefix")
_MATCH: Final = (*_SINGLE, *_MAPS, "name", "ignoreUriCase")
_REFUSED: Final = ("route", "redirect")
"""Fields that Istio's admission refuses together with `delegate`."""
T = TypeVar("T")
D = TypeVar("D")


class MergedRule(FieldReader):
    """Reads a rule of a delegate. Inherited fields are read, and accounted for, in the root's rule."""

    def __init__(self, leaf: FieldReader, root: FieldReader, matches: list[FieldReader]) -> None:
        super().__init__(leaf.account, leaf.value, leaf.path)
        self._root = root
        self._matches = matches

    def _inherits(self, key: str) -> bool:
        return key in INHERITED and self.value.get(key) is None

    def __contains__(self, key: str) -> bool:
        return key in self._root if self._inherits(key) else super().__contains__(key)

    def raw(self, key: str) -> Any:
        return self._root.raw(key) if self._inherits(key) else super().raw(key)

    def child(self, key: str) -> FieldReader:
        return self._root.child(key) if self._inherits(key) else super().child(key)

    def children(self, key: str) -> list[FieldReader]:
        if key == "match":
            return self._matches
        return self._root.children(key) if self._inherits(key) else super().children(key)

    def note(
        self,
        category: Category,
        reason: str,
        text: str,
        key: str | None = None,
        *,
        remedy: str = "",
        severity: NoteSeverity | None = None,
        everywhere: bool = False,
    ) -> None:
        if key is not None and self._inherits(key):
            self._root.note(category, reason, text, key, remedy=remedy, severity=severity, everywhere=everywhere)
        else:
            super().note(category, reason, text, key, remedy=remedy, severity=severity, everywhere=everywhere)

    def _typed(self, key: str, wanted: type[T], default: D) -> T | D:
        return self._root._typed(key, wanted, default) if self._inherits(key) else super()._typed(key, wanted, default)


class Delegates:
    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._by_name = {document.path: document for document in inputs.of(VIRTUAL_SERVICE) if is_delegate(document)}

    def rules(self, rule: FieldReader) -> Iterator[FieldReader]:
        """Yields the rule itself, or the rules of the VirtualService that it delegates to."""
        if "delegate" not in rule:
            yield rule
            return
        name = _name(rule)
        document = self._by_name.get(name)
        if document is None:
            yield from self._missing(rule, name)
            return
        rule.child("delegate").ignore("name", "namespace")
        rule.ignore("name", *INHERITED)
        for key in _REFUSED:
            rule.cannot(key, "Istio refuses it together with delegate")
        spec = self._inputs.open(document).child("spec")
        spec.ignore("hosts", "gateways")
        if not exported(spec.texts("exportTo"), document.namespace, rule.namespace):
            text = f"VirtualService {name} is not exported to namespace {rule.namespace}, so the rule was not served"
            rule.note(Category.SKIPPED, "delegate-not-exported", text, "delegate")
            rule.ignore("match")
            spec.ignore("http")
            return
        for delegate_rule in spec.children("http"):
            yield from _merged(rule, delegate_rule)
        for match in rule.children("match"):
            match.ignore(*_MATCH)

    def _missing(self, rule: FieldReader, name: str) -> Iterator[FieldReader]:
        """Yields the rule without its delegate. It answers 500, so that no later rule takes its requests."""
        namespace, _, bare = name.partition("/")
        if self._inputs.find(VIRTUAL_SERVICE.kind, namespace, bare, VIRTUAL_SERVICE.group):
            text = f"VirtualService {name} has hosts, so Istio does not use it as a delegate and skips the rule"
            rule.note(Category.SKIPPED, "no-delegate", text, "delegate")
            rule.ignore("name", "match", *INHERITED, *_REFUSED)
            return
        text = f"VirtualService {name} is not in the input, so its rules are not known; these requests get 500"
        rule.note(Category.TODO, "delegate-missing", text, "delegate", remedy="Add it to the input.")
        yield rule

    def skip_unused(self) -> None:
        """Lists the delegates without an imported rule that delegates to them."""
        for document in self._by_name.values():
            if not self._inputs.opened(document):
                text = "has no hosts, and no VirtualService of a gateway delegates to it"
                self._inputs.skip(document, "delegate-not-used", text)


def is_delegate(document: Document) -> bool:
    return not texts(document.spec.get("hosts"))


def _name(rule: FieldReader) -> str:
    delegate = mapping(rule.value.get("delegate"))
    return f"{delegate.get('namespace') or rule.namespace}/{delegate.get('name')}"


def _merged(root: FieldReader, leaf: FieldReader) -> Iterator[FieldReader]:
    """Yields a rule of a delegate with inherited fields, unless its matches conflict with the root's."""
    if "delegate" in leaf:
        text = "Istio refuses a delegate that delegates; these requests get 500"
        leaf.note(Category.CANNOT, "delegate-of-delegate", text, "delegate", severity=NoteSeverity.HIGH)
    root_matches, leaf_matches = root.children("match"), leaf.children("match")
    if not root_matches or not leaf_matches:
        yield MergedRule(leaf, root, leaf_matches or root_matches)
        return
    matches: list[FieldReader] = []
    for leaf_match in leaf_matches:
        wider = [root_match for root_match in root_matches if not conflict(_resolved(root_match), _resolved(leaf_match))]
        if not wider:
            text = f"takes requests that the rule of {root.document.name} does not, so Istio skips this rule"
            leaf.note(Category.SKIPPED, "delegate-conflict", text, "match")
            leaf.ignore(*leaf.value)
            return
        matches += [
            FieldReader(leaf_match.account, merged(_resolved(root_match), _resolved(leaf_match)), leaf_match.path)
            for root_match in wider
        ]
    yield MergedRule(leaf, root, matches)


def _resolved(match: FieldReader) -> dict[str, Any]:
    """Returns a match with full names of gateways. In the input they are relative to the namespace of the VirtualService."""
    names = [gateway_name(name, match.namespace) for name in texts(match.value.get("gateways"))]
    return {**match.value, "gateways": names} if names else match.value


def merged(root: dict[str, Any], leaf: dict[str, Any]) -> dict[str, Any]:
    """Returns the conditions of both. If both have a condition, the delegate's counts, because it is narrower."""
    inherited = {key: root[key] for key in _SINGLE if root.get(key) and not leaf.get(key)}
    joined = {key: {**mapping(root.get(key)), **mapping(leaf.get(key))} for key in _MAPS}
    return {**leaf, **inherited, **{key: value for key, value in joined.items() if value}}


def conflict(root: dict[str, Any], leaf: dict[str, Any]) -> bool:
    """Returns whether a match of a delegate is not within a match of the root."""
    if any(_strings_conflict(root.get(key), leaf.get(key)) for key in _STRINGS):
        return True
    for key in ("headers", "withoutHeaders", "queryParams"):
        root_values = mapping(root.get(key))
        if any(_strings_conflict(root_values.get(name), value) for name, value in mapping(leaf.get(key)).items()):
            return True
    labels = mapping(root.get("sourceLabels"))
    if any(labels.get(name, value) != value for name, value in mapping(leaf.get("sourceLabels")).items()):
        return True
    ports, root_gateways, leaf_gateways = (
        (root.get("port"), leaf.get("port")),
        texts(root.get("gateways")),
        texts(leaf.get("gateways")),
    )
    return (
        bool(root.get("ignoreUriCase")) is not bool(leaf.get("ignoreUriCase"))
        or (all(ports) and ports[0] != ports[1])
        or bool(root.get("sourceNamespace") and root["sourceNamespace"] != leaf.get("sourceNamespace"))
        or bool(root_gateways and leaf_gateways and not {*leaf_gateways} <= {*root_gateways})
    )


def _strings_conflict(root: Any, leaf: Any) -> bool:
    """Returns whether a StringMatch of a leaf is not within the root's. A regular expression never is."""
    if not isinstance(root, dict) or not isinstance(leaf, dict):
        return False
    if exact := root.get("exact"):
        return bool(leaf.get("exact") != exact)
    narrower = leaf.get("prefix") or leaf.get("exact")
    return not (root.get("prefix") and narrower and str(narrower).startswith(str(root["prefix"])))
