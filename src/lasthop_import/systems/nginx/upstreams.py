"""Reads the upstreams of a VirtualServer or VirtualServerRoute."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.routes import SessionPersistence
from lasthop_import.model import ServiceBackend
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.values import TOKEN, cookie_sessions, duration, milliseconds

CANNOT: Final = {
    "lb-method": "the new gateway balances in its own way",
    "fail-timeout": "nginx left out a Pod that failed; write a health check of your own",
    "max-fails": "nginx left out a Pod that failed",
    "max-conns": "connections to one Pod were limited",
    "connect-timeout": "the new gateway has its own connect timeout",
    "read-timeout": "nginx limits the time between two reads, not the whole request; for that, write timeouts.request",
    "send-timeout": "nginx limits the time between two writes, not the whole request",
    "next-upstream": "nginx tried another Pod in these cases; write retry if you want that",
    "next-upstream-timeout": "belongs to next-upstream",
    "next-upstream-tries": "belongs to next-upstream",
    "buffering": "responses are streamed",
    "healthCheck": "Pods are not probed by the gateway; Kubernetes does that",
    "slow-start": "a new Pod gets its share at once",
    "queue": "requests do not wait for a Pod",
    "ntlm": "connections are not kept for one client",
    "backup": "there is no second Service for when the first has no Pods",
    "backupPort": "belongs to backup",
}
IGNORED: Final = ("keepalive", "buffers", "buffer-size", "busy-buffers-size", "client-body-buffer-size", "use-cluster-ip")
"""Fields whose loss has no effect."""


class Upstream(msgspec.Struct, frozen=True):
    backend: ServiceBackend
    source: SourceRef
    tls: bool
    grpc: bool
    persistence: SessionPersistence | None = None


def read_upstreams(spec: FieldReader) -> dict[str, Upstream]:
    return {upstream.text("name"): _upstream(upstream) for upstream in spec.children("upstreams")}


def _upstream(reader: FieldReader) -> Upstream:
    namespace, _, service = reader.text("service").rpartition("/")
    backend = ServiceBackend(namespace or reader.namespace, service, reader.port("port"))
    kind = reader.text("type", "http")
    for key, text in CANNOT.items():
        reader.cannot(key, text)
    if "subselector" in reader:
        text = "only some of the Service's Pods were used; all are now"
        remedy = "Create a Service for these Pods."
        reader.note(Category.CANNOT, "subselector", text, "subselector", remedy=remedy, severity=NoteSeverity.HIGH)
    if "client-max-body-size" in reader:
        text = "larger requests were refused with 413, and are passed on now"
        reader.note(Category.LOOSENED, "body-limit-dropped", text, "client-max-body-size")
    reader.ignore(*IGNORED)
    tls = reader.child("tls")
    persistence = _session(reader.child("sessionCookie"))
    return Upstream(backend, reader.source(), tls.boolean("enable"), kind == "grpc", persistence)


def _session(reader: FieldReader) -> SessionPersistence | None:
    enabled, name, path = reader.boolean("enable"), reader.text("name"), reader.text("path", "/")
    expires = reader.text("expires")
    for key in ("domain", "httpOnly", "secure", "samesite"):
        reader.cannot(key, f"the cookie's {key} cannot be set")
    if not enabled:
        return None
    if not TOKEN.fullmatch(name):
        reader.note(Category.CANNOT, "affinity-dropped", "the cookie's name cannot be written", "name")
        return None
    return cookie(name, path, expires)


def cookie(name: str, path: str, expires: str) -> SessionPersistence:
    """Returns a session by cookie. `expires` is an nginx time or `max`."""
    lasting = milliseconds(expires) if expires and expires != "0" else None
    path = path if path.startswith("/") else "/"
    return cookie_sessions(name, path, "" if lasting is None else duration(lasting))
