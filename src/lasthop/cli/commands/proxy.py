"""`lasthop proxy`: runs in the Pods that Lasthop creates for a Gateway."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from lasthop.base.api.addresses import with_port
from lasthop.cli.args.long_running import on_signals
from lasthop.edge.proxy.binary import EnvoyNotFound, find_envoy
from lasthop.edge.proxy.directory import RunDirUnusable
from lasthop.edge.proxy.pod import PodProxy, log
from lasthop.edge.proxy.pod_settings import InvalidSetting, from_environment
from lasthop.edge.xds.observing import ReportSender


@click.command("proxy")
def command() -> None:
    """Run the proxy of one Gateway in a Pod; not meant to be called by hand.

    Environment variables name the Gateway and the controller's address; the client certificate is mounted into the Pod. The
    proxy is ready once it has its configuration; on SIGTERM it finishes the requests in flight.

    \b
    Example, as the controller writes it into a Deployment:
      lasthop proxy         (the container's command; no arguments)
    """
    try:
        sys.exit(asyncio.run(_run()))
    except (InvalidSetting, EnvoyNotFound, RunDirUnusable, OSError) as error:
        raise click.ClickException(str(error)) from None


async def _run() -> int:
    settings = from_environment(os.environ)
    xds = with_port(settings.xds_host, settings.xds_port)
    sender = ReportSender(xds, settings.xds_server_name, settings.certificates, _report_problem)
    pod = PodProxy(settings, find_envoy(), sender)
    on_signals(pod.stop)
    return await pod.run()


def _report_problem(text: str) -> None:
    log(text or "the controller accepts reports again")
