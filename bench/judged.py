"""`make judge`: Lasthop and Envoy Gateway, judged by the same cases on a real API server; writes docs/judged.md.

    python -m bench.judged               both, and the page
    python -m bench.judged lasthop       one of them; its report goes to standard output
    python -m bench.judged --cases RE    some cases, and no page

Each gateway has a cluster of its own. Lasthop is installed as users install it. Envoy Gateway runs as a process of the
cluster's network with its proxies on the host, as in the bench: the same translation and the same xDS, without Pods.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bench.control import envoy_gateway
from conformance import lasthop, preflight, sandbox
from conformance.build import build
from conformance.children import Server, say
from conformance.cluster import Cluster

SYSTEMS = ("lasthop", "envoy-gateway")
NAMESPACE = "judged"
EG_FEATURES = (
    *("Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "ReferenceGrant"),
    *("BackendTLSPolicy", "BackendTLSPolicySANValidation", "GatewayBackendClientCertificate"),
    *("TLSRouteModeTerminate", "TLSRouteModeMixed", "HTTPRouteRequestMirror", "HTTPRouteBackendProtocolWebSocket"),
)
"""Claimed in its conformance report of v1.9; its GatewayClass publishes none."""
PAGE = Path(__file__).parent.parent / "docs" / "judged.md"


async def judge_lasthop(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await lasthop.install(cluster, "deployment")
    assert await lasthop.accepted(cluster), f"the GatewayClass was not accepted; see {cluster.logs}"
    return await _judge(cluster, arguments, lasthop.GATEWAY_CLASS)


async def judge_envoy_gateway(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await cluster.install_crds(envoy_gateway.crds())
    namespaces = (envoy_gateway.NAMESPACE,)
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in namespaces)
    proxy = envoy_gateway.envoy_proxy(envoy_gateway.NAMESPACE)
    parameters = {
        "group": "gateway.envoyproxy.io",
        "kind": "EnvoyProxy",
        "name": "proxy",
        "namespace": envoy_gateway.NAMESPACE,
    }
    made = envoy_gateway.gateway_class()
    made["spec"]["parametersRef"] = parameters
    await cluster.apply([proxy, made])
    home = cluster.scratch / "envoy-gateway"
    home.mkdir()
    config = envoy_gateway.configure(home, [envoy_gateway.NAMESPACE, NAMESPACE])
    content = yaml.safe_load(config.read_text())
    content["extensionApis"] = {"enableBackend": True}
    config.write_text(yaml.safe_dump(content))
    variables = {"KUBECONFIG": str(cluster.kubeconfig), "ENVOY_GATEWAY_NAMESPACE": envoy_gateway.NAMESPACE}
    log = cluster.logs / "envoy-gateway.log"
    server = Server("envoy-gateway", envoy_gateway.command(home, config), log, os.environ | variables)
    await server.start()
    try:
        more = ["--features", ",".join(EG_FEATURES), "--dial", "127.0.0.1", "--version-judged", envoy_gateway.VERSION]
        return await _judge(cluster, arguments, "envoy-gateway", *more)
    finally:
        await server.stop(20)


async def _judge(cluster: Cluster, arguments: dict[str, Any], name: str, *more: str) -> int:
    command = [str(lasthop.program()), "judge", "--kubeconfig", str(cluster.kubeconfig), "--gateway-class", name]
    command += ["--namespace", NAMESPACE, "--cases", arguments["cases"], *more]
    for suffix in (".json", ".md"):
        command += ["--report", arguments["report"] + suffix]
    process = await asyncio.create_subprocess_exec(*command)
    code = await process.wait()
    say(f"{name}: exit code {code}")
    return 0 if Path(arguments["report"] + ".json").exists() else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.judged")
    parser.add_argument("system", nargs="?", choices=SYSTEMS)
    parser.add_argument("--cases", default="", metavar="RE")
    arguments = parser.parse_args()
    preflight.check()
    build()
    envoy_gateway.build()
    with tempfile.TemporaryDirectory(prefix="judged-") as folder:
        reports = {}
        for system in [arguments.system] if arguments.system else SYSTEMS:
            reports[system] = Path(folder) / system
            scenario = f"bench.judged:judge_{system.replace('-', '_')}"
            if code := sandbox.run(scenario, {"cases": arguments.cases, "report": str(reports[system])}):
                return code
        print("\n".join(path.with_suffix(".md").read_text() for path in reports.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
