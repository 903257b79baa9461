"""Renders Envoy's config dump as tables, one line per resource."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from lasthop.base.api.documents import Json, nested
from lasthop.base.text.printable import some

Rows = list[tuple[str, ...]]
_CONTEXT: Final = "UpstreamTlsContext"
_DUMPS: Final = {
    "clusters": ("ClustersConfigDump", "dynamic_active_clusters", "cluster"),
    "routes": ("RoutesConfigDump", "dynamic_route_configs", "route_config"),
    "secrets": ("SecretsConfigDump", "dynamic_active_secrets", "secret"),
    "endpoints": ("EndpointsConfigDump", "dynamic_endpoint_configs", "endpoint_config"),
}
_CHECKS: Final = {
    "trusted_ca": "CA",
    "verify_certificate_spki": "SPKI pins",
    "verify_certificate_hash": "certificate pins",
    "custom_validator_config": "validator",
}
HEADS: Final = {
    "clusters": ("NAME", "TLS", "NAMES", "SNI", "ENDPOINTS"),
    "routes": ("TABLE", "DOMAINS", "MATCH", "TO"),
    "listeners": ("NAME", "ADDRESS", "STATE", "CHAINS"),
    "secrets": ("NAME", "KIND", "UPDATED"),
    "certificates": ("NAME", "USE", "SUBJECT", "ISSUER", "UNTIL", "LEFT"),
}
_USES: Final = {"trusted_ca": "CA", "certificate_chain": "shown"}


def resources(dump: Json, resource_type: str) -> list[Json]:
    """Returns the active resources of a type; listeners in Envoy's own form, with their state."""
    if resource_type == "listeners":
        return [
            listener for config in _configs(dump, "ListenersConfigDump") for listener in config.get("dynamic_listeners", ())
        ]
    kind, field, inner = _DUMPS[resource_type]
    return [entry[inner] for config in _configs(dump, kind) for entry in config.get(field, ()) if inner in entry]


def rows(dump: Json, resource_type: str) -> Rows:
    if resource_type == "clusters":
        return _clusters(dump)
    if resource_type == "routes":
        return [row for table in resources(dump, resource_type) for row in _routes(table)]
    if resource_type == "listeners":
        return sorted(map(_listener, resources(dump, resource_type)))
    if resource_type == "certificates":
        return [tuple(certificate.values())[:-1] for certificate in certificates(dump)]
    return sorted(_secrets(dump))


def _clusters(dump: Json) -> Rows:
    endpoints = {
        assignment["cluster_name"]: assignment for assignment in resources(dump, "endpoints") if "cluster_name" in assignment
    }
    return sorted(_cluster(cluster, endpoints) for cluster in resources(dump, "clusters"))


def certificates(dump: Json) -> list[dict[str, str]]:
    """Returns the certificates in clusters and secrets, once per holder: those that Envoy trusts, and those that it presents
    to clients or backends. The dump has no certificates that Envoy reads from files."""
    import time

    from lasthop.base.pki import parse
    from lasthop.edge.probe.certificate_view import describe, validity

    entries = []
    for resource_type in ("clusters", "secrets"):
        for holder in sorted(resources(dump, resource_type), key=lambda resource: str(resource.get("name", ""))):
            for use, source in dict.fromkeys(_sources(holder)):
                read = parse.certificates(source) if use else parse.Unreadable("")
                name = str(holder.get("name", ""))
                if isinstance(read, parse.Unreadable):
                    file = source.decode(errors="replace") if not use else ""
                    entries.append(_row(name, _USES["trusted_ca"], file or f"unreadable: it {read.message}"))
                    continue
                for info in map(describe, (certificate.der for certificate in read)):
                    left = validity(info, time.time())
                    entries.append(_row(name, use, info.subject, info.issuer, info.not_after, left, info.sha256))
    return entries


def _row(
    holder: str, use: str, subject: str, issuer: str = "", until: str = "", left: str = "", sha256: str = ""
) -> dict[str, str]:
    names = ("name", "use", "subject", "issuer", "until", "left", "sha256")
    return dict(zip(names, (holder, use, subject, issuer, until, left, sha256), strict=True))


def _sources(value: Any) -> Iterator[tuple[str, bytes]]:
    """Yields the use and the PEM of every certificate source in a message; instead of PEM, possibly a file name."""
    if isinstance(value, list):
        for item in value:
            yield from _sources(item)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in _USES and isinstance(inner, dict):
            if "inline_bytes" in inner:
                yield _USES[key], base64.b64decode(inner["inline_bytes"])
            elif "inline_string" in inner:
                yield _USES[key], inner["inline_string"].encode()
            elif "filename" in inner:
                yield "", inner["filename"].encode()
        else:
            yield from _sources(inner)


def _secrets(dump: Json) -> Iterator[tuple[str, ...]]:
    kinds = ("tls_certificate", "validation_context", "session_ticket_keys", "generic_secret")
    for config in _configs(dump, "SecretsConfigDump"):
        for entry in config.get("dynamic_active_secrets", ()):
            if secret := entry.get("secret"):
                yield (
                    secret.get("name", ""),
                    next((kind for kind in kinds if kind in secret), ""),
                    entry.get("last_updated", ""),
                )


def _configs(dump: Json, kind: str) -> Iterator[Json]:
    for config in dump.get("configs", ()):
        if str(config.get("@type", "")).endswith(f".{kind}"):
            yield config


def _cluster(cluster: Json, endpoints: dict[str, Json]) -> tuple[str, ...]:
    context = next(_find(cluster.get("transport_socket", cluster.get("transport_socket_matches", {})), _CONTEXT), None)
    name = cluster.get("name", "")
    assigned = endpoints.get(str(nested(cluster, "eds_cluster_config", "service_name") or name))
    shown = some(list(_addresses(assigned or cluster.get("load_assignment"))), 3)
    if context is None:
        return name, "plaintext", "", "", shown
    validation = nested(context, "common_tls_context", "validation_context") or {}
    names = [
        f"{san.get('san_type', '')} {_text(san.get('matcher') or {})}".strip()
        for san in validation.get("match_typed_subject_alt_names", ())
    ]
    checks = " + ".join(word for field, word in _CHECKS.items() if validation.get(field))
    return name, checks or "encrypted only", ", ".join(names), context.get("sni", ""), shown


def _text(matcher: Json) -> str:
    for form, value in matcher.items():
        if isinstance(value, dict):
            return f"~ {value.get('regex', '')}"
        return str(value) if form == "exact" else f"{form} {value}"
    return ""


def _routes(table: Json) -> Iterator[tuple[str, ...]]:
    for host in table.get("virtual_hosts", ()):
        domains = ",".join(host.get("domains", ()))
        # Many routes are the leaves of a tree, some in several of them.
        leaves = [route for route_list in _find(host.get("matcher"), "RouteList") for route in route_list.get("routes", ())]
        shown = dict.fromkeys(
            (_match(route.get("match") or {}), _destination(route)) for route in (*host.get("routes", ()), *leaves)
        )
        for match, destination in shown:
            yield table.get("name", ""), domains, match, destination


def _match(match: Json) -> str:
    for field, form in (("path", "= {}"), ("prefix", "{}*"), ("path_separated_prefix", "{}/*")):
        if field in match:
            return form.format(match[field])
    regex = (match.get("safe_regex") or {}).get("regex")
    return f"~ {regex}" if regex else ", ".join(match) or "any"


def _destination(route: Json) -> str:
    action = route.get("route") or {}
    if "weighted_clusters" in action:
        parts = action["weighted_clusters"].get("clusters", ())
        return ", ".join(f"{cluster.get('name', '')} ({cluster.get('weight', 0)})" for cluster in parts)
    if action:
        return str(action.get("cluster") or action.get("cluster_header") or "?")
    if "redirect" in route:
        return "redirect"
    return f"status {(route.get('direct_response') or {}).get('status', '?')}"


def _listener(entry: Json) -> tuple[str, ...]:
    state = "active" if "active_state" in entry else "warming" if "warming_state" in entry else "draining"
    if error := (entry.get("error_state") or {}).get("details"):
        state += f", refused: {error}"
    listener = (entry.get("active_state") or entry.get("warming_state") or entry.get("draining_state") or {}).get(
        "listener", {}
    )
    chains = len(listener.get("filter_chains", ())) + ("default_filter_chain" in listener)
    return entry.get("name", ""), _address(listener.get("address") or {}), state, str(chains)


def _address(address: Json) -> str:
    if socket := address.get("socket_address"):
        host = socket.get("address", "")
        return f"[{host}]:{socket.get('port_value')}" if ":" in host else f"{host}:{socket.get('port_value')}"
    return str((address.get("pipe") or {}).get("path", ""))


def _find(value: Any, kind: str) -> Iterator[Json]:
    """Yields the messages of a type, at any depth."""
    if isinstance(value, dict):
        if str(value.get("@type", "")).endswith(f".{kind}"):
            yield value
        for item in value.values():
            yield from _find(item, kind)
    elif isinstance(value, list):
        for item in value:
            yield from _find(item, kind)


def _addresses(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "socket_address" in value or "pipe" in value:
            yield _address(value)
        else:
            for item in value.values():
                yield from _addresses(item)
    elif isinstance(value, list):
        for item in value:
            yield from _addresses(item)
