"""Random objects of one tenant, as an API server without any Gateway API schema would admit them.

Names of objects and everything about core kinds (Services, EndpointSlices) are valid: no API server accepts anything else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz import certificates

Document = dict[str, Any]
TENANT = "team"
SHARED = "shared.example"
NAMES = ("a", "b", "c")
TEXTS = (
    "", "a", "x-a", "X_User", "a b", "a\r\nb: c", "\x00", "\t", "\x7f", "é", "日本", "%", "%%", "%REQ(x)%",
    "%PROTOCOL%", "*", "..", "a" * 300, "é" * 3_000, "a=b;c", '"', "\\", "'", "host", ":path", "connection",
    "content-length", "x-envoy-retry-on", "{", "$1", "\\1", "\u2028", "\ufeff", "~", "a/b", "-1", "null",
)  # fmt: skip
PATTERNS = (
    "", ".*", "/v[0-9]+/.*", "(", ")", "a)(b", "\\Qfoo", "\\x{100}", "\\pL", "[[:alpha:]]+", "a{1000}", ".{500}",
    "(a|b)*c", "^/a$", "(?i)abc", "(?P<n>a)", "\\C", "[^a]", "é+", "[日本]", "a{1001}", "(((((a{9}){9}){9}){9}){9})",
    "\\", "[", "x*" * 60, ".{90}" * 9,
)  # fmt: skip
PATHS = (
    "/", "/a", "/a/", "//", "/a//b", "", "a", "/a?b", "/a#b", "/%2F", "/%zz", "/..", "/a/../b", "/é", "/a b",
    "/" + "a" * 1_024, "/*", "/\r\n", "/a%20b", "/;v=1", "/a\\b", "/{x}",
)  # fmt: skip
HOSTS = (
    SHARED, "*.example", "own.team.example", "*.team.example", "*", "", "a*b.example", "*x.example", "a..b",
    "A.EXAMPLE", "a_b.example", "x" * 254, "1.2.3.4", "a.example.", "é.example", "a\r\n.example", "*.*.example",
    "[::1]", "a:80",
)  # fmt: skip
DURATIONS = ("", "0s", "1s", "1h30m", "500ms", "99999h99999h99999h99999h", "soon", "-1s", "1.5s", "999999999999h", "1d")
INTS = (
    0,
    1,
    2,
    80,
    443,
    100,
    255,
    301,
    500,
    599,
    65_535,
    65_536,
    -1,
    1_000_000,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    5_000_000_000,
    1 << 62,
)


IMPORT = {"group": "multicluster.x-k8s.io", "kind": "ServiceImport"}
APP_PROTOCOLS = ("", "", "kubernetes.io/h2c", "HTTPS", "x.example/tls")
PORTS = {"http": 30_001, "https": 30_002, "tls": 30_003, "tcp": 30_004, "udp": 30_005, "more": 30_006}
"""Of the Gateway's listeners, and one that only ListenerSets have. They stand for ports that are free on this machine."""
NO_PORTS = (0, -1, 65_536, 1 << 31, 1 << 32)
LISTENER_HOSTS = ("own.team.example", "*.team.example")
"""A listener with a name that routes of others use would take it from them, as the spec wants it."""


class Tenant:
    def __init__(self, r: Random) -> None:
        self.r = r

    def objects(self) -> list[Document]:
        """Returns one world of the tenant: the objects that its routes may need, and some of every other kind."""
        documents = [*self._services(), *self._secrets()]
        makers = self.r.choices(_MAKERS, k=self.r.randint(2, 8))
        for number, make in enumerate(makers):
            documents.append(make(self, f"o{number}"))
        return documents

    # --- small values ------------------------------------------------------------------------------------------------

    def sane(self) -> bool:
        """Decides whether to write a valid value. Most values are valid; otherwise nothing would ever reach Envoy."""
        return self.r.random() < 0.8

    def text(self, *good: str) -> str:
        return self.r.choice(good) if self.sane() else self.r.choice(TEXTS)

    def number(self, *good: int) -> int:
        return self.r.choice(good) if self.sane() else self.r.choice(INTS)

    def path(self) -> str:
        return self.r.choice(PATHS[:3]) if self.sane() else self.r.choice(PATHS)

    def pattern(self) -> str:
        return (
            self.r.choice(PATTERNS)
            if self.r.random() < 0.9
            else "".join(self.r.choices("()[]{}|*+?.\\^$abé0,:<>P", k=self.r.randint(1, 40)))
        )

    def hosts(self) -> list[str]:
        names = HOSTS[:4] if self.sane() else HOSTS
        return self.r.choices(names, k=self.r.choice((0, 1, 1, 1, 2, 3)))

    def duration(self) -> str:
        return self.r.choice(DURATIONS[1:5]) if self.sane() else self.r.choice(DURATIONS)

    def some(self, make: Callable[[], Any], most: int = 3) -> list[Any]:
        return [make() for _ in range(self.r.randint(0, most))]

    def maybe(self, **fields: Callable[[], Any]) -> Document:
        return {name: make() for name, make in fields.items() if self.r.random() < 0.35}

    # --- existing objects --------------------------------------------------------------------------------------------

    def _services(self) -> list[Document]:
        documents = []
        for name in NAMES:
            ports = [
                {"name": "p", "port": 443},
                {
                    "name": "q",
                    "port": 80,
                    "appProtocol": self.r.choice(("", "", "kubernetes.io/h2c", "HTTPS", "x.example/tls")),
                },
            ]
            documents.append(_obj("Service", name, spec={"ports": ports}))
            documents.append(_obj("ServiceImport", name, spec={"type": self.text("ClusterSetIP", "Headless"), "ports": ports}))
            addresses = self.r.choice((["10.0.0.1"], ["::1"], ["10.0.0.1", "10.0.0.2"], []))
            kind = "IPv6" if addresses == ["::1"] else "IPv4"
            endpoints = [{"addresses": [address], "conditions": {"ready": self.r.random() < 0.9}} for address in addresses]
            slice_ports = [{"name": "p", "port": self.r.choice((1, 8443, 65_535))}, {"name": "q", "port": 8080}]
            for label in ("kubernetes.io/service-name", "multicluster.kubernetes.io/service-name"):
                slice_name, labels = f"{name}-{label.partition('.')[0]}", {label: name}
                documents.append(
                    _obj("EndpointSlice", slice_name, labels, addressType=kind, endpoints=endpoints, ports=slice_ports)
                )
        return documents

    def _secrets(self) -> list[Document]:
        documents = []
        for name in NAMES:
            good = self.sane()
            der, private = certificates.pair()
            content = {
                "tls.crt": certificates.pem(der) if good else certificates.certificate(self.r),
                "tls.key": certificates.pem(private, "PRIVATE KEY") if good else certificates.key(self.r),
            }
            documents.append(_obj("Secret", name, data={k: base64.b64encode(v.encode()).decode() for k, v in content.items()}))
            ca = certificates.pem(der) if self.sane() else certificates.certificate(self.r)
            crl = {"ca.crl": certificates.revocations(self.r)} if self.r.random() < 0.3 else {}
            documents.append(_obj("ConfigMap", name, data={"ca.crt": ca, **crl}))
        return documents

    # --- routes ------------------------------------------------------------------------------------------------------

    def backend(self) -> Document:
        ref: Document = {"name": self.r.choice((*NAMES, "missing")), "port": self.number(443, 443, 80)}
        if self.r.random() < 0.1:
            ref |= {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x"}
        elif self.r.random() < 0.2:
            ref |= IMPORT
        return ref

    def weighted(self) -> Document:
        return {**self.backend(), "weight": self.number(0, 1, 3, 1_000_000), "filters": self.some(self.filter, 1)}

    def value_match(self) -> Document:
        kind = self.text("Exact", "RegularExpression")
        value = self.pattern() if kind == "RegularExpression" else self.text("b", "c")
        return {"name": self.text("x-a", "x-b", "q"), "value": value, "type": kind}

    def http_match(self) -> Document:
        kind = self.text("Exact", "PathPrefix", "PathPrefix", "RegularExpression")
        path = {"type": kind, "value": self.pattern() if kind == "RegularExpression" else self.path()}
        return {
            "path": path,
            "headers": self.some(self.value_match, 2),
            "queryParams": self.some(self.value_match, 1),
            **self.maybe(method=lambda: self.text("GET", "POST")),
        }

    def grpc_match(self) -> Document:
        kind = self.text("Exact", "RegularExpression")
        name = self.pattern if kind == "RegularExpression" else lambda: self.text("foo", "foo.Bar", "Baz")
        return {"method": {"type": kind, **self.maybe(service=name, method=name)}, "headers": self.some(self.value_match, 1)}

    def headers(self) -> Document:
        def pair() -> Document:
            return {"name": self.text("x-a", "x-b", "x-c"), "value": self.text("1", "2", "a%b")}

        return {"set": self.some(pair, 2), "add": self.some(pair, 1), "remove": self.some(lambda: self.text("x-d", "x-e"), 1)}

    def path_modifier(self) -> Document:
        kind = self.text("ReplaceFullPath", "ReplacePrefixMatch")
        return {"type": kind, "replaceFullPath" if kind == "ReplaceFullPath" else "replacePrefixMatch": self.path()}

    def hostname(self) -> str:
        return self.text("a.example", "b.example")

    def filter(self) -> Document:
        r = self.r
        settings: dict[str, tuple[str, Callable[[], Document]]] = {
            "RequestHeaderModifier": ("requestHeaderModifier", self.headers),
            "ResponseHeaderModifier": ("responseHeaderModifier", self.headers),
            "RequestMirror": (
                "requestMirror",
                lambda: {
                    "backendRef": self.backend(),
                    **r.choice(
                        (
                            {},
                            {"percent": self.number(0, 50, 100)},
                            {"fraction": {"numerator": self.number(1, 2), "denominator": self.number(3, 1000)}},
                        )
                    ),
                },
            ),
            "RequestRedirect": (
                "requestRedirect",
                lambda: self.maybe(
                    scheme=lambda: self.text("http", "https"),
                    hostname=self.hostname,
                    port=lambda: self.number(80, 8443),
                    statusCode=lambda: self.number(301, 302, 303, 307, 308),
                    path=self.path_modifier,
                ),
            ),
            "URLRewrite": ("urlRewrite", lambda: self.maybe(hostname=self.hostname, path=self.path_modifier)),
            "CORS": (
                "cors",
                lambda: self.maybe(
                    allowOrigins=lambda: self.some(lambda: self.text("*", "https://*.a.example", "http://a.example:80")),
                    allowMethods=lambda: self.some(lambda: self.text("GET", "*")),
                    allowHeaders=lambda: self.some(lambda: self.text("x-a", "*")),
                    exposeHeaders=lambda: self.some(lambda: self.text("x-a", "*")),
                    allowCredentials=lambda: r.random() < 0.5,
                    maxAge=lambda: self.number(5, 600),
                ),
            ),
            "ExternalAuth": ("externalAuth", self.external_auth),
        }
        kind = r.choice(sorted(settings))
        field, make = settings[kind]
        return {"type": kind if self.sane() else r.choice((*settings, "ExtensionRef", "")), field: make()}

    def external_auth(self) -> Document:
        config = self.maybe(
            path=self.path,
            allowedHeaders=lambda: self.some(lambda: self.text("x-a", "cookie")),
            allowedResponseHeaders=lambda: self.some(lambda: self.text("x-b", "set-cookie")),
        )
        protocol = self.text("HTTP", "GRPC")
        grpc = {"allowedHeaders": config.get("allowedHeaders", [])}
        more = self.maybe(forwardBody=lambda: {"maxSize": self.number(0, 1024, 1 << 20)})
        return {"protocol": protocol, "backendRef": self.backend(), "http": config, "grpc": grpc, **more}

    def session(self) -> Document:
        kind = self.text("Cookie", "Header")
        return {
            "type": kind,
            **self.maybe(
                sessionName=lambda: self.text("s", "t"),
                absoluteTimeout=self.duration,
                cookie=lambda: self.maybe(
                    name=lambda: self.text("c"), path=self.path, lifetimeType=lambda: self.text("Permanent", "Session")
                ),
                header=lambda: self.maybe(name=lambda: self.text("x-s")),
            ),
        }

    def retry(self) -> Document:
        return self.maybe(
            attempts=lambda: self.number(0, 1, 3),
            codes=lambda: self.some(lambda: self.number(500, 503)),
            backoff=self.duration,
        )

    def route(self, kind: str, name: str) -> Document:
        parent: Document = {"name": "web", "namespace": "edge"}
        if self.r.random() < 0.2:
            parent = {"kind": "ListenerSet", "name": "set", "sectionName": self.text("http", "https")}
        spec: Document = {"parentRefs": [parent], "hostnames": self.hosts(), "rules": []}
        for _ in range(self.r.choice((1, 1, 2, 3))):
            rule: Document = {"backendRefs": self.some(self.weighted, 2), "filters": self.some(self.filter, 2)}
            rule |= self.maybe(sessionPersistence=self.session)
            if kind == "HTTPRoute":
                rule["matches"] = self.some(self.http_match, 3)
                rule |= self.maybe(
                    retry=self.retry, timeouts=lambda: self.maybe(request=self.duration, backendRequest=self.duration)
                )
            else:
                rule["matches"] = self.some(self.grpc_match, 3)
            spec["rules"].append(rule)
        return _obj(kind, name, spec=spec)

    def http_route(self, name: str) -> Document:
        return self.route("HTTPRoute", name)

    def grpc_route(self, name: str) -> Document:
        return self.route("GRPCRoute", name)

    def stream_route(self, name: str) -> Document:
        kind, section = self.r.choice(
            (("TLSRoute", "tls"), ("TLSRoute", "ends"), ("TCPRoute", "tcp"), ("UDPRoute", "udp"), ("TCPRoute", "ends"))
        )
        refs = [{**self.backend(), "weight": self.number(0, 1, 3)} for _ in range(self.r.randint(0, 3))]
        parent = {"name": "web", "namespace": "edge", "sectionName": section}
        hostnames = self.hosts() if kind == "TLSRoute" else []
        return _obj(kind, name, spec={"parentRefs": [parent], "hostnames": hostnames, "rules": [{"backendRefs": refs}]})

    # --- listeners, policies -----------------------------------------------------------------------------------------

    def listener_set(self, _: str) -> Document:
        listeners = []
        for section in ("http", "https", "tls", "more")[: self.r.randint(1, 4)]:
            protocol = self.text("HTTP", "HTTPS", "TLS", "TCP")
            listener: Document = {
                "name": section,
                "port": self.r.choice(tuple(PORTS.values()) if self.sane() else NO_PORTS),
                "protocol": protocol,
                "hostname": self.r.choice(LISTENER_HOSTS if self.sane() else HOSTS[5:]),
                "allowedRoutes": {"namespaces": {"from": "Same"}},
            }
            if protocol in ("HTTPS", "TLS"):
                mode = self.text("Terminate", "Terminate", "Passthrough") if protocol == "TLS" else "Terminate"
                listener["tls"] = {"mode": mode, "certificateRefs": [{"name": self.r.choice(NAMES)}]}
            if protocol in ("HTTP", "HTTPS") and self.r.random() < 0.3:
                filters = [{"type": "ExternalAuth", "externalAuth": self.external_auth()} for _ in range(self.r.randint(1, 5))]
                listener["filters"] = {"requests": filters}
            listeners.append(listener)
        return _obj("ListenerSet", "set", spec={"parentRef": {"name": "web", "namespace": "edge"}, "listeners": listeners})

    def policy(self, name: str) -> Document:
        def san() -> Document:
            kind = self.text("Hostname", "URI")
            value = {"hostname": self.r.choice(HOSTS)} if kind == "Hostname" else {"uri": self.text("spiffe://a/b")}
            return {"type": kind, **value}

        target = {
            **self.r.choice(({"group": "", "kind": "Service"}, IMPORT)),
            "name": self.r.choice(NAMES),
            **self.maybe(sectionName=lambda: self.text("p", "q")),
        }
        validation = {
            "hostname": self.text("a.example") if self.sane() else self.r.choice(HOSTS),
            "caCertificateRefs": [self.ca() for _ in range(self.r.randint(0, 2))],
            **self.maybe(subjectAltNames=lambda: self.some(san), wellKnownCACertificates=lambda: self.text("System")),
        }
        options = {f"lasthop.dev/{k}": self.text(v) for k, v in _OPTIONS if self.r.random() < 0.15}
        return _obj("BackendTLSPolicy", name, spec={"targetRefs": [target], "validation": validation, "options": options})

    def ca(self) -> Document:
        kind, group = self.r.choice(
            (("ConfigMap", ""), ("ConfigMap", ""), ("PinSet", "lasthop.dev"), ("VerificationWaiver", "lasthop.dev"))
        )
        return {"group": group, "kind": kind, "name": self.r.choice(NAMES)}

    def pin_set(self, _: str) -> Document:
        pins = self.some(
            lambda: {
                "type": self.text("SPKI", "Certificate"),
                "algorithm": "SHA256",
                "value": self.text("A" * 43 + "=", "ab" * 32),
            }
        )
        return _obj(
            "PinSet",
            self.r.choice(NAMES),
            spec={"pins": pins, "certificates": self.some(lambda: certificates.certificate(self.r), 1)},
        )

    def waiver(self, _: str) -> Document:
        spec = {"waives": self.text("All", "Names", "Expiry"), "reason": self.text("because")}
        expires = self.maybe(expires=lambda: self.text("2030-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2318-01-01T00:00:00Z"))
        return _obj("VerificationWaiver", self.r.choice(NAMES), spec={**spec, **expires})

    def xbackend(self, _: str) -> Document:
        spec: Document = {
            "type": self.text("ExternalHostname", "EndpointSelector"),
            "externalHostname": {"hostname": self.r.choice(HOSTS)},
            "endpointSelector": {"matchLabels": {"kubernetes.io/service-name": self.text("a")}},
            "port": {"number": self.number(443, 80)},
            "tls": {
                "mode": self.text("None", "ServerOnly", "ClientAndServer"),
                **self.maybe(clientCertificateRef=lambda: {"name": self.r.choice(NAMES)}),
                **self.maybe(validation=lambda: {"hostname": self.r.choice(HOSTS), "caCertificateRefs": [self.ca()]}),
            },
            **self.maybe(sessionPersistence=self.session, protocol=lambda: self.text("HTTP", "H2C", "GRPC")),
        }
        return _obj("XBackend", "x", spec=spec)

    def telemetry_policy(self, name: str) -> Document:
        header = {"name": self.text("x-a", "authorization"), "value": self.text("b", "Bearer c")}
        attribute = {
            "name": self.text("a", "b.c"),
            "sourceType": self.text("Header", "Literal", "Attribute"),
            "headerName": self.text("x-a"),
            "literalValue": self.text("b"),
            "attributeKey": self.text("http.request.method", "url.path"),
        }
        share = {"numerator": self.number(0, 1, 100), "denominator": self.number(100, 1)}
        tracing = {
            "mode": self.text("Enabled"),
            "provider": {"backendRef": self.backend(), "headers": [header]},
            "samplingRate": share,
            "parentBasedSampling": {"mode": self.text("Enabled", "Disabled"), "samplingRate": share},
            "serviceName": self.text("shop"),
            "spanName": self.text("a request"),
            "attributes": [attribute],
        }
        target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": self.r.choice((*NAMES, "gw"))}
        return _obj("XTelemetryPolicy", name, spec={"targetRefs": [target], "tracing": tracing})

    def traffic_policy(self, name: str) -> Document:
        service = {"group": "", "kind": self.text("Service"), "name": self.r.choice(NAMES)}
        xbackend = {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x"}
        budget = {"percent": self.number(20, 100), "interval": self.duration()}
        rate = {"count": self.number(1, 10), "interval": self.duration()}
        spec = self.maybe(retryConstraint=lambda: {"budget": budget, "minRetryRate": rate}, sessionPersistence=self.session)
        return _obj("XBackendTrafficPolicy", name, spec={"targetRefs": [service, xbackend], **spec})


_OPTIONS = (
    ("min-tls-version", "1.2"),
    ("max-tls-version", "1.3"),
    ("cipher-suites", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("curves", "X25519"),
    ("alpn", "h2"),
    ("client-certificate", "a"),
    ("session-reuse", "false"),
)
_MAKERS: tuple[Callable[[Tenant, str], Document], ...] = (
    *[Tenant.http_route] * 6,
    *[Tenant.grpc_route] * 2,
    *[Tenant.stream_route] * 2,
    *[Tenant.listener_set] * 2,
    *[Tenant.policy] * 3,
    *(Tenant.pin_set, Tenant.waiver, Tenant.xbackend, Tenant.traffic_policy, Tenant.telemetry_policy),
)


def _obj(kind: str, name: str, labels: Document | None = None, **fields: Any) -> Document:
    metadata = {"name": name, "namespace": TENANT, "labels": labels or {}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": kind, "metadata": metadata, **fields}
