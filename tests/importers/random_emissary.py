"""Random Mappings, TLSContexts, Hosts, Listeners and TCPMappings for Emissary, sensible and not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

Json = dict[str, Any]
API = "getambassador.io/v3alpha1"
SERVICES = (
    *("api", "https://api", "https://api.shop:443", "http://web.obs:80", "web.obs.svc.cluster.local:443", "missing:443"),
    *(
        "https://outside.billing.example",
        "https://192.0.2.7:8443",
        "ftp://api",
        "https://Bad_Name",
        "",
        ":80",
        "https://api/x",
    ),
)
CONTEXT: dict[str, tuple[Any, ...]] = {
    "secret": ("pair", "mutual.obs", "missing", "ca", ""),
    "ca_secret": ("authority", "authority.obs", "missing", "ca"),
    "cert_chain_file": ("/c.pem",),
    "private_key_file": ("/k.pem",),
    "cacert_chain_file": ("/ca.pem",),
    "crl_secret": ("crl",),
    "sni": ("api.internal", "10.0.0.1", "not a name"),
    "alpn_protocols": ("h2", "h2,http/1.1"),
    "min_tls_version": ("v1.0", "v1.2", "v1.3", "odd"),
    "max_tls_version": ("v1.1", "v1.2", "v1.3"),
    "cipher_suites": (["ECDHE-RSA-AES128-GCM-SHA256"], ["DES"], "DES"),
    "secret_namespacing": (True, False, "no"),
    "hosts": (["a.example"],),
    "never_heard_of": (1,),
}
MAPPING: dict[str, tuple[Any, ...]] = {
    "tls": ("one", "two", "none", True, "", 7),
    "prefix_exact": (True,),
    "prefix_regex": (True,),
    "case_sensitive": (False,),
    "method": ("GET", "GET|POST", "BREW"),
    "method_regex": (True,),
    "headers": ({"x-a": "1"}, {"x-b": True}, {"bad name": "1"}, {":authority": "a.example"}),
    "regex_headers": ({"x-c": "("}, {"x-c": "a.*"}),
    "query_parameters": ({"q": "1"},),
    "precedence": (5,),
    "rewrite": ("", "/", "/new", "no-slash"),
    "regex_rewrite": ({"pattern": "a", "substitution": "b"},),
    "host_rewrite": ("in.example", "bad_host"),
    "auto_host_rewrite": (True,),
    "weight": (10, 0, -5, 200, "10"),
    "shadow": (True,),
    "timeout_ms": (0, 5000, -1, 10**12),
    "retry_policy": ({"retry_on": "5xx,odd", "num_retries": 3, "per_try_timeout": "1s"},),
    "cors": ({"origins": ["*"], "methods": "GET,BREW", "max_age": "x"}, {"origins": "junk"}),
    "add_request_headers": ({"x-d": "1", "bad name": "2"}, {"x-e": {"value": "1", "append": False}}, {"x-f": 1}),
    "remove_response_headers": ("server", ["server"]),
    "host_redirect": (True,),
    "path_redirect": ("/x",),
    "redirect_response_code": (302, 300),
    "grpc": (True, "yes"),
    "bypass_auth": (True,),
    "load_balancer": ({"policy": "ring_hash", "cookie": {"name": "c", "ttl": "60s"}}, {"policy": "least_request"}),
    "labels": ({"x": []},),
    "resolver": ("consul", "endpoint"),
    "host_regex": (True,),
}


def _object(draw: st.DrawFn, kind: str, name: str, spec: Json) -> Json:
    metadata: Json = {"name": name, "namespace": draw(st.sampled_from(("shop", "obs")))}
    if draw(st.booleans()):
        metadata["creationTimestamp"] = f"2024-01-0{draw(st.integers(1, 9))}T00:00:00Z"
    if draw(st.integers(0, 5)) == 0:
        spec["ambassador_id"] = draw(st.sampled_from((["default"], "other", ["other", "default"])))
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


@st.composite
def _mapping(draw: st.DrawFn, number: int) -> Json:
    spec = draw(surroundings.some(MAPPING, 4))
    spec |= {"prefix": draw(st.sampled_from(("/", "/a", "/a/", "/[", "no", "/pkg.Service/", "")))}
    spec["service"] = draw(st.sampled_from(SERVICES))
    if draw(st.booleans()):
        spec["tls"] = draw(st.sampled_from(MAPPING["tls"]))
    if draw(st.booleans()):
        spec["hostname"] = draw(st.sampled_from(("a.example", "*", "*.b.example", "b.*", "B.example")))
    return _object(draw, "Mapping", f"mapping-{number}", spec)


def _around() -> list[Json]:
    found: list[Json] = []
    pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
    for namespace in ("shop", "obs"):
        for name in ("api", "web"):
            found += surroundings.service(namespace, name, {"https": 443, "http": 80})
        found.append(surroundings.secret(namespace, "authority", tls_crt=surroundings.CA))
        found.append(surroundings.secret(namespace, "ca", ca_crt=surroundings.CA))
        found.append(surroundings.secret(namespace, "pair", **pair))
        found.append(surroundings.secret(namespace, "mutual", **pair, **{"root-cert_pem": surroundings.NEXT_CA}))
    return found


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[Json]:
    found = [_object(draw, "TLSContext", name, draw(surroundings.some(CONTEXT, 5))) for name in ("one", "two")]
    for number, (port, protocol) in enumerate(((8080, "HTTP"), (8443, "HTTPS"))):
        if draw(st.booleans()):
            model = draw(st.sampled_from(("XFP", "SECURE", "INSECURE")))
            spec: Json = {"port": port, "protocol": draw(st.sampled_from((protocol, protocol, "ODD"))), "securityModel": model}
            found.append(_object(draw, "Listener", f"listener-{number}", spec))
    for number in range(draw(st.integers(0, 2))):
        host: Json = {"hostname": draw(st.sampled_from(("a.example", "*", "*.b.example", "bad_host")))}
        if draw(st.booleans()):
            host["tlsSecret"] = {"name": draw(st.sampled_from(("pair", "missing")))}
        if draw(st.booleans()):
            host["requestPolicy"] = {"insecure": {"action": draw(st.sampled_from(("Route", "Redirect", "Reject", "odd")))}}
        found.append(_object(draw, "Host", f"host-{number}", host))
    if draw(st.integers(0, 3)) == 0:
        stream: Json = {"port": draw(st.sampled_from((5432, 9999))), "service": draw(st.sampled_from(SERVICES))}
        stream |= draw(surroundings.some({"host": ("a.example", "*"), "tls": ("one", "none")}, 2))
        found.append(_object(draw, "TCPMapping", "stream", stream))
    if draw(st.integers(0, 3)) == 0:
        auth: Json = {"auth_service": draw(st.sampled_from(SERVICES)), "proto": draw(st.sampled_from(("http", "grpc")))}
        found.append(_object(draw, "AuthService", "auth", auth))
    return [*found, *(draw(_mapping(number)) for number in range(draw(st.integers(1, 4))))]
