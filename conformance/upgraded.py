"""Upgrades Lasthop from another commit's chart to this one and rolls it back, with helm, under load: `python -m conformance
upgrade --before REF`.

No request may fail, and no condition of any status may change, not even for a moment: the times of their last transitions
stay.
"""

from __future__ import annotations

import functools
from typing import Any

from bench import objects
from conformance.charted import CHART, Helm
from conformance.checks import eventually
from conformance.children import say
from conformance.cluster import Cluster
from conformance.lasthop import GATEWAY_CLASS, NAMESPACE
from conformance.under_load import GATEWAY, POLICY, UnderLoad

BEFORE, AFTER = "registry.example/lasthop:before", "registry.example/lasthop:after"
STATUSES = (
    f"/apis/{objects.API}/gatewayclasses/{GATEWAY_CLASS}",
    GATEWAY,
    POLICY.replace("backendtlspolicies", "httproutes"),
    POLICY,
)

Conditions = dict[str, tuple[str, str, str, str]]


async def check_upgrade(cluster: Cluster, arguments: dict[str, Any]) -> int:
    helm = Helm(cluster, arguments["helm"])
    flags = ("--namespace", NAMESPACE, "--wait", "--timeout=5m")
    await helm.run("install", "lasthop", arguments["chart"], "--create-namespace", f"--set=image={BEFORE}", *flags)
    changed: list[str] = []
    async with UnderLoad(cluster) as load:
        await eventually(functools.partial(_connected, cluster), 60)
        kept = await statuses(cluster)
        say(f"ok       helm install of {arguments['commit'][:12]}, its own chart: {len(kept)} conditions")
        for image, command in (
            (AFTER, ("upgrade", "lasthop", str(CHART), f"--set=image={AFTER}")),
            (BEFORE, ("rollback", "lasthop", "1")),
            (AFTER, ("rollback", "lasthop", "2")),
        ):
            await helm.run(*command, *flags)
            await load.until_all_run(image)
            await eventually(functools.partial(_connected, cluster), 60)
            differences = differing(kept, await statuses(cluster))
            result = "FAILED  " if differences else "ok      "
            say(f"{result} helm {command[0]} to {image}; statuses: {'; '.join(differences) or 'as before'}")
            changed += differences
    return 1 if changed or load.failed else 0


async def _connected(cluster: Cluster) -> bool:
    """Reports whether the observations of the proxies have reached the status."""
    condition = (await statuses(cluster)).get(f"{POLICY} BackendConnected")
    return condition is not None and condition[0] == "True"


async def statuses(cluster: Cluster) -> Conditions:
    conditions: Conditions = {}
    for path in STATUSES:
        status = (await cluster.api.get(path)).get("status") or {}
        parts = (status, *(status.get("parents") or ()), *(status.get("ancestors") or ()), *(status.get("listeners") or ()))
        for part in parts:
            for condition in part.get("conditions") or ():
                name = f"{path} {part['name']} {condition['type']}" if "name" in part else f"{path} {condition['type']}"
                conditions[name] = (
                    condition["status"],
                    condition["reason"],
                    condition["message"],
                    condition["lastTransitionTime"],
                )
    return conditions


def differing(kept: Conditions, after: Conditions) -> list[str]:
    names = sorted(kept.keys() | after.keys())
    return [f"{name} was {kept.get(name)}, is {after.get(name)}" for name in names if kept.get(name) != after.get(name)]
