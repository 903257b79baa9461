"""Emissary's own rules, written a second time and apart from the importer: Hosts, Listeners and Mappings as Envoy's routes.

Read at emissary-ingress/emissary 3ebe0f46: ir/irhost, ir/irhttpmapping, ir/irhttpmappinggroup, ir/irutils, envoy/v3/v3listener
and v3route. The routes are Envoy's own JSON, so that a real Envoy can serve them; `answer` reads them in Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
SKIPPED_IN_OLD = ("v1", "v2")


class Outcome(NamedTuple):
    """What becomes of a request: shares of clusters in percent, a redirect, or nothing (404)."""

    shares: tuple[tuple[str, int], ...] = ()
    location: str = ""
    path: str = ""
    """As the backends see it."""


# --- from objects to Envoy's routes ----------------------------------------------------------------------------------


def globs_meet(one: str, other: str) -> bool:
    """Whether some name is in both globs, of which each is exact, `*` or `*.suffix`."""
    if "*" in (one, other) or one == other:
        return True
    if one.startswith("*") and other.startswith("*"):
        return one[1:].endswith(other[1:]) or other[1:].endswith(one[1:])
    if one.startswith("*"):
        return other.endswith(one[1:]) and len(other) > len(one) - 1
    return globs_meet(other, one) if other.startswith("*") else False


def _spec(document: Json) -> Json:
    return document.get("spec") or {}


def _old(document: Json) -> bool:
    return document["apiVersion"].rpartition("/")[2] in SKIPPED_IN_OLD


def _asked(mapping: Json) -> tuple[str | None, bool]:
    """(host as a glob or regular expression, whether it is one)."""
    spec = _spec(mapping)
    host, regex, hostname = spec.get("host"), bool(spec.get("host_regex")), spec.get("hostname")
    if _old(mapping):
        return (host, True) if regex and host else (host or "*", False)
    if hostname:
        return hostname, False
    exact = host or (spec.get("headers") or {}).get(":authority")
    return (exact, regex) if exact else (None, False)


def _selector(host: Json) -> Json | None:
    return _spec(host).get("mappingSelector") or _spec(host).get("selector") or None


def _selected(selector: Json, labels: Json) -> bool:
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def _labels(document: Json) -> Json:
    return document["metadata"].get("labels") or {}


def _headers(mapping: Json) -> list[tuple[str, str, bool]]:
    spec = _spec(mapping)
    found = [(name, value, False) for name, value in sorted((spec.get("headers") or {}).items()) if name != ":authority"]
    found += [(name, value, True) for name, value in sorted((spec.get("regex_headers") or {}).items())]
    host, regex = _asked(mapping)
    if host:
        found.append((":authority", host, regex))
    if "method" in spec:
        found.append((":method", spec["method"], bool(spec.get("method_regex"))))
    return found


def _group_id(mapping: Json, hosts: Sequence[Json]) -> tuple[object, ...]:
    spec, (host, regex) = _spec(mapping), _asked(mapping)
    labels: list[object] = []
    if host is None or regex:
        for each in hosts:
            selector = _selector(each)
            if selector and _selected(selector, _labels(mapping)):
                labels += sorted((selector.get("matchLabels") or {}).items())
    names = [(name, value) for name, value, _ in _headers(mapping)]
    return (spec["prefix"], *names, *labels, spec.get("precedence", 0))


def _weight(mapping: Json) -> tuple[object, ...]:
    spec, headers = _spec(mapping), _headers(mapping)
    length = sum(len(name) + len(value) + regex for name, value, regex in headers)
    return (
        spec.get("precedence", 0),
        len(spec["prefix"]),
        length,
        spec["prefix"],
        *(f"{name}-{value}" for name, value, _ in headers),
    )


class Group(NamedTuple):
    mappings: list[Json]
    redirect: Json | None

    @property
    def head(self) -> Json:
        return self.redirect or self.mappings[0]

    @property
    def labels(self) -> Json:
        return {key: value for each in self.mappings for key, value in _labels(each).items()}


def groups(mappings: Iterable[Json], hosts: Sequence[Json]) -> list[Group]:
    found: dict[tuple[object, ...], list[Json]] = {}
    for each in sorted(mappings, key=_name):
        host, regex = _asked(each)
        if not _old(each) and not _spec(each).get("hostname") and host and not regex and "*" in host:
            continue
        found.setdefault(_group_id(each, hosts), []).append(each)
    made = []
    for members in found.values():
        core = ("prefix_regex", "prefix_exact", "bypass_auth")
        first = _spec(members[0])
        kept = [m for m in members if all(key not in _spec(m) or _spec(m)[key] == first.get(key) for key in core)]
        redirects = [each for each in kept if _spec(each).get("host_redirect")]
        if redirects and redirects[0] is kept[0]:
            made.append(Group([], redirects[0]))
        else:
            made.append(Group([each for each in kept if not _spec(each).get("host_redirect")], None))
    return sorted(made, key=lambda group: _weight(group.head), reverse=True)


def _name(document: Json) -> str:
    metadata = document["metadata"]
    return f"{metadata['name']}.{metadata['namespace']}"


def taken(host: Json, group: Group) -> bool:
    asked, regex = _asked(group.head)
    selector = _selector(host)
    hostname = _spec(host).get("hostname") or "*"
    selected = selector is not None and _selected(selector, group.labels)
    fits = regex or (asked is not None and globs_meet(hostname, asked))
    if selector and asked:
        return fits and selected
    return selected if selector else fits


def _shares(mappings: Sequence[Json]) -> list[tuple[Json, int]]:
    """Returns up to which percentage each Mapping takes requests, in the order in which they are tried."""
    if len(mappings) == 1:
        return [(mappings[0], 100)]
    weighted = [each for each in mappings if "weight" in _spec(each)]
    others = [each for each in mappings if "weight" not in _spec(each)]
    upto, found = 0, []
    for each in weighted:
        upto += _spec(each)["weight"]
        found.append((each, upto))
    share = round((100 - upto) / len(others)) if others else 0
    for each in others:
        upto = 100 if each is others[-1] else upto + share
        found.append((each, upto))
    return found


def _match(mapping: Json, upto: int) -> Json:
    spec = _spec(mapping)
    fraction = {"default_value": {"numerator": upto, "denominator": "HUNDRED"}}
    match: Json = {"case_sensitive": spec.get("case_sensitive", True), "runtime_fraction": fraction}
    if spec.get("prefix_regex"):
        match["safe_regex"] = {"regex": spec["prefix"]}
    else:
        match["path" if spec.get("prefix_exact") else "prefix"] = spec["prefix"]
    headers = []
    for name, value, regex in _headers(mapping):
        if regex:
            headers.append({"name": name, "string_match": {"safe_regex": {"regex": value}}})
        elif name != ":authority" or not value.startswith("*"):
            headers.append({"name": name, "string_match": {"exact": value}})
        elif value != "*":
            headers.append({"name": name, "string_match": {"suffix": value[1:]}})
    return {**match, "headers": headers}


def _routes(group: Group, insecure: bool) -> list[Json]:
    if insecure:
        return [{"match": _match(each, upto), "redirect": {"https_redirect": True}} for each, upto in _members(group)]
    found = []
    for each, upto in _members(group):
        spec = _spec(each)
        route: Json = {"match": _match(each, upto)}
        if group.redirect:
            change = {"path_redirect": "path_redirect", "prefix_redirect": "prefix_rewrite"}
            key = next((key for key in change if key in spec), None)
            code = {301: 0, 302: 1, 303: 2, 307: 3, 308: 4}[spec.get("redirect_response_code", 301)]
            route["redirect"] = {"host_redirect": spec["service"], "response_code": code}
            route["redirect"] |= {change[key]: spec[key]} if key else {}
        else:
            rewrite = spec.get("rewrite", "/")
            route["route"] = {"cluster": spec["service"], **({"prefix_rewrite": rewrite} if rewrite else {})}
            route["route"] |= {"host_rewrite_literal": spec["host_rewrite"]} if "host_rewrite" in spec else {}
        found.append(route)
    return found


def _members(group: Group) -> list[tuple[Json, int]]:
    if group.redirect:
        return [(group.redirect, 100)]
    return _shares(group.mappings)


def _binds(listener: Json, host: Json) -> bool:
    binding = _spec(listener).get("hostBinding") or {}
    everywhere = (binding.get("namespace") or {}).get("from", "SELF").lower() == "all"
    here = everywhere or listener["metadata"]["namespace"] == host["metadata"]["namespace"]
    return here and _selected(binding.get("selector") or {}, _labels(host))


def virtual_hosts(documents: Sequence[Json], port: int, secure: bool) -> list[Json]:
    """Returns what a port of Emissary serves to connections with TLS, or without."""
    of_kind = {kind: [each for each in documents if each["kind"] == kind] for kind in ("Host", "Listener", "Mapping")}
    (listener,) = (each for each in of_kind["Listener"] if _spec(each)["port"] == port)
    hosts, model = sorted(of_kind["Host"], key=_name), _spec(listener)["securityModel"]
    every = groups(of_kind["Mapping"], hosts)
    vhosts: dict[str, Json] = {}
    context: dict[str, Json] = {}
    for host in sorted(hosts, key=lambda each: _spec(each).get("hostname") or "*"):
        hostname = _spec(host).get("hostname") or "*"
        action = ((_spec(host).get("requestPolicy") or {}).get("insecure") or {}).get("action", "Redirect")
        if not _binds(listener, host) or (secure and not _spec(host).get("tlsSecret")):
            continue
        if secure and context.setdefault(hostname, host) is not host:
            continue
        if not secure and model == "INSECURE" and action == "Reject":
            continue
        routed = model == "SECURE" or (model == "XFP" and secure)
        routes: list[Json] = []
        for group in every:
            if taken(host, group):
                acme = _spec(group.head)["prefix"] == "/.well-known/acme-challenge/"
                plain = {"prefix_exact", "prefix_regex"}.isdisjoint(_spec(group.head))
                how = "Route" if routed or (acme and plain) else action
                routes += _routes(group, how == "Redirect") if how != "Reject" else []
        vhosts[hostname] = {"name": hostname, "domains": [hostname], "routes": routes}
    return list(vhosts.values())


# --- from routes to an answer ----------------------------------------------------------------------------------------


def answer(vhosts: Sequence[Json], host: str, path: str, method: str = "GET", headers: Json | None = None) -> Outcome:
    """Returns what Envoy does with a request. Shares are in percent of the whole, cumulative fractions resolved."""
    known = {":authority": host, ":method": method, **(headers or {})}
    exact = [each for each in vhosts if each["name"] == host]
    suffixes = [each for each in vhosts if each["name"].startswith("*.") and host.endswith(each["name"][1:])]
    suffixes.sort(key=lambda each: -len(each["name"]))
    found = next(iter([*exact, *suffixes, *(each for each in vhosts if each["name"] == "*")]), None)
    shares: dict[str, int] = {}
    seen = ""
    done = 0
    for route in found["routes"] if found else ():
        if not _fits(route["match"], path, known):
            continue
        upto = route["match"]["runtime_fraction"]["default_value"]["numerator"]
        if upto <= done:
            continue
        if "redirect" in route:
            return Outcome(location=_location(route, host, path)) if not shares else Outcome(tuple(shares.items()))
        cluster = route["route"]["cluster"]
        shares[cluster] = shares.get(cluster, 0) + upto - done
        seen = seen or _rewritten(route["match"], route["route"].get("prefix_rewrite"), path)
        done = upto
        if done >= 100:
            break
    return Outcome(tuple(sorted(shares.items())), path=seen)


def _fits(match: Json, path: str, known: Json) -> bool:
    fold = (lambda text: text) if match["case_sensitive"] else str.lower
    if "safe_regex" in match:
        fits = re.fullmatch(match["safe_regex"]["regex"], path) is not None
    elif "path" in match:
        fits = fold(path) == fold(match["path"])
    else:
        fits = fold(path).startswith(fold(match["prefix"]))
    return fits and all(_header_fits(each, known) for each in match["headers"])


def _header_fits(header: Json, known: Json) -> bool:
    value, wanted = known.get(header["name"]), header["string_match"]
    if value is None:
        return False
    if "safe_regex" in wanted:
        return re.fullmatch(wanted["safe_regex"]["regex"], value) is not None
    return bool(value.endswith(wanted["suffix"]) if "suffix" in wanted else value == wanted["exact"])


def _rewritten(match: Json, rewrite: str | None, path: str) -> str:
    if not rewrite:
        return path
    return rewrite + path[len(match["prefix"]) :] if "prefix" in match else rewrite


def _location(route: Json, host: str, path: str) -> str:
    redirect = route["redirect"]
    if "https_redirect" in redirect:
        return f"https://{host}{path}"
    changed = redirect.get("path_redirect") or _rewritten(route["match"], redirect.get("prefix_rewrite"), path)
    return f"http://{redirect['host_redirect']}{changed}"
