"""Merges Ingresses to hosts and locations, as nginx does: the oldest Ingress has a path; canaries join its own."""

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
    """Empty: all hosts that no other names."""
    locations: tuple[IngressLocation, ...]
    regex: bool
    """All paths are regular expressions."""
    ssl: ProxySSL | None
    """The TLS settings that the whole host inherits."""
    aliases: tuple[str, ...]
    secret: tuple[str, str, SourceRef] | None
    """Namespace and name of its certificate (the name may be empty), and its source; None: no TLS."""


def hosts(
    inputs: Inputs, ingresses: list[Ingress], config: ControllerConfig
) -> tuple[list[IngressHost], dict[str, BackendAnnotations]]:
    """Returns every host, and the TLS annotations of each Ingress by its path."""
    wanted = {each.document.path: backend_annotations(inputs, each, config) for each in ingresses}
    mains = [each for each in ingresses if not each.annotations.boolean("canary")]
    locations = _locations(inputs, mains)
    for canary in ingresses:
        if canary.annotations.boolean("canary"):
            _join_canary(inputs, canary, locations)
    by_host: dict[str, list[Ingress]] = {}
    for ingress in mains:
        for name in ingress.hosts or ("",):
            by_host.setdefault(name, []).append(ingress)
    taken = set(locations)
    return [_host(name, found, by_host[name], wanted, config, taken) for name, found in sorted(locations.items())], wanted


Locations = dict[str, dict[tuple[str, str], IngressLocation]]
"""By host, then by path and type."""


def _locations(inputs: Inputs, ingresses: list[Ingress]) -> Locations:
    """Returns the locations of all hosts; of equal ones the oldest Ingress has it."""
    found: Locations = {}
    for ingress in ingresses:
        for at in (*ingress.paths, *_defaults(ingress)):
            first = found.setdefault(at.host, {}).setdefault((at.path, _type(at)), IngressLocation(at, ingress))
            if first.at is not at and at.source.path != ("spec", "defaultBackend"):
                text = f"{at.host or 'the default host'}{at.path} belongs to the older {first.ingress.document.name}"
                inputs.notes.append(Note(Category.SKIPPED, "path-taken", text, at.source))
    return found


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
    found: dict[tuple[str, str], IngressLocation],
    here: list[Ingress],
    wanted: dict[str, BackendAnnotations],
    config: ControllerConfig,
    taken: set[str],
) -> IngressHost:
    regex = any(_uses_regex(each, name) for each in here)
    settings = [] if config.location_only else [wanted[each.document.path].ssl for each in here]
    ssl = next((each for each in settings if each and each.ca and not each.denied), None)
    aliases = tuple(dict.fromkeys(alias for each in here for alias in _aliases(each, taken)))
    return IngressHost(name, tuple(found.values()), regex, ssl, aliases, _certificate(name, here))


def _aliases(ingress: Ingress, taken: set[str]) -> Iterator[str]:
    """Yields the further names of a host; one that cannot be written is listed."""
    for alias in (each.strip().lower() for each in ingress.annotations.text("server-alias").split(",")):
        if alias.startswith("~") or alias in taken - {""}:
            why = "is a regular expression" if alias.startswith("~") else "is a host of its own"
            text = f"the alias {alias} {why}, and is left out"
            ingress.annotations.note(Category.CANNOT, "server-alias", text, "server-alias")
        elif alias:
            yield alias


def _uses_regex(ingress: Ingress, host: str) -> bool:
    target = ingress.annotations.text("rewrite-target")
    rewrites = bool(target) and any(each.path != target for each in ingress.paths if each.host == host)
    return ingress.annotations.boolean("use-regex") or rewrites


def _certificate(host: str, here: list[Ingress]) -> tuple[str, str, SourceRef] | None:
    """Returns the certificate of a host: of the first `tls` that names it, or else of one that names no host."""
    for named in (True, False):
        for ingress in here:
            for number, (names, secret, _) in enumerate(ingress.tls):
                if any(covers(each, host) for each in names) if named else not names:
                    return ingress.namespace, secret, SourceRef(ingress.document, ("spec", "tls", number))
    return None
