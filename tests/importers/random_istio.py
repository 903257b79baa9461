"""Random Gateways, VirtualServices, DestinationRules and ServiceEntries for Istio, sensible and not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

Json = dict[str, Any]
API = "networking.istio.io/v1"
NAMESPACES = ("bank", "istio-system")
HOSTS = ("a.example", "b.example", "*.c.example", "*", "bad_host", "B.example")
DESTINATIONS = (
    *("api", "web", "api.bank.svc.cluster.local", "web.istio-system.svc.cluster.local", "missing", "Bad_Name"),
    *("outside.example", "fixed.example", "wild.example", "nowhere.example", "out.bank.svc.cluster.local"),
)
TLS: dict[str, tuple[Any, ...]] = {
    "mode": ("SIMPLE", "SIMPLE", "MUTUAL", "DISABLE", "ISTIO_MUTUAL", "simple", "", 1),
    "sni": ("api.internal", "10.0.0.1", "not a name"),
    "subjectAltNames": (["api.internal"], ["spiffe://x/y", "b.internal"], ["10.0.0.1"], [], ["*.internal"], "text", [1]),
    "credentialName": ("ca", "mutual", "missing", "leaf", "configmap://roots", "pair", ""),
    "caCertificates": ("system", "/etc/ca.pem", ""),
    "clientCertificate": ("/c.pem",),
    "privateKey": ("/k.pem",),
    "insecureSkipVerify": (True, False, "true", None),
    "caCrl": ("/crl.pem",),
}
MATCH: dict[str, tuple[Any, ...]] = {
    "uri": ({"prefix": "/"}, {"prefix": "/a"}, {"exact": "/x"}, {"regex": "/v[0-9]+"}, {"regex": "("}, {"prefix": "no"}, {}),
    "headers": ({"x-a": {"exact": "1"}}, {"x-b": {}}, {"bad name": {"exact": "1"}}, {"x-c": {"regex": "("}}, {"x-d": 1}),
    "queryParams": ({"q": {"exact": "1"}}, {"q": {"prefix": "a"}}),
    "method": ({"exact": "GET"}, {"regex": "GET|POST"}, {"exact": "BREW"}),
    "authority": ({"exact": "a.example"}, {"exact": "a.example:80"}, {"regex": ".*"}),
    "port": (8080, 443, 99),
    "scheme": ({"exact": "https"}, {"exact": "ftp"}),
    "ignoreUriCase": (True,),
    "withoutHeaders": ({"x": {}},),
    "sourceLabels": ({"a": "b"},),
    "gateways": (["edge"], ["istio-system/edge"], ["mesh"]),
}
ROUTE: dict[str, tuple[Any, ...]] = {
    "rewrite": ({"uri": "/"}, {"uri": "/b", "authority": "in.example"}, {"authority": "bad_host:1"}, {"uri": "no-slash"}),
    "redirect": ({"uri": "/y"}, {"authority": "n.example:8443", "redirectCode": 302}, {"prefixRewrite": "/n", "port": 99999}),
    "timeout": ("4s", "0s", "1.5h", "soon", "0.000001s"),
    "retries": ({"attempts": 2, "perTryTimeout": "9s", "retryOn": "5xx,503,odd"}, {"attempts": 0}, {"attempts": 1000}),
    "mirror": ({"host": "web", "port": {"number": 80}}, {"host": "nowhere.example"}),
    "mirrorPercentage": ({"value": 0.1}, {"value": 50}),
    "corsPolicy": ({"allowOrigins": [{"exact": "*"}, {"regex": "x"}], "allowMethods": ["GET", "BREW"], "maxAge": "1h"},),
    "headers": (
        {"request": {"set": {"Host": "h.example", "x-a": "1"}, "remove": ["x-b"]}},
        {"response": {"add": {"bad name": "1", "x-c": "%REQ(x)%"}}},
    ),
    "fault": ({"abort": {"httpStatus": 500}},),
    "directResponse": ({"status": 404},),
    "delegate": ({"name": "x"}, {"name": "team", "namespace": "bank"}, {"name": "team"}),
}


@st.composite
def _destination(draw: st.DrawFn) -> Json:
    found: Json = {"host": draw(st.sampled_from(DESTINATIONS))}
    if draw(st.booleans()):
        found["port"] = {"number": draw(st.sampled_from((443, 80, 9000, 1)))}
    if draw(st.integers(0, 4)) == 0:
        found["subset"] = draw(st.sampled_from(("v1", "v9")))
    return found


@st.composite
def _tls(draw: st.DrawFn) -> Json:
    found = draw(surroundings.some(TLS, 4))
    return {"mode": draw(st.sampled_from(TLS["mode"])), **found} if draw(st.booleans()) else found


@st.composite
def _policy(draw: st.DrawFn) -> Json:
    found: Json = {"tls": draw(_tls())} if draw(st.integers(0, 3)) else {}
    if draw(st.booleans()):
        entry: Json = {"port": {"number": draw(st.sampled_from((443, 80)))}}
        if draw(st.booleans()):
            entry["tls"] = draw(_tls())
        found["portLevelSettings"] = [entry]
    if draw(st.booleans()):
        found["connectionPool"] = {"http": {"h2UpgradePolicy": "UPGRADE"}, "tcp": {"maxConnections": 1}}
    return found


def _metadata(draw: st.DrawFn, name: str) -> Json:
    found: Json = {"name": name, "namespace": draw(st.sampled_from(NAMESPACES))}
    if draw(st.booleans()):
        found["creationTimestamp"] = f"2024-01-0{draw(st.integers(1, 9))}T00:00:00Z"
    return found


@st.composite
def _rule(draw: st.DrawFn, number: int) -> Json:
    hosts = (*DESTINATIONS, "*.bank.svc.cluster.local", "*")
    spec: Json = {"host": draw(st.sampled_from(hosts)), "trafficPolicy": draw(_policy())}
    if draw(st.booleans()):
        spec["subsets"] = [{"name": "v1", "labels": {"version": "v1"}, "trafficPolicy": draw(_policy())}]
    if draw(st.booleans()):
        spec["exportTo"] = draw(st.sampled_from((["."], ["*"], ["bank"], [])))
    if draw(st.integers(0, 4)) == 0:
        spec["workloadSelector"] = {"matchLabels": {"istio": draw(st.sampled_from(("edge", "other")))}}
    return {"apiVersion": API, "kind": "DestinationRule", "metadata": _metadata(draw, f"rule-{number}"), "spec": spec}


@st.composite
def _gateway(draw: st.DrawFn, name: str) -> Json:
    servers = []
    selector = {"istio": draw(st.sampled_from(("edge", "other")))}
    for _ in range(draw(st.integers(1, 3))):
        protocol = draw(st.sampled_from(("HTTP", "HTTPS", "TLS", "TCP", "GRPC", "ODD")))
        # Gateways of other Pods have ports of their own: a folder is one host. Absent ones are taken to have 80 and 443.
        number = draw(st.sampled_from((8080, 8443, 70000))) + (1000 if selector["istio"] == "other" else 0)
        port = {"number": number, "name": "p", "protocol": protocol}
        host = draw(st.sampled_from((*HOSTS, "./a.example", "bank/b.example")))
        server: Json = {"port": port, "hosts": [host]}
        if draw(st.booleans()):
            mode = draw(st.sampled_from(("SIMPLE", "MUTUAL", "PASSTHROUGH", "OPTIONAL_MUTUAL", "ISTIO_MUTUAL")))
            server["tls"] = {"mode": mode, "credentialName": draw(st.sampled_from(("pair", "mutual", "missing")))}
        elif draw(st.booleans()):
            server["tls"] = {"httpsRedirect": True}
        servers.append(server)
    metadata = {"name": name, "namespace": "istio-system"}
    return {"apiVersion": API, "kind": "Gateway", "metadata": metadata, "spec": {"selector": selector, "servers": servers}}


@st.composite
def _virtual_service(draw: st.DrawFn, number: int) -> Json:
    routes = []
    for _ in range(draw(st.integers(1, 3))):
        route = draw(surroundings.some(ROUTE, 2))
        if draw(st.booleans()):
            route["match"] = [draw(surroundings.some(MATCH, 3)) for _ in range(draw(st.integers(1, 2)))]
        count = draw(st.integers(1, 2))
        weights = [{"weight": draw(st.integers(0, 100))} if count > 1 else {} for _ in range(count)]
        route["route"] = [{"destination": draw(_destination()), **weight} for weight in weights]
        routes.append(route)
    gateways = draw(
        st.sampled_from((["istio-system/edge"], ["istio-system/edge", "istio-system/raw"], ["mesh"], ["istio-system/absent"]))
    )
    spec: Json = {"hosts": [draw(st.sampled_from(HOSTS))], "gateways": gateways, "http": routes}
    if draw(st.booleans()):
        spec["tls"] = [{"match": [{"sniHosts": ["a.example"]}], "route": [{"destination": draw(_destination())}]}]
        spec["tcp"] = [{"match": [{"port": 8443}], "route": [{"destination": draw(_destination())}]}]
    if draw(st.integers(0, 4)) == 0:
        spec["exportTo"] = ["."]
    return {"apiVersion": API, "kind": "VirtualService", "metadata": _metadata(draw, f"routes-{number}"), "spec": spec}


def _entry(name: str, host: str, **spec: Any) -> Json:
    ports = [{"number": 443, "name": "https", "protocol": "HTTPS"}, {"number": 80, "name": "http", "protocol": "HTTP"}]
    metadata = {"name": name, "namespace": "bank"}
    return {"apiVersion": API, "kind": "ServiceEntry", "metadata": metadata, "spec": {"hosts": [host], "ports": ports, **spec}}


def _around() -> list[Json]:
    found: list[Json] = []
    for namespace in NAMESPACES:
        found += surroundings.service(namespace, "api", {"https": 443, "http": 80, "grpc": 9000})
        found += surroundings.service(namespace, "web", {"http": 80})
        found.append(surroundings.secret(namespace, "ca", cacert=surroundings.CA))
        found.append(surroundings.secret(namespace, "leaf", ca_crt=surroundings.LEAF))
        pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
        found.append(surroundings.secret(namespace, "pair", **pair))
        found.append(surroundings.secret(namespace, "mutual", ca_crt=surroundings.NEXT_CA, **pair))
    found.append(surroundings.config_map("bank", "roots", ca_crt=surroundings.CA))
    metadata = {"name": "out", "namespace": "bank"}
    external = {"type": "ExternalName", "externalName": "x.example", "ports": [{"name": "https", "port": 443}]}
    found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": external})
    return found


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[Json]:
    names = {"subjectAltNames": ["names.example"]} if draw(st.booleans()) else {}
    endpoints = [{"address": "192.0.2.1"}, {"address": "192.0.2.2", "ports": {"https": 8443}}]
    found = [
        _entry("outside", "outside.example", resolution="DNS", **names),
        _entry("fixed", "fixed.example", resolution="STATIC", endpoints=endpoints),
        _entry("wild", "wild.example", resolution=draw(st.sampled_from(("NONE", "DYNAMIC_DNS")))),
        draw(_gateway("edge")),
        draw(_gateway("raw")),
    ]
    if draw(st.integers(0, 3)):
        labels = draw(st.sampled_from(({"istio-injection": "enabled"}, {})))
        found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bank", "labels": labels}})
    found += [draw(_rule(number)) for number in range(draw(st.integers(0, 4)))]
    found += [draw(_virtual_service(number)) for number in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        team = draw(_virtual_service(9))
        rest = {key: value for key, value in team["spec"].items() if key in ("http", "exportTo")}
        found.append({**team, "metadata": {"name": "team", "namespace": "bank"}, "spec": rest})
    return found
