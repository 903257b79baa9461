"""Chooses the route of a request by the spec's text only: it tries every match of every route, and takes the best.

It shares no code with Lasthop and Envoy, so that tests can compare their choices with it. Paths, headers and queries are drawn
from few values, so that routes meet and requests hit.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from urllib.parse import parse_qsl

from hypothesis import strategies as st

Document = dict[str, Any]
HOST = "abc.example.com"
HOSTNAMES: tuple[list[str], ...] = (["abc.example.com"], ["*.example.com"], ["*.com"], [], ["*.com", "other.example.com"])


@dataclasses.dataclass(frozen=True)
class Request:
    target: str
    """Path and query."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    grpc: bool = False

    @property
    def path(self) -> str:
        return self.seen.partition("?")[0]

    @property
    def seen(self) -> str:
        """The target as it is matched: a gateway at the edge takes several slashes of the path for one."""
        path, mark, query = self.target.partition("?")
        return re.sub("/+", "/", path) + mark + query

    @property
    def query(self) -> dict[str, str]:
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(self.target.partition("?")[2], keep_blank_values=True):
            parameters.setdefault(name, value)
        return parameters


def matches(match: Document, request: Request, kind: str = "HTTPRoute") -> bool:
    if kind == "GRPCRoute":
        return request.grpc and _called(match.get("method", {}), request.path) and _headers(match, request)
    path = match.get("path", {"type": "PathPrefix", "value": "/"})
    value = path["value"]
    fits = {
        "Exact": request.path == value,
        # "Matching is done on a path element by element basis ... a trailing / is ignored."
        "PathPrefix": f"{request.path.rstrip('/')}/".startswith(f"{value.rstrip('/')}/"),
        "RegularExpression": path["type"] == "RegularExpression" and re.fullmatch(value, request.path) is not None,
    }[path["type"]]
    return (
        fits
        and match.get("method", request.method) == request.method
        and _headers(match, request)
        and all(_value(parameter, request.query.get(parameter["name"])) for parameter in match.get("queryParams", ()))
    )


def _headers(match: Document, request: Request) -> bool:
    return all(_value(header, dict(request.headers).get(header["name"])) for header in match.get("headers", ()))


def _called(wanted: Document, path: str) -> bool:
    """A call's path is /service/method."""
    _, *names = path.split("/")
    method_parts = (wanted.get("service"), wanted.get("method"))
    same = re.fullmatch if wanted.get("type") == "RegularExpression" else str.__eq__
    return len(names) == 2 and all(not want or bool(same(want, name)) for want, name in zip(method_parts, names, strict=True))


def _value(match: Document, actual: str | None) -> bool:
    if actual is None:
        return False
    return bool(re.fullmatch(match["value"], actual)) if match.get("type") == "RegularExpression" else match["value"] == actual


def chosen(routes: list[Document], request: Request, host: str = HOST) -> str | None:
    """The name of the rule that answers, of those routes that are served under this host."""
    best = None
    for route in routes:
        own = [name for name in route["spec"]["hostnames"] if covers(name, host)]
        if route["spec"]["hostnames"] and not own:
            continue
        # "Characters in a matching non-wildcard hostname, characters in a matching hostname."
        hostname = min(((name.startswith("*"), -len(name)) for name in own), default=(True, 0))
        metadata = route["metadata"]
        age = (metadata["creationTimestamp"], f"{metadata['namespace']}/{metadata['name']}")
        kind = route.get("kind", "HTTPRoute")
        for number, rule in enumerate(route["spec"]["rules"]):
            for match in rule["matches"]:
                if matches(match, request, kind):
                    # A call belongs to a GRPCRoute if there is one for it; HTTPRoutes know only paths.
                    specificity = _call_specificity(match) if kind == "GRPCRoute" else _specificity(match)
                    rank = (hostname, kind != "GRPCRoute", specificity, age, number)
                    best = min(best or (rank, rule["name"]), (rank, rule["name"]))
    return best[1] if best else None


def covers(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _specificity(match: Document) -> tuple[Any, ...]:
    path = match.get("path", {"type": "PathPrefix", "value": "/"})
    value = path["value"].rstrip("/") or "/" if path["type"] == "PathPrefix" else path["value"]
    # Where the spec leaves regular expressions open they come between exact paths and prefixes, longer ones first.
    kind = ("Exact", "RegularExpression", "PathPrefix").index(path["type"])
    return (kind, -len(value), "method" not in match, -len(match.get("headers", ())), -len(match.get("queryParams", ())))


def _call_specificity(match: Document) -> tuple[Any, ...]:
    # "Characters in a matching service, in a matching method, header matches." Regular expressions come after exact names.
    call = match.get("method", {})
    kind = 1 if call.get("type") == "RegularExpression" else 0
    named = [(kind if call.get(part) else 2, -len(call.get(part, ""))) for part in ("service", "method")]
    return (*named, -len(match.get("headers", ())))


# --- random routes and requests --------------------------------------------------------------------------------------

SEGMENTS = ("foo", "foobar", "bar", "a", "ab", "v1")
PATHS = st.lists(st.sampled_from(SEGMENTS), max_size=3).flatmap(
    lambda parts: st.sampled_from(["/" + "/".join(parts), "/" + "".join(f"{part}/" for part in parts)])
)
REGEXES = ("/foo.*", "/[a-z]+", "/(foo|bar)/[^/]+", ".*/v1", "/a+b?(/.*)?", "/foo/bar/", "/v[0-9]/foo")
METHODS = ("GET", "POST")
HEADERS = st.lists(st.sampled_from(["x-a", "x-b"]), max_size=2, unique=True)
QUERIES = st.lists(st.sampled_from(["q", "r"]), max_size=2, unique=True)


@st.composite
def _values(draw: st.DrawFn, names: st.SearchStrategy[list[str]]) -> list[Document]:
    entries = []
    for name in draw(names):
        kind, value = draw(st.sampled_from([("Exact", "1"), ("Exact", "2"), ("RegularExpression", "[12]"), ("Exact", "1")]))
        entries.append({"name": name, "type": kind, "value": value})
    return entries


@st.composite
def match_documents(draw: st.DrawFn, bare: bool = False) -> Document:
    if draw(st.integers(0, 7)) == 0:
        path = {"type": "RegularExpression", "value": draw(st.sampled_from(REGEXES))}
    else:
        path = {"type": draw(st.sampled_from(["Exact", "PathPrefix", "PathPrefix"])), "value": draw(PATHS)}
    match: Document = {"path": path}
    if bare or draw(st.booleans()):
        return match
    if draw(st.booleans()):
        match["method"] = draw(st.sampled_from(METHODS))
    for field, values in (("headers", draw(_values(HEADERS))), ("queryParams", draw(_values(QUERIES)))):
        if values:
            match[field] = values
    return match


SERVICE_NAMES = ("foo", "foobar", "a.Foo", "bar")
METHOD_NAMES = ("foo", "Get", "GetAll", "v1")
CALL_REGEXES = ("[a-z]+", "foo.*", "(foo|bar)", "Get.*")


@st.composite
def call_documents(draw: st.DrawFn) -> Document:
    """Matches of GRPCRoutes."""
    match: Document = {}
    if draw(st.integers(0, 7)):
        regex = draw(st.integers(0, 5)) == 0
        named = {
            "service": draw(st.sampled_from(CALL_REGEXES if regex else SERVICE_NAMES)),
            "method": draw(st.sampled_from(CALL_REGEXES if regex else METHOD_NAMES)),
        }
        for left_out in draw(st.sampled_from([[], [], ["service"], ["method"]])):
            del named[left_out]
        match["method"] = {"type": "RegularExpression" if regex else "Exact", **named}
    if values := draw(_values(HEADERS)):
        match["headers"] = values
    return match


@st.composite
def route_documents(draw: st.DrawFn, most: int = 6, rules: int = 4) -> list[Document]:
    """HTTPRoutes and GRPCRoutes of several ages, namespaces and hostnames; every rule has its own name."""
    documents = []
    for number in range(draw(st.integers(1, most))):
        namespace, name = draw(st.sampled_from(["a", "a-b", "shop"])), f"r{number}"
        metadata = {"name": name, "namespace": namespace, "creationTimestamp": f"2026-01-0{draw(st.integers(1, 3))}T00:00:00Z"}
        kind = draw(st.sampled_from(["HTTPRoute", "GRPCRoute"]))
        match = match_documents() if kind == "HTTPRoute" else call_documents()
        listed = [
            {"name": f"{name}-{index}", "matches": draw(st.lists(match, min_size=1, max_size=3))}
            for index in range(draw(st.integers(1, rules)))
        ]
        spec = {"hostnames": draw(st.sampled_from(HOSTNAMES)), "rules": listed}
        documents.append({"kind": kind, "metadata": metadata, "spec": spec})
    return documents


@st.composite
def requests(draw: st.DrawFn) -> Request:
    if draw(st.booleans()):
        called = f"/{draw(st.sampled_from(SERVICE_NAMES))}/{draw(st.sampled_from(METHOD_NAMES))}"
        headers = tuple((name, draw(st.sampled_from("123"))) for name in draw(HEADERS))
        return Request(called, "POST", headers, grpc=True)
    path = draw(PATHS)
    query = "&".join(f"{name}={draw(st.sampled_from('123'))}" for name in draw(QUERIES))
    headers = tuple((name, draw(st.sampled_from("123"))) for name in draw(HEADERS))
    return Request(path + draw(st.sampled_from(["", "", "x", "/foo"])) + (f"?{query}" if query else ""), draw(METHOD), headers)


METHOD = st.sampled_from(METHODS)
