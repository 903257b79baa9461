"""Judges Lasthop, Envoy Gateway and Traefik by the same cases on a real API server, and writes docs/judged.md: `make judge`.

    python -m bench.judged               all, and the page
    python -m bench.judged lasthop       one of them; the page keeps the others' results
    python -m bench.judged --cases RE    some cases, and no page

Each gateway has a cluster of its own. Lasthop is installed as users install it. Envoy Gateway runs as a process of the
cluster's network with its proxies on the host, as in the bench: the same translation and the same xDS, without Pods. On one
host it runs one proxy, so the cases of the Gateway with a client certificate have a run and a cluster of their own. Traefik
is a process of the cluster's network too; it serves a listener where an entry point has the listener's port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bench import judged_page
from bench.control import envoy_gateway
from bench.import_traefik import traefik
from conformance import lasthop, preflight, sandbox
from conformance.build import SERVERS, build_one, path_of
from conformance.children import Server, check, say
from conformance.cluster import Cluster, has_condition

_CLIENT_CERTIFICATE = "protocols/client-certificate"
SYSTEMS = {
    "lasthop": ("",),
    "envoy-gateway": (f"^(?!{_CLIENT_CERTIFICATE})", f"^{_CLIENT_CERTIFICATE}"),
    "traefik": ("",),
}
"""The cases of each run."""
NAMESPACE = "judged"
EG_FEATURES = (
    *("Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "ReferenceGrant"),
    *("BackendTLSPolicy", "BackendTLSPolicySANValidation", "GatewayBackendClientCertificate"),
    *("TLSRouteModeTerminate", "TLSRouteModeMixed", "HTTPRouteRequestMirror", "HTTPRouteBackendProtocolWebSocket"),
)
"""As in its conformance report of v1.9; its GatewayClass publishes none."""
ENTRY_POINTS = (80, 443, 8443, *range(8401, 8410), *range(9401, 9440))
"""The ports of the judge's listeners."""


async def judge_lasthop(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await lasthop.install(cluster, "deployment")
    assert await lasthop.accepted(cluster), f"the GatewayClass was not accepted; see {cluster.logs}"
    return await _judge(cluster, arguments, lasthop.GATEWAY_CLASS)


async def judge_envoy_gateway(cluster: Cluster, arguments: dict[str, Any]) -> int:
    server = await _envoy_gateway(cluster)
    await server.start()
    more = ["--features", ",".join(EG_FEATURES), "--dial", "127.0.0.1", "--version-judged", envoy_gateway.VERSION]
    try:
        return await _judge(cluster, arguments, "envoy-gateway", *more)
    finally:
        await server.stop(20)


async def _envoy_gateway(cluster: Cluster) -> Server:
    await cluster.install_crds(envoy_gateway.crds())
    await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": envoy_gateway.NAMESPACE}}])
    parameters = {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "proxy"}
    made = envoy_gateway.gateway_class()
    made["spec"]["parametersRef"] = {**parameters, "namespace": envoy_gateway.NAMESPACE}
    await cluster.apply([envoy_gateway.envoy_proxy(envoy_gateway.NAMESPACE), made])
    home = cluster.scratch / "envoy-gateway"
    home.mkdir()
    config = envoy_gateway.configure(home, [envoy_gateway.NAMESPACE, NAMESPACE])
    content = yaml.safe_load(config.read_text())
    content["extensionApis"] = {"enableBackend": True}  # its spelling of skipped verification needs it
    config.write_text(yaml.safe_dump(content))
    variables = {"KUBECONFIG": str(cluster.kubeconfig), "ENVOY_GATEWAY_NAMESPACE": envoy_gateway.NAMESPACE}
    certgen = [*(f"{name}={value}" for name, value in variables.items()), str(path_of(envoy_gateway.PROGRAM)), "certgen"]
    await check("env", *certgen, "--disable-topology-injector")
    log = cluster.logs / "envoy-gateway.log"
    return Server("envoy-gateway", envoy_gateway.command(home, config), log, os.environ | variables)


async def judge_traefik(cluster: Cluster, arguments: dict[str, Any]) -> int:
    spec = {"controllerName": "traefik.io/gateway-controller"}
    made = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "traefik"},
        "spec": spec,
    }
    await cluster.apply([made])
    # Kind to it: with its limit of API requests it writes hundreds of statuses before it serves the routes.
    provider = {"experimentalChannel": True, "statusAddress": {"ip": "127.0.0.1"}, "qps": -1}
    config = {
        "entryPoints": {f"p{port}": {"address": f":{port}"} for port in ENTRY_POINTS},
        "providers": {"kubernetesGateway": provider},
        "log": {"level": "INFO"},
        "global": {"checkNewVersion": False},
    }
    path = cluster.scratch / "traefik.yaml"
    path.write_text(yaml.safe_dump(config))
    program = path_of(traefik.PROGRAM)
    await cluster.start("traefik", [program, f"--configfile={path}"], {"KUBECONFIG": str(cluster.kubeconfig)})
    class_path = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/traefik"
    async with asyncio.timeout(60):  # until then its class claims nothing
        while not has_condition(await cluster.api.get(class_path), "Accepted"):  # noqa: ASYNC110 - the event is elsewhere
            await asyncio.sleep(0.2)
    return await _judge(cluster, arguments, "traefik", "--dial", "127.0.0.1", "--version-judged", traefik.VERSION)


async def _judge(cluster: Cluster, arguments: dict[str, Any], name: str, *more: str) -> int:
    report = Path(arguments["report"])
    command = [str(lasthop.program()), "judge", "--kubeconfig", str(cluster.kubeconfig), "--gateway-class", name]
    command += ["--namespace", NAMESPACE, "--cases", arguments["cases"], "--report", str(report), *more]
    process = await asyncio.create_subprocess_exec(*command)
    code = await process.wait()
    if report.exists():
        return 0
    say(f"{name} could not be judged (exit code {code}); see {cluster.logs}")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.judged", description=__doc__)
    parser.add_argument("system", nargs="?", choices=SYSTEMS)
    parser.add_argument("--cases", default="", metavar="RE")
    arguments = parser.parse_args()
    preflight.check()
    systems = [arguments.system] if arguments.system else [*SYSTEMS]
    for program in SERVERS:
        build_one(program)
    for system in systems:
        if system == "envoy-gateway":
            envoy_gateway.build()
        if system == "traefik":
            build_one(traefik.PROGRAM)
    for system in systems:
        reports = []
        for cases in [arguments.cases] if arguments.cases else SYSTEMS[system]:
            with tempfile.TemporaryDirectory(prefix="judged-") as folder:
                report = Path(folder) / "report.json"
                scenario = f"bench.judged:judge_{system.replace('-', '_')}"
                if code := sandbox.run(scenario, {"cases": cases, "report": str(report)}):
                    return code
                reports.append(json.loads(report.read_text()))
        if not arguments.cases:
            judged_page.keep(system, reports)
    if not arguments.cases:
        judged_page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
