"""Merges Ingresses to hosts and locations, as nginx does: the oldest Ingress has a path; canaries join its own."""

from __future__ import annotations

import msgspec

from lasthop.engine.resolve.routing.hostnames import covers
from lasthop_import.ingresses import PathOf
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.systems.ingress_nginx.backend_tls import Asked, ProxySSL, asked
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
    """What the whole host inherits."""
    aliases: tuple[str, ...]
    secret: tuple[str, str, SourceRef] | None
    """Namespace and name of its certificate (the name may be empty), and where that is said; None: no TLS."""


def hosts(inputs: Inputs, ingresses: list[Ingress], config: ControllerConfig) -> tuple[list[IngressHost], dict[str, Asked]]:
    """Returns every host, and what each Ingress asks of its backends, by the Ingress's path."""
    wanted = {each.document.path: asked(inputs, each, config) for each in ingresses}
    mains = [each for each in ingresses if not each.annotations.boolean("canary")]
    canaries = [each for each in ingresses if each.annotations.boolean("canary")]
    locations: dict[str, dict[tuple[str, str], IngressLocation]] = {}
    for ingress in mains:
        for at in (*ingress.paths, *_defaults(ingress)):
            known = locations.setdefault(at.host, {})
            first = known.setdefault((at.path, _type(at)), IngressLocation(at, ingress))
            if first.at is not at and at.source.path != ("spec", "defaultBackend"):
                text = f"{at.host or 'the default host'}{at.path} belongs to the older {first.ingress.document.name}"
                inputs.notes.append(Note(Category.SKIPPED, "path-taken", text, at.source))
    for canary in canaries:
        for at in canary.paths:
            main = locations.get(at.host, {}).get((at.path, _type(at)))
            if main is None or main.canaries:
                why = "there is another canary" if main else "no other Ingress has the path"
                inputs.notes.append(Note(Category.SKIPPED, "canary-ignored", f"the canary was not used: {why}", at.source))
                continue
            joined = msgspec.structs.replace(main, canaries=((canary, at),))
            locations[at.host][at.path, _type(at)] = joined
    taken = set(locations)
    by_host: dict[str, list[Ingress]] = {}
    for ingress in mains:
        for name in ingress.hosts or ("",):
            by_host.setdefault(name, []).append(ingress)
    return [_host(name, found, by_host[name], wanted, config, taken) for name, found in sorted(locations.items())], wanted


def _type(at: PathOf) -> str:
    return "Exact" if at.path_type == "Exact" else "Prefix"


def _defaults(ingress: Ingress) -> list[PathOf]:
    """Returns the default backend as the last path of each host, or of all hosts if there is no rule."""
    if ingress.default is None:
        return []
    source = SourceRef(ingress.document, ("spec", "defaultBackend"))
    return [PathOf(host, "/", "Prefix", ingress.default, source) for host in ingress.hosts or ("",)]


def _host(
    name: str,
    found: dict[tuple[str, str], IngressLocation],
    here: list[Ingress],
    wanted: dict[str, Asked],
    config: ControllerConfig,
    taken: set[str],
) -> IngressHost:
    regex = any(_uses_regex(each, name) for each in here)
    ssl = None
    if not config.location_only:
        usable = (own.ssl for each in here if (own := wanted[each.document.path]).ssl)
        ssl = next((each for each in usable if each and each.ca and not each.denied), None)
    aliases: dict[str, None] = {}
    for each in here:
        for alias in each.annotations.text("server-alias").split(","):
            alias = alias.strip().lower()
            if not alias:
                continue
            if alias.startswith("~") or alias in taken:
                why = "is a regular expression" if alias.startswith("~") else "is a host of its own"
                text = f"the alias {alias} {why}, and is left out"
                each.annotations.note(Category.CANNOT, "server-alias", text, "server-alias")
            else:
                aliases[alias] = None
    return IngressHost(name, tuple(found.values()), regex, ssl, tuple(aliases), _certificate(name, here))


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
