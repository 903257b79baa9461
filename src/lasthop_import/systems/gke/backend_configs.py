"""Reads BackendConfigs, which configure the requests to a Service's port."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from lasthop.base.api.routes import CookieConfig, HTTPRouteFilter, HTTPRouteTimeouts, SessionPersistence
from lasthop_import.documents import mapping
from lasthop_import.inputs import Inputs
from lasthop_import.model import ServiceBackend
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.gke.kinds import BACKEND_CONFIG
from lasthop_import.values import duration, header_edits

ANNOTATIONS: Final = ("cloud.google.com/backend-config", "beta.cloud.google.com/backend-config")
CANNOT: Final = {
    "cdn": "responses are not cached",
    "connectionDraining": "how long connections are drained is the gateway's own",
    "healthCheck": "Pods are not probed by the gateway; Kubernetes does that",
    "logging": "the access log is the gateway's own",
}


class BackendConfig(msgspec.Struct, frozen=True):
    filters: tuple[HTTPRouteFilter, ...] = ()
    timeouts: HTTPRouteTimeouts = HTTPRouteTimeouts()
    persistence: SessionPersistence | None = None


class BackendConfigs:
    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._read = {
            (document.namespace, document.bare_name): _config(inputs.open(document).child("spec"))
            for document in inputs.of(BACKEND_CONFIG)
        }

    def of(self, backend: ServiceBackend, source: SourceRef) -> BackendConfig:
        service = f"{backend.namespace}/{backend.name}"
        if self._inputs.ports(backend.namespace, backend.name) is None:
            absent = self._inputs.absence("Service", backend.namespace, backend.name)
            message = f"Service {service} {absent}, and its BackendConfig may restrict access"
            note = Note(
                Category.ACCESS_CONTROL, "backend-config-unknown", message, source, remedy="Add the Service to the input."
            )
            self._inputs.notes.append(note)
            return BackendConfig()
        annotations = self._inputs.annotations("Service", backend.namespace, backend.name)
        text = next((annotations[key] for key in ANNOTATIONS if annotations.get(key)), "")
        if not text:
            return BackendConfig()
        name = self._name(text, backend)
        if name is None:
            message = f"annotation {ANNOTATIONS[0]} of Service {service} is not JSON that GKE reads; it may restrict access"
            self._inputs.notes.append(Note(Category.ACCESS_CONTROL, "backend-config", message, source))
            return BackendConfig()
        config = self._read.get((backend.namespace, name))
        if name and config is None:
            message = f"BackendConfig {backend.namespace}/{name} is not in the input; whether it restricts access is not known"
            self._inputs.notes.append(Note(Category.ACCESS_CONTROL, "backend-config-missing", message, source))
        return config or BackendConfig()

    def _name(self, text: str, backend: ServiceBackend) -> str | None:
        try:
            decoded: Any = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(decoded, dict):
            return None
        port = self._inputs.port(backend.namespace, backend.name, backend.port)
        by_port = mapping(decoded.get("ports"))
        names = [by_port.get(port.name), by_port.get(str(port.number))] if port else [by_port.get(str(backend.port))]
        return next((name for name in (*names, decoded.get("default")) if isinstance(name, str)), "")


def _config(spec: FieldReader) -> BackendConfig:
    for key, text in CANNOT.items():
        spec.cannot(key, text)
    for key, text in (("iap", "users had to log in at Google"), ("securityPolicy", "Cloud Armor inspected requests")):
        spec.access_control(key, f"{text}; there is no equivalent")
    seconds = spec.integer("timeoutSec")
    timeouts = HTTPRouteTimeouts(request=duration(seconds * 1000)) if seconds and 0 < seconds < 10**8 else HTTPRouteTimeouts()
    filters: list[HTTPRouteFilter] = []
    for key, kind in (("customRequestHeaders", "RequestHeaderModifier"), ("customResponseHeaders", "ResponseHeaderModifier")):
        filters += _headers(spec.child(key), kind)
    return BackendConfig(tuple(filters), timeouts, _session(spec.child("sessionAffinity")))


def _headers(reader: FieldReader, kind: str) -> tuple[HTTPRouteFilter, ...]:
    headers = {}
    for header in reader.texts("headers"):
        name, _, value = header.partition(":")
        if "{" in value:
            text = f"{name} has a variable of the load balancer, and is left out"
            reader.note(Category.CANNOT, "header-variable", text, "headers")
        else:
            headers[name.strip()] = value.strip()
    edits = header_edits(kind, {}, headers)
    if edits.refused:
        reader.note(Category.CANNOT, "headers", f"{', '.join(edits.refused)} cannot be written", "headers")
    return edits.filters


def _session(reader: FieldReader) -> SessionPersistence | None:
    kind, seconds = reader.text("affinityType"), reader.integer("affinityCookieTtlSec", 0) or 0
    if kind == "GENERATED_COOKIE":
        if not 0 < seconds < 10**8:
            return SessionPersistence("Cookie", CookieConfig("GCLB"))
        lasting = CookieConfig("GCLB", "/", "Permanent")
        return SessionPersistence("Cookie", lasting, absolute_timeout=duration(seconds * 1000))
    if kind not in ("", "NONE"):
        reader.note(Category.CANNOT, "affinity-dropped", f"{kind} has no equivalent", "affinityType")
    return None
