"""`lasthop probe OBJECT`: connects to the backends of a policy or a route as a gateway would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from lasthop.cli.args import jsonpath, target
from lasthop.cli.args.objects import ObjectRef, all_objects, complete_path, kind_of, named_object, parse_ref
from lasthop.cli.args.values import host_port
from lasthop.cli.views.command_view import View, ask

if TYPE_CHECKING:
    from lasthop.edge.probe.result import ProbeResult

KIND = "BackendTLSPolicy"
KINDS = (KIND, "Service", "ServiceImport", "XBackend", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return complete_path(ctx, KIND, incomplete)


@click.command("probe")
@click.argument("object", required=False, shell_complete=_complete)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@target.read_folder
@target.admin
@target.output("text", "json")
@target.allow_files
@target.options
def command(object: str | None, address: str | None, folder: Path | None, output: str, cluster: target.ClusterOptions) -> None:
    """Test the TLS connection to backends as the gateway would make it, check by check, with a remedy for each failure.

    Connects to each endpoint with the gateway's TLS settings for it and shows the result of each check: connection, TLS
    version, ALPN, chain, dates, names, pins, client certificate. The connection ends after the handshake and sends no request;
    ! marks what a backend may still refuse. With HOST:PORT, connects to that address instead, with the same settings. Exits
    with 1 if the gateway would fail, or does not use the object.

    OBJECT is a BackendTLSPolicy (NAME or NAMESPACE/NAME), or a name as `lasthop status` prints it: KIND/NAMESPACE/NAME or
    KIND/NAME of a BackendTLSPolicy, a Service, a ServiceImport, an XBackend, or a route, whose backends are all tested. The
    default is all BackendTLSPolicies. Uses the objects of the gateway that runs on this machine, which then makes the
    connections; with --dir, those of a folder, whether or not a gateway runs on it. Otherwise, or with --context or
    --kubeconfig, it uses those of a cluster, whose addresses must be reachable from this machine.

    \b
    Examples:
      lasthop probe --dir objects                          all policies of a folder
      lasthop probe api --dir objects
      lasthop probe backendtlspolicy/shop/api              of the running gateway
      lasthop probe httproute/shop/web                     all backends of a route
      lasthop probe shop/api 10.0.0.7:8443                 before a backend goes into service
      lasthop probe shop/api --context prod -o json | jq .passes
    """
    ref, address = _parse(object, address, cluster.namespace or "")

    async def look(view: View) -> list[ProbeResult]:
        keys = [await named_object(view, ref)] if ref.name else await all_objects(view, ref)
        return [await view.probe(key, address) for key in keys]

    results = ask(folder, cluster._replace(namespace=ref.namespace or None), look, object_named=bool(ref.name))
    if output == "json":
        jsonpath.echo_json(_as_json(results, one=bool(object)))
    else:
        click.echo(_text(results))
    # A policy that no gateway uses is a failure only if it was named.
    if any(result.fails or (object and not result.passes) for result in results):
        raise click.exceptions.Exit(1)


def _as_json(results: list[ProbeResult], *, one: bool) -> str:
    from lasthop.edge.probe.result import document

    documents = list(map(document, results))
    return json.dumps(documents[0] if one else documents, indent=2)


def _text(results: list[ProbeResult]) -> str:
    from lasthop.cli.render import probe_report

    return "\n\n".join("\n".join(probe_report.text(result)) for result in results) or "no BackendTLSPolicies exist"


def _parse(text: str | None, address: str | None, namespace: str) -> tuple[ObjectRef, str]:
    """Parses the object and the address. Accepts `KIND NAME` too, as `lasthop explain` does; a namespace with the name of a
    kind needs -n."""
    if not text:
        return ObjectRef(KIND, namespace), ""
    if ":" in text:
        raise click.UsageError(f"which object? Write: lasthop probe POLICY {text}")
    if address and ":" not in address and _kind(text):
        text, address = f"{text}/{address}", None
    if address:
        host_port(address, "HOST:PORT")
    return _object(text, namespace), address or ""


def _object(text: str, namespace: str) -> ObjectRef:
    first, slash, path = text.partition("/")
    kind, object_path = (named, path) if slash and (named := _kind(first)) else (KIND, text)
    if object_path.count("/") > 1:
        raise click.UsageError(f"{text} is not KIND/NAMESPACE/NAME; KIND is one of {', '.join(map(str.lower, KINDS))}")
    return parse_ref(kind, object_path, namespace)


def _kind(text: str) -> str:
    """Returns the kind for a typed name; empty unless its objects have backends."""
    try:
        kind = kind_of(text)
    except click.BadParameter:
        return ""
    return kind if kind in KINDS else ""
