"""Parses kinds and names as users type them: `httproute web -n shop`, `HTTPRoute shop/web`, `httproute/shop/web`, `svc api`;
with commas, several kinds (`hr,btp`); several names (`hr a b`, `hr/a btp/b`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from lasthop.base.text.printable import printable
from lasthop.base.text.suggestions import closest

if TYPE_CHECKING:
    from lasthop.base.api.meta import Key
    from lasthop.cli.views.command_view import View

SHORT: Final = {
    "svc": "Service",
    "svcim": "ServiceImport",
    "cm": "ConfigMap",
    "ns": "Namespace",
    "eps": "EndpointSlice",
    "ctb": "ClusterTrustBundle",
    "gc": "GatewayClass",
    "gwc": "GatewayClass",
    "gtw": "Gateway",
    "gw": "Gateway",
    "lset": "ListenerSet",
    "refgrant": "ReferenceGrant",
    "rg": "ReferenceGrant",
    "hr": "HTTPRoute",
    "gr": "GRPCRoute",
    "grpc": "GRPCRoute",
    "tlsr": "TLSRoute",
    "tcpr": "TCPRoute",
    "udpr": "UDPRoute",
    "btlspolicy": "BackendTLSPolicy",
    "xbtrafficpolicy": "XBackendTrafficPolicy",
    "btlsp": "BackendTLSPolicy",
    "btp": "BackendTLSPolicy",
    "gwp": "GatewayProfile",
    "pin": "PinSet",
    "waiver": "VerificationWaiver",
    "vw": "VerificationWaiver",
    "xb": "XBackend",
}
"""The abbreviations of the CRDs and of kubectl, and common others."""


class ObjectRef(NamedTuple):
    """A reference to objects; an empty field matches all of them."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


def kind_of(text: str) -> str:
    from lasthop.base.api.kinds import KINDS  # this import takes half of the start of `lasthop status`

    # kubectl's long form: httproutes.gateway.networking.k8s.io, httproutes.v1.gateway.networking.k8s.io.
    folded, _, group = text.casefold().partition(".")
    if group and not any(group.endswith(kind.group) for kind in KINDS.values() if kind.group):
        folded = text.casefold()
    kinds = {name: kind.kind for kind in KINDS.values() for name in (kind.kind.casefold(), kind.plural)} | SHORT
    if folded in kinds:
        return kinds[folded]
    close = closest(folded, kinds)
    hint = f"did you mean {kinds[close].lower()}?" if close else f"choose from {', '.join(k.lower() for k in KINDS)}."
    raise click.BadParameter(f"unknown kind {text}; {hint}", param_hint="KIND")


def parse_ref(kind: str, name: str | None, namespace: str | None) -> ObjectRef:
    """Parses the arguments; a namespace or name may follow the kind after a slash."""
    first, _, path = kind.partition("/")
    parts = [part for part in (path, name) if part]
    if len(parts) > 1:
        raise click.UsageError(f"two names: {' and '.join(parts)}")
    prefix, _, last = (parts[0] if parts else "").rpartition("/")
    if prefix and namespace and prefix != namespace:
        raise click.UsageError(f"two namespaces: {prefix} and {namespace}")
    return ObjectRef(kind_of(first), prefix or namespace or "", last)


def parse_refs(kinds: str, names: Sequence[str], namespace: str | None) -> list[ObjectRef]:
    """Parses the arguments as kubectl does: `hr,btp`, `hr a b`, `hr,btp a b` or `hr/a btp/b`."""
    named = list(filter(None, kinds.split(","))) or [kinds]
    pairs: Iterable[tuple[str, str | None]] = ((kind, name) for name in names for kind in named)
    if not names or all("/" in kind for kind in named):
        _require_kinds(names, named[0])
        pairs = ((argument, None) for argument in (*named, *names))
    return list(dict.fromkeys(parse_ref(kind, name, namespace) for kind, name in pairs))


def _require_kinds(names: Iterable[str], example: str) -> None:
    if lone := next((name for name in names if "/" not in name), ""):
        raise click.UsageError(f"{lone} has no kind; write KIND/{lone}, as {example}, or one KIND for all names")


def common_namespace(refs: Iterable[ObjectRef]) -> str | None:
    """Returns the namespace if all named objects have the same one; None: several, or not given."""
    namespaces = {ref.namespace for ref in refs}
    return namespaces.pop() or None if len(namespaces) == 1 else None


def one_of(candidates: Iterable[tuple[str, str]], ref: ObjectRef) -> tuple[str, str]:
    """Returns the (namespace, name) of the only candidate that matches. Its errors suggest the right arguments."""
    known = sorted(candidates)
    matches = [pair for pair in known if pair[1] == ref.name and ref.namespace in ("", pair[0])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        paths = ", ".join(_path(*pair) for pair in matches)
        raise click.ClickException(f"{ref.kind} {ref.name} exists in several namespaces: choose one of {paths}")
    raise click.ClickException(f"there is no {ref.kind} {_path(ref.namespace, ref.name)}{_hint(known, ref)}")


def raise_all(errors: Sequence[click.ClickException]) -> None:
    """Prints errors after the objects that exist, as kubectl does: one line each. Raises the last."""
    for error in errors[:-1]:
        click.echo(f"Error: {printable(error.message)}", err=True)
    if errors:
        raise errors[-1]


async def named_object(view: View, ref: ObjectRef) -> Key:
    """Returns the named object. Its errors suggest the right arguments."""
    from lasthop.base.api.kinds import KINDS
    from lasthop.base.api.meta import Key

    scope = _scope(view, ref) if KINDS[ref.kind].namespaced else ""
    return Key(ref.kind, *one_of(await view.names(ref.kind), ref._replace(namespace=scope)))


async def all_objects(view: View, ref: ObjectRef) -> list[Key]:
    from lasthop.base.api.meta import Key

    return [Key(ref.kind, *pair) for pair in sorted(await view.names(ref.kind)) if _scope(view, ref) in ("", pair[0])]


def named_by(name: str, keys: Iterable[Key]) -> list[Key]:
    """Returns the objects that a name may mean: `hr/shop/web`, `HTTPRoute shop/web`, `shop/web` or `web`."""
    typed, _, path = name.partition("/")
    try:
        kind = kind_of(typed) if path else ""
    except click.BadParameter:
        kind = ""  # it is a namespace
    return [
        key
        for key in keys
        if name in (key.path, key.name)
        or name.lower() == str(key).lower()
        or (key.kind == kind and path in (key.path, key.name))
    ]


def _scope(view: View, ref: ObjectRef) -> str:
    """Returns the namespace typed with the name, or else that of the context."""
    return ref.namespace or view.namespace


def _hint(candidates: list[tuple[str, str]], ref: ObjectRef) -> str:
    elsewhere = [namespace for namespace, name in candidates if name == ref.name]
    if elsewhere:
        return f"; there is one in namespace {' and one in '.join(elsewhere)}"
    names = [name for _, name in candidates]
    if close := closest(ref.name, names):
        return f"; did you mean {_path(*candidates[names.index(close)])}?"
    if candidates:
        return f"; there is {', '.join(_path(*pair) for pair in candidates[:8])}{', ...' if len(candidates) > 8 else ''}"
    return " nor any other"


def _path(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


# --- shell completion ------------------------------------------------------------------------------------------------


def complete_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from lasthop.base.api.kinds import KINDS

    before, comma, last = incomplete.rpartition(",")
    kind, slash, path = last.partition("/")
    if slash:
        items = complete_path(ctx, kind, path) if "/" in path else _names_of(ctx, kind, path)
        return [CompletionItem(f"{before}{comma}{kind}/{item.value}", help=item.help) for item in items]
    names = (name for name in map(str.lower, KINDS) if name.startswith(last.casefold()))
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if "/" in (ctx.params.get("kind") or ""):  # as in `status hr/web btp/api`
        return complete_kind(ctx, param, incomplete)
    return _names_of(ctx, ctx.params.get("kind") or "", incomplete)


def _names_of(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    namespace, typed = ctx.params.get("namespace"), ctx.params.get("names") or ()
    pairs = (pair for pair in _running(ctx, kind) if pair[1] not in typed)
    matches = (pair for pair in pairs if namespace in (None, pair[0]) and pair[1].startswith(incomplete))
    return [CompletionItem(name, help=object_namespace) for object_namespace, name in matches]


def complete_path(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(path) for path in (_path(*pair) for pair in _running(ctx, kind)) if path.startswith(incomplete)]


def _running(ctx: click.Context, kinds: str) -> list[tuple[str, str]]:
    """Returns (namespace, name) of the running gateway's objects of some kinds; nothing unless exactly one gateway runs."""
    from lasthop.cli.args import paths
    from lasthop.cli.views.admin_socket import AdminSocketView
    from lasthop.cli.views.command_view import without_loop

    folder = ctx.params.get("folder")
    try:
        sockets = [paths.running(Path(folder))] if folder else paths.all_running()
        if len(sockets) != 1:
            return []
        view = AdminSocketView(sockets[0])
        return [pair for kind in kinds.split(",") for pair in without_loop(view.names(kind_of(kind)))]
    except (click.ClickException, OSError):
        return []
