"""Sends the same requests through the old program and through Lasthop with the imported objects: equal responses, or a line in
the report about the difference.

    backends one, two  <──  nginx, HAProxy or Envoy, configured as the old system configures them
                       <──  Lasthop with what `lasthop import` makes of the system's objects

Each request of a table has the reason of the line that must be there if its answer differs; a reason beside an answer that
does not differ is an error, too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from lasthop.edge.proxy.binary import find_envoy
from tests.backends import Backend, backend, until
from tests.importers import emissary_oracle
from tests.importers.end_to_end import ADDRESS, import_report
from tests.ports import free_port
from tests.proxy.lasthop import Lasthop
from tools import programs

Json = dict[str, Any]
HOST = "www.example"


class Seen(NamedTuple):
    status: int
    backend: str = ""
    path: str = ""
    """As the backend sees it."""
    location: str = ""


class Asked(NamedTuple):
    path: str
    said: str = ""
    """The reason of the line about a difference; empty: there is none."""
    host: str = HOST


def ask(port: int, asked: Asked, backends: Mapping[str, Backend]) -> Seen:
    for each in backends.values():
        each.connections.clear()
        each.drop()
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=15)
    with contextlib.closing(connection):
        connection.request("GET", asked.path, headers={"Host": asked.host})
        answer = connection.getresponse()
        answer.read()
    lines = [(name, line.split(" ")[1]) for name, each in backends.items() for line in each.requests]
    name, path = lines[-1] if lines else ("", "")
    if answer.status != 200:
        name = path = ""
    return Seen(answer.status, name, path, _location(answer.getheader("location") or "", asked.host))


def _location(written: str, host: str) -> str:
    """Returns where a redirect leads: the path, with the host if that is another one."""
    parts = urlsplit(written)
    there = parts.hostname if parts.hostname and parts.hostname != host else ""
    scheme = f"{parts.scheme}://" if there or parts.scheme == "https" else ""
    return f"{scheme}{there}{parts.path}{'?' + parts.query if parts.query else ''}"


def _service(name: str, port: int) -> list[Json]:
    metadata = {"name": name, "namespace": "shop"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"name": "http", "port": 80}]}}
    endpoints = [{"addresses": [ADDRESS], "conditions": {"ready": True, "serving": True}}]
    slices = {"addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": port}]}
    labelled = {**metadata, "labels": {"kubernetes.io/service-name": name}}
    return [service, {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": labelled, **slices}]


class OldGateway(NamedTuple):
    """A system: its objects, the program that served them, and the requests."""

    system: str
    program: str
    """Of tools/programs.py; empty: Envoy."""
    objects: Sequence[Json]
    requests: Sequence[Asked]

    def command(self, root: Path, port: int, upstreams: Mapping[str, int]) -> list[str]:
        text, command = {"ingress-nginx": _nginx, "openshift": _haproxy, "emissary": _envoy}[self.system](
            self, root, port, upstreams
        )
        (root / "config.yaml").write_text(text)
        return command


# --- ingress-nginx ---------------------------------------------------------------------------------------------------


def _ingress(name: str, paths: Sequence[tuple[str, str, str]], **annotations: str) -> Json:
    """`paths`: path, type, Service."""
    written = [
        {"path": path, "pathType": kind, "backend": {"service": {"name": service, "port": {"number": 80}}}}
        for path, kind, service in paths
    ]
    keys = {f"nginx.ingress.kubernetes.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {"ingressClassName": "nginx", "rules": [{"host": f"{name}.example", "http": {"paths": written}}]}
    metadata = {"name": name, "namespace": "shop", "annotations": keys}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _nginx(old: OldGateway, root: Path, port: int, upstreams: Mapping[str, int]) -> tuple[str, list[str]]:
    """Writes what the controller's template does: a server for each host, a location for each path."""
    servers = []
    for each in old.objects:
        annotations = {key.rpartition("/")[2]: value for key, value in each["metadata"]["annotations"].items()}
        (rule,) = each["spec"]["rules"]
        lines = [f"listen {ADDRESS}:{port};", f"server_name {rule['host']};"]
        if root_path := annotations.get("app-root"):
            lines.append(f"if ($uri = /) {{ return 302 $scheme://$http_host{root_path}; }}")
        for path in rule["http"]["paths"]:
            lines += _locations(path, annotations, upstreams)
        servers.append(f"server {{ {' '.join(lines)} }}")
    default = f"server {{ listen {ADDRESS}:{port} default_server; location / {{ return 404; }} }}"
    temporary = " ".join(f"{kind}_temp_path {root}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    text = f"""daemon off; master_process off; pid {root}/pid; error_log {root}/error.log; events {{}}
http {{ access_log off; {temporary} {default} {" ".join(servers)} }}"""
    return text, [programs.path("nginx"), "-e", f"{root}/error.log", "-p", str(root), "-c", f"{root}/config.yaml"]


def _locations(path: Json, annotations: Mapping[str, str], upstreams: Mapping[str, int]) -> Iterator[str]:
    written, kind, target = path["path"], path["pathType"], annotations.get("rewrite-target", "")
    inside = f"proxy_pass http://{ADDRESS}:{upstreams[path['backend']['service']['name']]};"
    for name, code in (("permanent-redirect", 301), ("temporal-redirect", 302)):
        if name in annotations:
            inside = f"return {code} {annotations[name]};"
    if target:
        yield f'location ~* "^{written}" {{ rewrite "(?i){written}" {target} break; {inside} }}'
    elif kind == "Exact":
        yield f"location = {written} {{ {inside} }}"
    elif kind == "Prefix" and written != "/":
        yield f"location = {written.rstrip('/')} {{ {inside} }} location {written.rstrip('/')}/ {{ {inside} }}"
    else:
        yield f"location {written} {{ {inside} }}"


def _at(name: str, *requests: tuple[str, str] | str) -> list[Asked]:
    pairs = [(each, "") if isinstance(each, str) else each for each in requests]
    return [Asked(path, said, f"{name}.example") for path, said in pairs]


NORMALIZED = "paths-normalized"
INGRESS_NGINX = OldGateway(
    "ingress-nginx",
    "nginx",
    [
        _ingress("paths", [("/foo", "Prefix", "one"), ("/foo/bar", "Exact", "two")]),
        _ingress("characters", [("/s", "ImplementationSpecific", "one"), ("/a/b/", "ImplementationSpecific", "two")]),
        _ingress("strip", [("/strip(/|$)(.*)", "ImplementationSpecific", "one")], rewrite_target="/$2"),
        _ingress("tail", [("/tail/(.*)", "ImplementationSpecific", "one")], rewrite_target="/$1"),
        _ingress("maybe", [("/api/?(.*)", "ImplementationSpecific", "one")], rewrite_target="/$1"),
        _ingress("base", [("/app(/|$)(.*)", "ImplementationSpecific", "one")], rewrite_target="/base/$2"),
        _ingress("glued", [("/app(/|$)(.*)", "ImplementationSpecific", "one")], rewrite_target="/base$2"),
        _ingress("fixed", [("/all", "ImplementationSpecific", "one")], rewrite_target="/other"),
        _ingress("moved", [("/", "Prefix", "one")], permanent_redirect="https://new.example/y"),
        _ingress("away", [("/", "Prefix", "one")], temporal_redirect="https://new.example/z"),
        _ingress("root", [("/", "Prefix", "one")], app_root="/start"),
    ],
    [
        *_at("paths", "/foo", "/foo/", "/foo/x", "/foobar", "/foo/bar", "/foo/bar/", "/", "/foo/x?q=1", "/FOO"),
        *_at("paths", ("/foo%2Fx", NORMALIZED), ("/foo//x", NORMALIZED), ("/foo/%66", NORMALIZED), ("/foo/./x", NORMALIZED)),
        *_at("characters", "/s", "/s/x", ("/sx", "prefix-narrowed"), "/a/b", "/a/b?q=1", "/a/b/", "/a/b/c", "/a/bc"),
        *_at("strip", "/strip", "/strip/", "/strip/x", "/strip/x/y?q=1", "/stripx", ("/STRIP/x", "case-sensitive-now")),
        *_at("tail", ("/tail", "prefix-widened"), "/tail/", "/tail/x", "/tailx", ("/Tail/x", "case-sensitive-now")),
        *_at("maybe", "/api", "/api/", "/api/x", ("/apix", "prefix-narrowed"), "/other"),
        *_at("base", ("/app", "rewrite-joined"), "/app/", "/app/x", "/appx"),
        *_at("glued", "/app", ("/app/x", "rewrite-joined")),
        *_at("fixed", "/all", "/all/x", "/ALL", "/allx"),
        *_at("moved", "/", "/x", ("/x?q=1", "redirect-keeps-query")),
        *_at("away", "/x", ("/x?q=1", "redirect-keeps-query")),
        *_at("root", "/", "/x", ("/?q=1", "redirect-keeps-query")),
        *_at("unknown", "/"),
    ],
)


# --- OpenShift's router ----------------------------------------------------------------------------------------------


def _route(name: str, service: str, path: str = "", **annotations: str) -> Json:
    keys = {f"haproxy.router.openshift.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {"host": f"{name}.example", **({"path": path} if path else {}), "to": {"kind": "Service", "name": service}}
    metadata = {"name": f"{name}{path.replace('/', '-').rstrip('-')}", "namespace": "shop", "annotations": keys}
    return {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": metadata, "spec": spec}


def _haproxy(old: OldGateway, root: Path, port: int, upstreams: Mapping[str, int]) -> tuple[str, list[str]]:
    """Writes what the router's template does: a map from host and path to backends, the longest expression first."""
    lines, backends = [], []
    ordered = sorted(old.objects, key=lambda each: f"{each['spec']['host']}{each['spec'].get('path', '')}", reverse=True)
    for number, each in enumerate(ordered):
        spec, path = each["spec"], each["spec"].get("path", "")
        inside = re.escape(path) if path.endswith("/") else f"{re.escape(path)}(/.*)?$"
        lines.append(f"^{re.escape(spec['host'])}\\.?(:[0-9]+)?{inside} back{number}")
        target = each["metadata"]["annotations"].get("haproxy.router.openshift.io/rewrite-target", "")
        if target == "/":
            rule = f"http-request replace-path ^{path}(?:/(.*)|$) /\\1"
        else:
            rule = f"http-request replace-path ^{path}(.*)$ {target}\\1" if target else ""
        server = f"server s {ADDRESS}:{upstreams[spec['to']['name']]}"
        backends.append(f"backend back{number}\n  {rule}\n  {server}\n")
    (root / "map").write_text("\n".join(lines) + "\n")
    text = f"""global
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend public
  bind {ADDRESS}:{port}
  http-request set-var(txn.base) base
  use_backend %[var(txn.base),map_reg({root}/map)] if {{ var(txn.base),map_reg({root}/map) -m found }}
  default_backend nobody
backend nobody
  http-request return status 503
{"".join(backends)}"""
    return text, [programs.path("haproxy"), "-db", "-f", f"{root}/config.yaml"]


OPENSHIFT = OldGateway(
    "openshift",
    "haproxy",
    [
        _route("plain", "one"),
        _route("paths", "one", "/foo"),
        _route("paths", "two", "/foo/bar"),
        _route("slash", "one", "/sub/"),
        _route("rewrite", "one", "/old", rewrite_target="/new"),
        _route("strip", "one", "/old", rewrite_target="/"),
    ],
    [
        *_at("plain", "/", "/x?q=1", ("/a%2Fb", NORMALIZED), ("/a//b", NORMALIZED)),
        *_at("paths", "/foo", "/foo/", "/foo/x", "/foo/bar", "/foo/bar/x", "/foo/barx"),
        *(Asked(path, "unmatched-404", "paths.example") for path in ("/", "/foobar", "/FOO")),
        *_at("slash", ("/sub", "prefix-widened"), "/sub/", "/sub/x"),
        *_at("rewrite", "/old", "/old/x"),
        *_at("strip", "/old", "/old/", "/old/x"),
        Asked("/", "unmatched-404", "unknown.example"),
    ],
)


# --- Emissary --------------------------------------------------------------------------------------------------------


def _emissary(kind: str, name: str, **spec: Any) -> Json:
    metadata = {"name": name, "namespace": "shop", "labels": spec.pop("labels", {})}
    return {"apiVersion": "getambassador.io/v3alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _mapping(name: str, prefix: str, service: str = "one", hostname: str = HOST, **spec: Any) -> Json:
    return _emissary("Mapping", name, hostname=hostname, prefix=prefix, service=service, timeout_ms=3000, **spec)


def _envoy(old: OldGateway, root: Path, port: int, upstreams: Mapping[str, int]) -> tuple[str, list[str]]:
    """Writes what Emissary emits, by its own rules in emissary_oracle.py."""
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress_http",
        "normalize_path": True,
        "route_config": {"virtual_hosts": emissary_oracle.virtual_hosts(old.objects, 80, secure=False)},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    address = {"socket_address": {"address": ADDRESS, "port_value": port}}
    clusters = [
        {
            "name": name,
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(upstream)}}]}],
            },
        }
        for name, upstream in upstreams.items()
    ]
    config = {"static_resources": {"listeners": [{"address": address, "filter_chains": [chain]}], "clusters": clusters}}
    command = [str(find_envoy().path), "-c", f"{root}/config.yaml", "--disable-hot-restart", "--concurrency", "1"]
    return json.dumps(config), [*command, "--log-level", "off"]


def _socket(port: int) -> Json:
    return {"socket_address": {"address": ADDRESS, "port_value": port}}


def _regex(name: str, pattern: str) -> Json:
    mapping = _mapping(name, "/pattern/", "two", rewrite="")
    del mapping["spec"]["hostname"]
    mapping["spec"] |= {"host": pattern, "host_regex": True}
    return mapping


EMISSARY = OldGateway(
    "emissary",
    "",
    [
        _emissary(
            "Listener", "http", port=80, protocol="HTTP", securityModel="XFP", hostBinding={"namespace": {"from": "ALL"}}
        ),
        _emissary("Host", "all", hostname="*", requestPolicy={"insecure": {"action": "Route"}}),
        *(
            _emissary(
                "Host",
                name,
                hostname=f"{name}.example",
                mappingSelector={"matchLabels": {"host": name}},
                requestPolicy={"insecure": {"action": "Route"}},
            )
            for name in ("foo", "bar")
        ),
        *(
            _emissary("Mapping", f"tenant-{name}", prefix="/test/", service=service, labels={"host": name}, timeout_ms=3000)
            for name, service in (("foo", "one"), ("bar", "two"))
        ),
        _emissary("Mapping", "hidden", prefix="/hidden/", service="one"),
        _mapping("slashes", "/billing/"),
        _mapping("characters", "/api", rewrite=""),
        _mapping("joined", "/ext/", rewrite="/out"),
        _mapping("doubled", "/two", rewrite="/"),
        _mapping("moved", "/in/", rewrite="/out/"),
        _mapping("exact", "/exact", "two", prefix_exact=True, rewrite="/whole"),
        _mapping("expression", "/e[0-9]+/.*", "two", prefix_regex=True),
        _mapping("cased", "/Case/", case_sensitive=False),
        _mapping("elsewhere", "/old/", "new.example", host_redirect=True),
        _mapping("prefixed", "/older/", "new.example", host_redirect=True, prefix_redirect="/newer/"),
        _mapping("fixed", "/oldest/", "new.example", host_redirect=True, path_redirect="/x", redirect_response_code=302),
        _mapping("everywhere", "/common/", "two", hostname="*"),
        _mapping("preferred", "/", "two", hostname="precedence.example", precedence=5, rewrite=""),
        _mapping("overtaken", "/specific/", "one", hostname="precedence.example", rewrite=""),
        _regex("expression-of-hosts", "[ab]\\.pattern\\.example"),
    ],
    [
        Asked("/test/x", host="foo.example"),
        Asked("/test/x", host="bar.example"),
        Asked("/test/x"),
        Asked("/hidden/x"),
        Asked("/billing/x"),
        Asked("/billing/x?q=1"),
        Asked("/billing/"),
        Asked("/billing", "prefix-widened"),
        Asked("/billingx"),
        Asked("/api"),
        Asked("/api/x"),
        Asked("/apix", "prefix-narrowed"),
        Asked("/ext/x", "rewrite-joined"),
        Asked("/two/x", "rewrite-joined"),
        Asked("/in/x"),
        Asked("/in/"),
        Asked("/exact"),
        Asked("/exact/x"),
        Asked("/e12/x"),
        Asked("/Case/x"),
        Asked("/case/x", "case-sensitive-now"),
        Asked("/old/x?q=1"),
        Asked("/older/x"),
        Asked("/oldest/x"),
        Asked("/common/x"),
        Asked("/common/x", host="any.test"),
        Asked("/specific/x", "order-changed", "precedence.example"),
        Asked("/pattern/x", host="a.pattern.example"),
        Asked("/pattern/x", host="c.pattern.example"),
        Asked("/api%2Fx", NORMALIZED),
        Asked("/api//x", NORMALIZED),
        Asked("/api/./x"),
        Asked("/nowhere"),
    ],
)
GATEWAYS = {each.system: each for each in (INGRESS_NGINX, OPENSHIFT, EMISSARY)}
MARKED = [
    pytest.param(name, marks=[pytest.mark.program(old.program)] if old.program else []) for name, old in GATEWAYS.items()
]


@pytest.mark.parametrize("system", MARKED)
def test_requests_are_answered_as_before_or_the_report_says_otherwise(system: str) -> None:
    old = GATEWAYS[system]
    with contextlib.ExitStack() as stack:
        roots = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp"))) for _ in range(2)]
        backends = {name: stack.enter_context(backend(name=name)) for name in ("one", "two")}
        port = free_port()
        command = old.command(roots[0], port, {name: each.port for name, each in backends.items()})
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait, 20)
        stack.callback(process.terminate)
        lasthop = stack.enter_context(contextlib.closing(Lasthop(roots[1])))
        services = [each for name, there in backends.items() for each in _service(name, there.port)]
        report = import_report(system, [*old.objects, *services], [], lasthop)
        lasthop.start(ready=False)
        until(lasthop.ready, "lasthop is ready")
        until(lambda: ask(port, Asked("/"), backends).status, "the old program serves")
        until(lambda: ask(lasthop.port, old.requests[0], backends).status != 503, "lasthop serves")
        said = {note["reason"] for note in report["notes"]}
        wrong = []
        for each in old.requests:
            before, now = ask(port, each, backends), ask(lasthop.port, each, backends)
            if (before != now) is not bool(each.said) or (each.said and each.said not in said):
                wrong.append(f"{each}: {tuple(before)} -> {tuple(now)}")
        assert not wrong, "\n".join([*wrong, yaml.safe_dump(sorted(said))])
