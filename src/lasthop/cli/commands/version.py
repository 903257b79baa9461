"""`lasthop version`: shows the versions of Lasthop and its parts."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Any

import click

from lasthop.cli.args import jsonpath, local, target


@click.command("version")
@target.output("text", "json")
def command(output: str) -> None:
    """Show the versions of Lasthop, of Envoy, of the Gateway API that it implements, and of gateways that run here.

    \b
    Examples:
      lasthop version
      lasthop version -o json | jq -r .envoy
    """
    document = versions()
    if output == "json":
        jsonpath.echo_json(json.dumps(document, indent=2))
        return
    click.echo(f"Lasthop      {document['lasthop']}")
    click.echo(f"Envoy        {document['envoy'] or document['envoy_problem']}")
    click.echo(f"Gateway API  {document['gateway_api']} (CRDs of {document['gateway_api_known']} in clusters)")
    click.echo(f"Python       {document['python']} on {document['platform']}")
    for gateway in document["running"]:
        click.echo(
            f"Running      {gateway['version'] or 'unknown'} with Envoy {gateway['envoy'] or 'unknown'} on {gateway['folder']}"
        )


def versions() -> dict[str, Any]:
    from lasthop.base.api.bundle import KNOWN
    from lasthop.base.api.crds import BUNDLE_VERSION
    from lasthop.edge.proxy.binary import EnvoyNotFound, find_envoy

    try:
        envoy, problem = find_envoy(), ""
    except EnvoyNotFound as error:
        envoy, problem = None, str(error)
    running = [gateway for gateway in local.gateways() if local.holder(gateway.run_dir)]
    return {
        "lasthop": version("lasthop"),
        "envoy": ".".join(map(str, envoy.version)) if envoy else "",
        "envoy_path": str(envoy.path) if envoy else "",
        "envoy_problem": problem,
        "gateway_api": BUNDLE_VERSION,
        "gateway_api_known": KNOWN,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "running": [
            {
                "folder": gateway.name,
                "version": str(gateway.about.get("version", "")),
                "envoy": str(gateway.about.get("envoy", "")),
            }
            for gateway in running
        ],
    }
