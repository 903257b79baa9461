"""Random Routes, and Ingresses that OpenShift makes Routes of."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

NAMESPACES = ("shop", "obs")
HAPROXY = "haproxy.router.openshift.io/"
ANNOTATIONS: dict[str, tuple[str, ...]] = {
    f"{HAPROXY}rewrite-target": ("/", "/x", "/x/", "x", "/a#b"),
    f"{HAPROXY}timeout": ("30s", "2m", "5000", "1d", "soon", "0"),
    f"{HAPROXY}hsts_header": ("max-age=600;includeSubDomains", "junk"),
    f"{HAPROXY}disable_cookies": ("true", "yes", "false"),
    f"{HAPROXY}ip_whitelist": ("10.0.0.0/8",),
    f"{HAPROXY}balance": ("source",),
    "router.openshift.io/cookie_name": ("session", "bad name"),
    "never.heard.of/it": ("1",),
}
HOSTS = ("a.example", "b.example", "www.c.example", "A.example", "")
ACTIONS = (
    {"request": [{"name": "X-A", "action": {"type": "Set", "set": {"value": "b"}}}]},
    {"response": [{"name": "X-B", "action": {"type": "Delete"}}, {"name": "bad name", "action": {"type": "Delete"}}]},
    {"request": [{"name": "X-C", "action": {"type": "Set", "set": {"value": "%[src]"}}}]},
)


def _names(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@functools.cache
def _tls() -> st.SearchStrategy[dict[str, Any]]:
    cas = (surroundings.CA, surroundings.NEXT_CA, surroundings.LEAF, "junk", "")
    pair = {"certificate": surroundings.CERTIFICATE, "key": surroundings.KEY}
    return st.builds(
        lambda tls, certificate: {**tls, **certificate},
        st.fixed_dictionaries(
            {"termination": _names("reencrypt", "reencrypt", "Reencrypt", "edge", "passthrough", "junk", "")},
            optional={
                "destinationCACertificate": _names(*cas),
                "insecureEdgeTerminationPolicy": _names("None", "Allow", "Redirect", "redirect"),
            },
        ),
        _names({}, {}, pair, {"externalCertificate": {"name": "pair"}}, {"externalCertificate": {"name": "missing"}}),
    )


@functools.cache
def _backend() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"name": _names("api", "web", "missing", "Bad_Name")},
        optional={"kind": _names("Service", "Pod"), "weight": _names(0, 10, 256, "x")},
    )


@st.composite
def _annotations(draw: st.DrawFn) -> dict[str, str]:
    chosen = draw(st.lists(st.sampled_from(sorted(ANNOTATIONS)), max_size=3, unique=True))
    return {name: draw(_names(*ANNOTATIONS[name])) for name in chosen}


@st.composite
def _metadata(draw: st.DrawFn, name: str) -> dict[str, Any]:
    found = {"name": name, "namespace": draw(_names(*NAMESPACES)), "annotations": draw(_annotations())}
    created = {"creationTimestamp": f"2024-01-0{draw(st.integers(1, 9))}T00:00:00Z"} if draw(st.booleans()) else {}
    return {**found, **created}


@st.composite
def _route(draw: st.DrawFn, number: int) -> dict[str, Any]:
    fields = {
        "path": _names("/", "/a", "/a/", "no-slash", "/a b"),
        "alternateBackends": st.lists(_backend(), max_size=2),
        "port": _names(*({"targetPort": each} for each in ("https", "http", 443, 80, "80", 1, "none"))),
        "tls": _tls(),
        "wildcardPolicy": _names("None", "Subdomain"),
        "httpHeaders": st.builds(lambda actions: {"actions": actions}, _names(*ACTIONS)),
    }
    spec = draw(st.fixed_dictionaries({"host": _names(*HOSTS), "to": _backend()}, optional=fields))
    return {
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": draw(_metadata(f"route-{number}")),
        "spec": spec,
    }


@st.composite
def _ingress(draw: st.DrawFn, number: int) -> dict[str, Any]:
    host = draw(_names(*HOSTS))
    backend = {"service": {"name": draw(_names("api", "missing")), "port": {"number": draw(_names(443, 1))}}}
    path = {"path": draw(_names("/", "/a")), "pathType": draw(_names("Prefix", "Exact")), "backend": backend}
    spec: dict[str, Any] = {"rules": [{"host": host, "http": {"paths": [path]}}]}
    if draw(st.booleans()):
        spec["tls"] = [{"hosts": [host], **draw(_names({}, {"secretName": "pair"}))}]
    metadata = draw(_metadata(f"ingress-{number}"))
    metadata["annotations"]["route.openshift.io/termination"] = draw(_names("reencrypt", "edge", "passthrough", "junk"))
    if draw(st.booleans()):
        named = draw(_names("pair", "missing", "ca"))
        metadata["annotations"]["route.openshift.io/destination-ca-certificate-secret"] = named
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _around() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for namespace in NAMESPACES:
        for name in ("api", "web"):
            found += surroundings.service(namespace, name, {"https": 443, "http": 80})
        pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
        found.append(surroundings.secret(namespace, "pair", **pair))
        found.append(surroundings.secret(namespace, "ca", ca_crt=surroundings.CA))
    found.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "openshift-service-ca.crt", "namespace": "shop"},
            "data": {"service-ca.crt": surroundings.CA},
        }
    )
    return found


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = [draw(_route(number)) for number in range(draw(st.integers(1, 4)))]
    return [*found, *(draw(_ingress(number)) for number in range(draw(st.integers(0, 1))))]
