"""Admits a document like an API server: kind, metadata, defaults, schema, list keys, CEL rules.

It rejects unknown fields, which an API server prunes, because in a file they are typos. It drops `status`, like `kubectl
apply`. It reports all problems of a document, not only the first.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS, Kind, decode, decode_json
from lasthop.base.api.meta import Key, Object
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.attachments import Attachment, attachments
from lasthop.edge.admission.builtin import CHECKS
from lasthop.edge.admission.cel import violations
from lasthop.edge.admission.foreign import POLICY, is_list
from lasthop.edge.admission.limits import MAX_OBJECT
from lasthop.edge.admission.metadata import completed
from lasthop.edge.admission.problem import FieldProblem, Problems, shown
from lasthop.edge.admission.schema import schema_of
from lasthop.edge.admission.structural import CLOSE, structured
from lasthop.edge.admission.validation import schema_problems, type_name
from lasthop.engine.plan import reasons


class AdmittedObject(msgspec.Struct, frozen=True):
    key: Key
    object: Object
    digest: bytes
    """The digest of everything but metadata, for `generation`."""
    attachments: tuple[Attachment, ...] = ()


def admit(document: Any) -> tuple[Json, list[FieldProblem]]:
    """Returns the document as an API server would store it, and its problems. Without problems it can be passed to
    `admitted`."""
    kind, unknown = kind_of(document)
    if kind is None:
        return {}, unknown
    size = len(msgspec.json.encode(document))
    if size > MAX_OBJECT:
        message = f"the object is {size} bytes as JSON; the limit is {MAX_OBJECT}, as in an API server"
        return {}, [FieldProblem(message, (), "Split it into several objects.", reasons.TOO_LARGE)]
    return _stored(kind, document)


def _stored(kind: Kind, document: Json) -> tuple[Json, list[FieldProblem]]:
    problems = Problems()
    schema = schema_of(kind.kind, document["apiVersion"].rpartition("/")[2])
    key, metadata = completed(kind, document.get("metadata"), problems)
    content = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    content = structured(schema.root, _without_empty_trust(kind, content), (), problems)
    violated = list(schema_problems(schema.validator, content, secret=kind.kind == "Secret"))
    problems.extend(violated)
    # As in an API server, the schema's limits bound the cost of rules.
    if not problems.full and not any(problem.reason == reasons.TOO_LARGE for problem in violated):
        problems.extend(violations(schema.root, content, [problem.path for problem in violated if problem.blocks_rules]))
    stored = {"apiVersion": document["apiVersion"], "kind": kind.kind, "metadata": metadata, **content}
    if not violated and metadata and (check := CHECKS.get(kind.kind)):
        check(key, stored, problems)
    return stored, problems.listed()


def _without_empty_trust(kind: Kind, content: Json) -> Json:
    """Removes empty trust sources from a policy. GEP-1897 allows "empty or unspecified" `caCertificateRefs` and "unspecified
    or empty" `wellKnownCACertificates`, and other bundles admit both; this schema requires a value in a present field."""
    spec = content.get("spec") if kind.kind == POLICY else None
    validation = spec.get("validation") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(validation, dict):
        return content
    empty = {"caCertificateRefs": [], "wellKnownCACertificates": ""}
    validation = {name: value for name, value in validation.items() if name not in empty or value != empty[name]}
    return {**content, "spec": {**spec, "validation": validation}}


def admitted(stored: Json) -> AdmittedObject:
    """Decodes a stored document. Raises `msgspec.ValidationError` if the struct rejects what the schema allows."""
    content = {name: value for name, value in stored.items() if name not in ("apiVersion", "kind", "metadata")}
    digest = hashlib.blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).digest()
    return _admitted(stored["kind"], decode(stored["kind"], stored), digest)


def admitted_again(kind: str, stored: bytes, digest: bytes) -> AdmittedObject:
    """Decodes a previously admitted document from JSON. Raises like `admitted`."""
    return _admitted(kind, decode_json(kind, stored), digest)


def _admitted(kind: str, obj: Object, digest: bytes) -> AdmittedObject:
    metadata = obj.metadata
    attached = attachments(metadata.annotations) if kind in ("ConfigMap", "Secret") else ()
    return AdmittedObject(Key(kind, metadata.namespace, metadata.name), obj, digest, attached)


def kind_of(document: Any) -> tuple[Kind | None, list[FieldProblem]]:
    if not isinstance(document, dict):
        return None, [
            FieldProblem(
                f"a document must be a mapping, not {type_name(document)}", remedy="Write apiVersion, kind, metadata and spec."
            )
        ]
    if untyped := [name for name in ("apiVersion", "kind") if not isinstance(document.get(name), str)]:
        return None, [_untyped(name, document.get(name)) for name in untyped]
    name, version = document["kind"], document["apiVersion"]
    kind = KINDS.get(name)
    if kind is None:
        return None, [_unknown(name, document)]
    if version not in kind.api_versions:
        served = " or ".join(kind.api_versions)
        message = f"{name} is not served as {shown(version)}"
        return None, [FieldProblem(message, ("apiVersion",), f"Write {served}.", reasons.UNKNOWN_KIND)]
    return kind, []


def _untyped(name: str, value: Any) -> FieldProblem:
    return FieldProblem("required field is missing" if value is None else "must be a string", (name,), reason=reasons.REQUIRED)


def _unknown(name: str, document: dict[Any, Any]) -> FieldProblem:
    if not is_list(document):
        return FieldProblem(f"unknown kind {shown(name)}", ("kind",), _suggested(name), reasons.UNKNOWN_KIND)
    message = "a List needs `items`, a list of objects, and the kind List or the kind of its items followed by List"
    return FieldProblem(message, ("items",) if "items" in document else ("kind",), reason=reasons.INVALID_LIST)


def _suggested(name: str) -> str:
    if close := closest(name, KINDS, CLOSE):
        return f"Did you mean {close}?"
    return "Lasthop does not read this kind: move it to a folder of its own."
