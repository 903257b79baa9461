"""Tests the chart with the real helm on a real API server: `python -m conformance helm`.

It is linted and rendered. The manifests with every value set are sent to the API server, which refuses unknown fields. Then
the chart is installed, upgraded to another image and to the webhook, which replaces controller and proxies alike, and rolled
back, while clients send requests.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path
from typing import Any

import yaml

from conformance.api import APPLY, Object
from conformance.checks import eventually, mk_object
from conformance.children import say
from conformance.cluster import REPOSITORY, Cluster, has_condition
from conformance.lasthop import NAMESPACE
from conformance.under_load import POLICY, UnderLoad
from lasthop.run.infra.kubernetes.installation import CRDS, Options, crd_documents, documents

CHART = REPOSITORY / "deploy" / "chart"
EVERY_VALUE = Path(__file__).with_name("chart-values.yaml")
FIRST, SECOND = "registry.example/lasthop:one", "registry.example/lasthop:two"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def check_chart(cluster: Cluster, arguments: dict[str, Any]) -> int:
    helm = Helm(cluster, arguments["helm"])
    say((await helm.run("version", "--short")).strip())
    await helm.run("lint", "--strict", str(CHART))
    await helm.run("lint", "--strict", str(CHART), "--values", str(EVERY_VALUE))
    say("ok       helm lint finds nothing, with default values and with every value set")
    await the_same_as_install(helm)
    await refused(helm)
    await accepted(cluster, helm)
    await installs(helm)
    return 0 if await replaced_under_load(cluster, helm) else 1


class Helm:
    def __init__(self, cluster: Cluster, program: str) -> None:
        self.program = program
        home = {f"HELM_{kind}_HOME": str(cluster.scratch / f"helm-{kind.lower()}") for kind in ("CACHE", "CONFIG", "DATA")}
        self.env = {**os.environ, **home, "KUBECONFIG": str(cluster.kubeconfig)}

    async def run(self, *command: str, fails: bool = False) -> str:
        """Returns helm's standard output, or its error if it should fail."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.program, *command, env=self.env, stdout=pipe, stderr=pipe)
        output, errors = (stream.decode() for stream in await process.communicate())
        assert bool(process.returncode) == fails, f"helm {' '.join(command)}: {output}{errors}"
        return errors if fails else output

    async def template(self, *flags: str) -> list[Object]:
        rendered = await self.run("template", "lasthop", str(CHART), "--namespace", NAMESPACE, *flags)
        return [document for document in yaml.safe_load_all(rendered) if document]


async def the_same_as_install(helm: Helm) -> None:
    """With default values the chart renders the manifests of `lasthop install`."""
    for watched in ((), ("shop", "blog")):
        some = [f"--set=namespaces={{{','.join(watched)}}}"] if watched else []
        rendered = await helm.template(f"--set=image={FIRST}", "--no-hooks", "--include-crds", *some)
        wanted = [document for document in documents(Options(FIRST, watched=watched)) if document["kind"] != "Namespace"]
        assert sorted(map(json.dumps, map(_sorted, rendered))) == sorted(map(json.dumps, map(_sorted, wanted)))
    say("ok       the chart renders what `lasthop install` applies, for all namespaces and for some")


def _sorted(document: Object) -> Object:
    ordered: Object = json.loads(json.dumps(document, sort_keys=True))
    return ordered


async def refused(helm: Helm) -> None:
    """Mistakes that helm itself refuses, in words."""
    mistyped = await helm.run("template", "x", str(CHART), "--set=toleration=x", fails=True)
    assert "toleration" in mistyped, mistyped
    profile = ("--set=gatewayClass.profile.proxy.replicas=2", "--set=namespaces={shop}")
    unread = await helm.run("template", "x", str(CHART), "--namespace", NAMESPACE, *profile, fails=True)
    assert "which is not watched" in unread, unread
    say("ok       a value that does not exist, and a profile that nobody would read, are refused")


async def installs(helm: Helm) -> None:
    flags = ["--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout=5m", f"--set=image={FIRST}"]
    await helm.run("install", "lasthop", str(CHART), *flags)
    say("ok       helm install --wait")


def older_crd() -> Object:
    """Returns a CRD of ours as an older version might have it: without fields that there are now."""
    crd = next(document for document in documents(Options(FIRST)) if document["metadata"]["name"] == "pinsets.lasthop.dev")
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return crd


async def crds_are_new(cluster: Cluster) -> None:
    crd = await cluster.api.get(f"{CRD}/pinsets.lasthop.dev")
    assert "spec" in crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"], "the CRD is the old one"
    left = (await cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles"))["items"]
    assert "lasthop-crds" not in [role["metadata"]["name"] for role in left]
    say("ok       a CRD that was older is up to date, and the right to change it is gone")


async def accepted(cluster: Cluster, helm: Helm) -> None:
    """With every value set, the API server accepts all of it, and knows every field. Before anything is installed: it would
    be merged with that."""
    crds = crd_documents()
    await cluster.apply([mk_object("v1", "Namespace", "", NAMESPACE), *crds])
    for crd in crds:
        await eventually(functools.partial(_established, cluster, crd["metadata"]["name"]), 60)
    rendered = await helm.template("--values", str(EVERY_VALUE))
    rendered += await helm.template("--values", str(EVERY_VALUE), "--set=namespaces={default,lasthop-system}")
    kinds = set()
    for document in rendered:
        if not document["apiVersion"].startswith("monitoring.coreos.com/"):
            where = await cluster.api.path(document)
            question = {"fieldManager": "helm-check", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
            await cluster.api.request("PATCH", where, document, APPLY, **question)
            kinds.add(document["kind"])
    say(f"ok       the API server accepts all {len(rendered)} objects with every value set ({', '.join(sorted(kinds))})")


async def replaced_under_load(cluster: Cluster, helm: Helm) -> bool:
    async with UnderLoad(cluster) as load:
        await cluster.apply([older_crd()])
        settings = ("podAnnotations.example\\.com/edition=two", "webhook.enabled=true", f"image={SECOND}")
        values = ("--reuse-values", *(f"--set={setting}" for setting in settings))
        for image, command in ((SECOND, ("upgrade", "lasthop", str(CHART), *values)), (FIRST, ("rollback", "lasthop", "1"))):
            await helm.run(*command, "--namespace", NAMESPACE, "--wait", "--timeout=5m")
            await load.until_all_run(image)
            await crds_are_new(cluster)
            say(f"ok       helm {command[0]}: controller and proxies run {image}")
            if image == SECOND:
                await eventually(functools.partial(_warned, cluster), 60)
                say("ok       the webhook warns of an edit that would make a hop plaintext")
    await helm.run("uninstall", "lasthop", "--namespace", NAMESPACE, "--wait")
    for name in CRDS:
        await cluster.api.get(f"{CRD}/{name.removesuffix('.yaml')}.lasthop.dev")
    say("ok       helm uninstall leaves the CRDs, and with them what users have written")
    return not load.failed


async def _warned(cluster: Cluster) -> bool:
    """Whether the API server forwards the webhook's warning about deleting a policy, in a dry run."""
    question = cluster.api.session.delete(cluster.api.server + POLICY, params={"dryRun": "All"})
    async with question as response:
        return response.status == 200 and "would be plaintext" in response.headers.get("Warning", "")


async def _established(cluster: Cluster, name: str) -> bool:
    return has_condition(await cluster.api.get(f"{CRD}/{name}"), "Established")
