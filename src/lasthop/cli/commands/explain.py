"""`lasthop explain KIND NAME`: explains which objects apply to an object, where it applies, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from lasthop.base.api.documents import Json
from lasthop.base.text.printable import clean
from lasthop.cli.args import jsonpath, target
from lasthop.cli.args.objects import common_namespace, complete_kind, complete_name, named_object, parse_refs, raise_all
from lasthop.cli.views.command_view import View, ask

MARKS: Final = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}


class _Explain(click.Command):
    """Dispatches `explain request ...`, which has its own arguments."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0].casefold() == "request":
            return request_command.make_context(f"{info_name} request", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("explain", cls=_Explain)
@click.argument("kind", shell_complete=complete_kind)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)
@target.read_folder
@target.admin
@target.output("tree", "json")
@target.allow_files
@target.options
def command(kind: str, names: tuple[str, ...], folder: Path | None, output: str, cluster: target.ClusterOptions) -> None:
    """Explain an object: which objects apply to it, where it applies, and why. For a request: lasthop explain request --help.

    Reads the gateway that runs on this machine; with --dir, a folder, whether or not a gateway runs on it; otherwise, or with
    --context or --kubeconfig, a cluster. Each line follows from the lines below it; ✓ works, ! deserves attention, ✗ does
    not work.

    \b
    Examples:
      lasthop explain backendtlspolicy api -n shop      where it applies and which checks it requires
      lasthop explain httproute/shop/web --dir objects  the backends of each rule, and their policies
      lasthop explain service api --dir objects         which routes refer to it, and its policy
      lasthop explain configmap corp-ca                 which policies use its CAs
      lasthop explain gateway web -n shop --context prod
      lasthop explain hr,btp api                        objects of several kinds with this name
      lasthop explain hr web cart                       several objects; or: hr/web btp/api
      lasthop explain request GET https://www.example.com/cart   where a request goes, or why it gets 404
    """
    refs = parse_refs(kind, names, cluster.namespace)
    if nameless := [ref.kind for ref in refs if not ref.name]:
        raise click.UsageError(f"the name of the {nameless[0]} is missing; write: lasthop explain {kind.lower()} NAME")

    missing: list[click.ClickException] = []

    async def look(view: View) -> list[Json]:
        explanations = []
        for ref in refs:
            try:
                explanations.append(await view.explain(await named_object(view, ref)))
            except click.ClickException as error:
                missing.append(error)
        return [explanation for explanation in explanations if explanation]

    explanations = ask(folder, cluster._replace(namespace=common_namespace(refs)), look, object_named=True)
    if output == "json" and explanations:
        jsonpath.echo_json(json.dumps(explanations if len(refs) > 1 else explanations[0], indent=2))
    elif explanations:
        click.echo("\n".join(line for explanation in explanations for line in drawn(clean(explanation))))
    raise_all(missing)


@click.command("request")
@click.argument("method_or_url", metavar="[METHOD]")
@click.argument("url", required=False, metavar="URL")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header of the request.  [may be repeated]"
)
@click.option("--sni", metavar="NAME", default="", help="The name in the TLS handshake.  [default: that of the URL]")
@click.option("--gateway", metavar="NAME", default="", help="Only this Gateway, if several have the port.")
@target.read_folder
@target.admin
@target.output("tree", "json")
@target.allow_files
@target.options
def request_command(
    method_or_url: str,
    url: str | None,
    headers: tuple[str, ...],
    sni: str,
    gateway: str,
    folder: Path | None,
    output: str,
    cluster: target.ClusterOptions,
) -> None:
    """Explain where a request goes: listener, route, rule, backend and its verification; or why it gets 404.

    Sends nothing: the answer comes from the gateway's configuration. METHOD defaults to GET. Add headers that clients send by
    themselves (User-Agent, Accept) if routes match them. A Host header replaces the host of the URL, as with curl. If several
    Gateways have the port, each answers, those with a matching route first; -n selects a namespace.

    \b
    Examples:
      lasthop explain request https://www.example.com/cart --dir objects
      lasthop explain request POST http://127.0.0.1:8080/ -H 'Host: www.example.com'
      lasthop explain request https://www.example.com/shop.Cart/Get -H 'content-type: application/grpc'
      lasthop explain request https://www.example.com/ -H 'Host: other.example.com'     does it get 421?
      lasthop explain request https://www.example.com/ --context prod -o json
    """
    from lasthop.base.api.meta import Key
    from lasthop.engine.plan.request import BadRequest, read_request

    method, address = (method_or_url, url) if url else ("GET", method_or_url)
    try:
        request = read_request(method, address, headers, sni)
    except BadRequest as error:
        raise click.UsageError(str(error)) from None

    async def look(view: View) -> list[Json]:
        named = gateway.removeprefix("gateway/")
        if named and not any(named in (name, f"{namespace}/{name}") for namespace, name in await view.names("Gateway")):
            raise click.ClickException(f"Gateway {named} does not exist")
        answers = await view.explain_request(request, named)
        in_namespace = [answer for answer in answers if Key.read("Gateway", answer["gateway"]).namespace == cluster.namespace]
        return in_namespace or answers

    answers = ask(folder, cluster, look)
    if output == "json":
        jsonpath.echo_json(json.dumps(answers, indent=2))
    else:
        click.echo("\n".join(line for answer in answers for line in drawn(clean(answer["explanation"]))))


def drawn(fact: Json, first: str = "", indent: str = "") -> Iterator[str]:
    mark, colour = MARKS.get(fact.get("state", ""), ("", None))
    shown = f"{click.style(mark, fg=colour, bold=True)} {fact['text']}" if mark else fact["text"]
    place = click.style(f"  {fact['place']}", dim=True) if fact.get("place") else ""
    yield f"{first}{shown}{place}"
    because = fact.get("because", ())
    for number, reason in enumerate(because, 1):
        branch, trunk = ("└─ ", "   ") if number == len(because) else ("├─ ", "│  ")
        yield from drawn(reason, indent + branch, indent + trunk)
