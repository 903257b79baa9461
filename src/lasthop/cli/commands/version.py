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
    found = versions()
    if output == "json":
        jsonpath.echo_json(json.dumps(found, indent=2))
        return
    click.echo(f"Lasthop      {found['lasthop']}")
    click.echo(f"Envoy        {found['envoy'] or found['envoy_problem']}")
    click.echo(f"Gateway API  {found['gateway_api']} (CRDs of {found['gateway_api_known']} in clusters)")
    click.echo(f"Python       {found['python']} on {found['platform']}")
    for each in found["running"]:
        click.echo(f"Running      {each['version'] or 'unknown'} with Envoy {each['envoy'] or 'unknown'} on {each['folder']}")


def versions() -> dict[str, Any]:
    from lasthop.base.api.bundle import KNOWN
    from lasthop.base.api.crds import BUNDLE_VERSION
    from lasthop.edge.proxy.binary import EnvoyNotFound, find_envoy

    try:
        envoy, problem = find_envoy(), ""
    except EnvoyNotFound as error:
        envoy, problem = None, str(error)
    running = [each for each in local.gateways() if local.holder(each.run_dir)]
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
            {"folder": each.name, "version": str(each.about.get("version", "")), "envoy": str(each.about.get("envoy", ""))}
            for each in running
        ],
    }
