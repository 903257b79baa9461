"""Runs a cluster with Lasthop until Ctrl-C or `python -m conformance down`: `python -m conformance up`."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance import lasthop
from conformance.cluster import Cluster


async def up(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await lasthop.install(cluster, arguments["way"])
    print(
        f"""
  export KUBECONFIG={cluster.kubeconfig_host}

Gateway addresses are in the cluster's own network; reach them with: python -m conformance exec curl http://10.245.0.1/
Logs of the servers, the node and all containers: {cluster.logs}
Stop it with Ctrl-C, or with: python -m conformance down""",
        flush=True,
    )
    await asyncio.Event().wait()
    return 0
