"""Copies Gateway API objects of the input, without parts that admission refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop.edge.admission.chain import admit
from lasthop.edge.admission.problem import FieldProblem, Path, field
from lasthop.engine.plan import reasons
from lasthop_import.documents import Document, mapping
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import IGNORED_ANNOTATIONS, UNREAD

OLD: Final = ("gateway.envoyproxy.io/", "networking.gke.io/", "cloud.google.com/", "ingress.gcp.kubernetes.io/")
"""Prefixes of annotations that only the old gateways use."""


def copied(inputs: Inputs, document: Document, spec: Json) -> Json | None:
    """Returns an object with a changed spec. It lists and omits unknown fields; if admission still refuses the object, it
    lists it and does not write it."""
    copy: Json = {
        "apiVersion": document.api_version,
        "kind": document.kind,
        "metadata": _metadata(document),
        "spec": spec,
    }
    problems = admit(copy)[1]
    unknown = [problem for problem in problems if problem.reason == reasons.UNKNOWN_FIELD]
    for problem in unknown:
        text = "Gateway API does not know the field, and it is not carried over"
        inputs.notes.append(Note(Category.UNKNOWN, UNREAD, text, SourceRef(document, problem.path)))
        copy = _without(copy, problem.path)
    refused = admit(copy)[1] if unknown else problems
    fewer = without_listeners(copy, refused)
    for problem in fewer.refused:
        text = f"the listener is left out, because Gateway API refuses it: {field(problem.path)}: {problem.message}"
        inputs.notes.append(
            Note(Category.CANNOT, "listener-refused", text, SourceRef(document, problem.path), severity=NoteSeverity.HIGH)
        )
    if fewer.refused:
        copy, refused = fewer.gateway, admit(fewer.gateway)[1]
    for problem in refused:
        text = f"the object is not copied, because Gateway API refuses it: {field(problem.path)}: {problem.message}"
        note = Note(Category.CANNOT, "rule-refused", text, SourceRef(document, problem.path), severity=NoteSeverity.HIGH)
        inputs.notes.append(note)
    return None if refused else copy


def terminates_tls(listener: Any, section: object) -> bool:
    """Returns whether a listener terminates TLS. `section`: the name that the listener must have; None: any name."""
    if not isinstance(listener, dict) or section not in (None, listener.get("name")):
        return False
    return listener.get("protocol") == "TLS" and mapping(listener.get("tls")).get("mode") != "Passthrough"


class FewerListeners(NamedTuple):
    gateway: Json
    refused: tuple[FieldProblem, ...]
    """Reasons for omitted listeners."""


def without_listeners(gateway: Json, problems: Sequence[FieldProblem]) -> FewerListeners:
    """Returns a Gateway without its invalid listeners; with all of them if none is valid."""
    bad = [problem for problem in problems if problem.path[:2] == ("spec", "listeners") and len(problem.path) > 2]
    numbers = {problem.path[2] for problem in bad}
    listeners = mapping(gateway.get("spec")).get("listeners")
    if gateway.get("kind") != "Gateway" or not isinstance(listeners, list) or len(numbers) == len(listeners):
        return FewerListeners(gateway, ())
    kept = [listener for number, listener in enumerate(listeners) if number not in numbers]
    return FewerListeners({**gateway, "spec": {**gateway["spec"], "listeners": kept}}, tuple(bad))


def _metadata(document: Document) -> Json:
    metadata: Json = {"name": document.bare_name, "namespace": document.namespace}
    if isinstance(labels := document.metadata.get("labels"), dict):
        metadata["labels"] = labels
    if annotations := _annotations(document):
        metadata["annotations"] = annotations
    return metadata


def _annotations(document: Document) -> dict[str, str]:
    """Returns the annotations for other programs than the old gateway, for instance cert-manager and external-dns."""
    return {
        name: value
        for name, value in document.annotations.items()
        if isinstance(value, str) and not name.startswith((*IGNORED_ANNOTATIONS, *OLD))
    }


def _without(value: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if not rest:
        return {key: below for key, below in value.items() if key != step}
    if isinstance(value, dict):
        return {key: _without(below, rest) if key == step else below for key, below in value.items()}
    return [_without(below, rest) if number == step else below for number, below in enumerate(value)]
