"""Merges Ingresses into hosts and locations, as nginx does: a path belongs to the oldest Ingress; canaries join it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lasthop.engine.resolve.routing.hostnames import covers
from lasthop_import.ingresses import PathOf
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.systems.ingress_nginx.backend_tls import BackendAnnotations, ProxySSL, backend_annotations
from lasthop_import.systems.ingress_nginx.config import ControllerConfig
from lasthop_import.systems.ingress_nginx.ingresses import Ingress


class IngressLocation(msgspec.Struct, frozen=True):
    at: PathOf
    ingress: Ingress
    canaries: tuple[tuple[Ingress, PathOf], ...] = ()


class IngressHost(msgspec.Struct, frozen=True):
    name: str
    """Empty for all hosts without an IngressHost."""
    locations: tuple[IngressLocation, ...]
    regex: bool
    """Whether all paths are regular expressions."""
    ssl: ProxySSL | None
    """The TLS settings that the whole host inherits."""
    aliases: tuple[str, ...]
    secret: tuple[str, str, SourceRef] | None
    """Namespace, name (may be empty) and source of the certificate's Secret; None without TLS."""


def hosts(
    inputs: Inputs, ingresses: list[Ingress], config: ControllerConfig
) -> tuple[list[IngressHost], dict[str, BackendAnnotations]]:
    """Returns every host, and the TLS annotations of each Ingress by its path."""
    tls_annotations = {ingress.document.path: backend_annotations(inputs, ingress, config) for ingress in ingresses}
    mains = [ingress for ingress in ingresses if not ingress.annotations.boolean("canary")]
    locations = _locations(inputs, mains)
    for canary in ingresses:
        if canary.annotations.boolean("canary"):
            _join_canary(inputs, canary, locations)
    by_host: dict[str, list[Ingress]] = {}
    for ingress in mains:
        for name in ingress.hosts or ("",):
            by_host.setdefault(name, []).append(ingress)
    taken = set(locations)
    return [
        _host(name, host_locations, by_host[name], tls_annotations, config, taken)
        for name, host_locations in sorted(locations.items())
    ], tls_annotations


Locations = dict[str, dict[tuple[str, str], IngressLocation]]
"""Locations by host, then by path and type."""


def _locations(inputs: Inputs, ingresses: list[Ingress]) -> Locations:
    """Returns the locations of all hosts. If several Ingresses have a location, it belongs to the oldest."""
    locations: Locations = {}
    for ingress in ingresses:
        for at in (*ingress.paths, *_defaults(ingress)):
            first = locations.setdefault(at.host, {}).setdefault((at.path, _type(at)), IngressLocation(at, ingress))
            if first.at is not at and at.source.path != ("spec", "defaultBackend"):
                text = f"{at.host or 'the default host'}{at.path} belongs to the older {first.ingress.document.name}"
                inputs.notes.append(Note(Category.SKIPPED, "path-taken", text, at.source))
    return locations


def _join_canary(inputs: Inputs, canary: Ingress, locations: Locations) -> None:
    for at in canary.paths:
        main = locations.get(at.host, {}).get((at.path, _type(at)))
        if main is None or main.canaries:
            why = "there is another canary" if main else "no other Ingress has the path"
            inputs.notes.append(Note(Category.SKIPPED, "canary-ignored", f"the canary was not used: {why}", at.source))
        else:
            locations[at.host][at.path, _type(at)] = msgspec.structs.replace(main, canaries=((canary, at),))


def _type(at: PathOf) -> str:
    return "Exact" if at.path_type == "Exact" else "Prefix"


def _defaults(ingress: Ingress) -> list[PathOf]:
    """Returns the default backend as the last path of each host, or of all hosts without a rule."""
    if ingress.default is None:
        return []
    source = SourceRef(ingress.document, ("spec", "defaultBackend"))
    return [PathOf(host, "/", "Prefix", ingress.default, source) for host in ingress.hosts or ("",)]


def _host(
    name: str,
    locations: dict[tuple[str, str], IngressLocation],
    ingresses: list[Ingress],
    tls_annotations: dict[str, BackendAnnotations],
    config: ControllerConfig,
    taken: set[str],
) -> IngressHost:
    regex = any(_uses_regex(ingress, name) for ingress in ingresses)
    settings = [] if config.location_only else [tls_annotations[ingress.document.path].ssl for ingress in ingresses]
    ssl = next((candidate for candidate in settings if candidate and candidate.ca and not candidate.denied), None)
    aliases = tuple(dict.fromkeys(alias for ingress in ingresses for alias in _aliases(ingress, taken)))
    return IngressHost(name, tuple(locations.values()), regex, ssl, aliases, _certificate(name, ingresses))


def _aliases(ingress: Ingress, taken: set[str]) -> Iterator[str]:
    """Yields the aliases of a host. Lists an alias that cannot be written."""
    for alias in (name.strip().lower() for name in ingress.annotations.text("server-alias").split(",")):
        if alias.startswith("~") or alias in taken - {""}:
            why = "is a regular expression" if alias.startswith("~") else "is a separate host"
            text = f"the alias {alias} {why}, and is left out"
            ingress.annotations.note(Category.CANNOT, "server-alias", text, "server-alias")
        elif alias:
            yield alias


def _uses_regex(ingress: Ingress, host: str) -> bool:
    target = ingress.annotations.text("rewrite-target")
    rewrites = bool(target) and any(at.path != target for at in ingress.paths if at.host == host)
    return ingress.annotations.boolean("use-regex") or rewrites


def _certificate(host: str, ingresses: list[Ingress]) -> tuple[str, str, SourceRef] | None:
    """Returns the certificate of a host: from the first `tls` that names it, else from the first without hosts."""
    for naming_host in (True, False):
        for ingress in ingresses:
            for number, (names, secret, _) in enumerate(ingress.tls):
                if any(covers(name, host) for name in names) if naming_host else not names:
                    return ingress.namespace, secret, SourceRef(ingress.document, ("spec", "tls", number))
    return None
