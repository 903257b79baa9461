"""A cluster that lacks a kind, rejects an object or fails for a moment costs the cases that need it, and not the run."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from lasthop.edge.kubernetes.client import Client
from lasthop_judge import cluster
from lasthop_judge.adapters import ADAPTERS
from lasthop_judge.cases import ALL
from lasthop_judge.certificates import Issuer
from lasthop_judge.cluster import ClusterTestbed, listener_ports, ports_of
from lasthop_judge.model import Case, CaseVerdict, GatewayRole, Json, Outcome, RouteType
from lasthop_judge.objects import LABEL, RunSettings, gateways, wanted_listeners
from lasthop_judge.report.document import JudgedGateway, report_of
from lasthop_judge.run import choose, judge
from lasthop_judge.trial import JudgeError, Patience
from tests.fake_api import FakeApi, Name, Refusal, client_of, serving

NAMESPACE = "judge-1"
CASES = tuple(
    case for case in ALL if case.id in ("names/exact", "protocols/tcp", "protocols/client-certificate", "gep4152/skip-denied")
)
TCP = {case.id for case in CASES if case.via is RouteType.TCP}
MTLS = {case.id for case in CASES if case.role is GatewayRole.MTLS}
ABSENT = "the cluster does not serve TCPRoute of gateway.networking.k8s.io/v1"
SHORT = Patience(first=0.1, passes=0.1, refused=0.1, change=0.1, status=0.1)


class Api(FakeApi):
    rejects = ""
    """A resource that fails validation: plural and name."""
    programmed: frozenset[str] = frozenset()
    """Gateways that get an address."""

    def _object(self, verb: str, plural: str, name: Name, sub: str, body: Json) -> Json:
        if self.rejects == f"{plural}/{name[1]}":
            raise Refusal(400, "Invalid", ".spec.new: field not declared in schema")
        if plural == "gateways" and name[1] in self.programmed:
            conditions = [{"type": "Programmed", "status": "True"}]
            body = {**body, "status": {"addresses": [{"value": "10.0.0.2"}], "conditions": conditions}}
        return super()._object(verb, plural, name, sub, body)


@pytest.fixture
def api() -> Api:
    api = Api()
    api.served |= {("", "v1", "pods"), ("apps", "v1", "deployments")}
    api.put("namespaces", {"metadata": {"name": NAMESPACE}})
    status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    api.put("pods", {"metadata": {"name": "backend", "namespace": NAMESPACE, "labels": LABEL}, "status": status})
    return api


def make_settings(cases: Sequence[Case]) -> RunSettings:
    settings = RunSettings(NAMESPACE, "some", ADAPTERS["lasthop"], Issuer(), {}, {})
    wanted = wanted_listeners(cases, gateways(settings, cases))
    return dataclasses.replace(settings, ports=ports_of(cases), listeners=listener_ports(wanted))


async def start(api: Api, dial: str = "127.0.0.1") -> dict[str, str]:
    """Returns the rejected cases."""
    async with serving(api), client_of(api) as client:
        testbed = ClusterTestbed(client, make_settings(CASES), "python", dial)
        await testbed.start(CASES, lambda *_: None)
        return {id: str(error) for id, error in testbed.rejected.items()}


async def test_a_complete_cluster_rejects_no_case(api: Api) -> None:
    assert await start(api) == {}


async def test_cases_of_a_kind_that_the_cluster_lacks_do_not_run(api: Api) -> None:
    api.served = {name for name in api.served if name[2] != "tcproutes"}
    assert await start(api) == dict.fromkeys(TCP, ABSENT)


async def test_a_rejected_gateway_costs_its_cases(api: Api) -> None:
    api.rejects = f"gateways/{GatewayRole.MTLS}"
    rejected = await start(api)
    assert rejected.keys() == MTLS
    assert all(str(GatewayRole.MTLS) in why and "not declared" in why for why in rejected.values())


async def test_a_rejected_object_costs_its_case(api: Api) -> None:
    api.rejects = "backendtlspolicies/names-exact-policy"
    rejected = await start(api)
    assert rejected.keys() == {"names/exact"} and "not declared" in rejected["names/exact"]


async def test_a_gateway_that_is_never_programmed_costs_its_cases_but_not_the_run(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "READY_WITHIN", 0.2)
    api.programmed = frozenset((GatewayRole.PLAIN, GatewayRole.PERMITTING))
    rejected = await start(api, dial="")
    assert rejected.keys() == MTLS


async def test_without_its_first_gateway_nothing_can_be_judged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "READY_WITHIN", 0.2)
    with pytest.raises(JudgeError, match="Gateway judge is not programmed"):
        await start(api, dial="")


async def test_an_api_server_that_fails_for_a_moment_costs_nothing(api: Api) -> None:
    api.fail("patch", "httproutes", Refusal(503, "ServiceUnavailable"), "reset")
    api.fail("list", "pods", Refusal(429, "TooManyRequests"))
    assert await start(api) == {}


async def test_policies_of_one_age_are_created_in_the_order_of_their_names(api: Api) -> None:
    api.fail("patch", "backendtlspolicies", Refusal(503, "ServiceUnavailable"))
    cases = [case for case in ALL if case.id == "precedence/name"]
    async with serving(api), client_of(api) as client:
        await ClusterTestbed(client, make_settings(cases), "python", "127.0.0.1").start(cases, lambda *_: None)
    policies = api.objects["backendtlspolicies"].values()
    created = sorted(policies, key=lambda policy: int(policy["metadata"]["resourceVersion"]))
    assert [policy["metadata"]["name"] for policy in created] == ["precedence-name-a", "precedence-name-b"]


async def test_an_adapter_that_names_endpoints_gets_the_address_of_the_pod(api: Api) -> None:
    api.served.add(("gateway.envoyproxy.io", "v1alpha1", "backends"))
    cases = [case for case in ALL if case.id == "gep4152/skip"]
    settings = dataclasses.replace(make_settings(cases), adapter=ADAPTERS["envoy-gateway"])
    async with serving(api), client_of(api) as client:
        await ClusterTestbed(client, settings, "python", "127.0.0.1").start(cases, lambda *_: None)
    (backend,) = api.objects["backends"].values()
    assert backend["spec"]["endpoints"][0]["ip"]["address"] == "10.0.0.1"


async def test_cases_that_could_not_be_created_are_not_run_with_the_reason(api: Api) -> None:
    """Objects of an absent kind do not fail the run; others do."""
    api.served = {name for name in api.served if name[2] != "tcproutes"}
    cases = [case for case in CASES if case.id in TCP or case.id == "names/exact"]
    settings = make_settings(cases)
    async with serving(api), client_of(api) as client:
        testbed = ClusterTestbed(client, settings, "python", "127.0.0.1")
        api.rejects = "backendtlspolicies/names-exact-policy"
        await testbed.start(cases, lambda *_: None)
        verdicts = await judge(testbed, settings, choose(cases, None, settings), SHORT, lambda *_: None)
    outcomes = {verdict.case.id: (verdict.outcome, verdict.unserved) for verdict in verdicts}
    assert outcomes == {"names/exact": (Outcome.NOT_RUN, True), **dict.fromkeys(TCP, (Outcome.NOT_RUN, False))}
    assert {verdict.why for verdict in verdicts if verdict.case.id in TCP} == {ABSENT}
    assert report_of(JudgedGateway(""), verdicts).exit_code == 1
    only_absent = [verdict for verdict in verdicts if verdict.case.id in TCP]
    assert report_of(JudgedGateway(""), only_absent).exit_code == 1  # nothing was judged
    passed = CaseVerdict(CASES[0], Outcome.PASS)
    assert report_of(JudgedGateway(""), [passed, *only_absent]).exit_code == 0


async def test_a_namespace_that_cannot_be_deleted_costs_no_result(api: Api) -> None:
    messages: list[str] = []
    api.fail("delete", "namespaces", "*", Refusal(403, "Forbidden"))
    async with serving(api), client_of(api) as client, cluster.namespace(client, "judge-2", False, messages.append):
        pass
    assert "kubectl delete namespace judge-2" in messages[-1]


async def test_an_interrupted_run_deletes_its_namespace(api: Api) -> None:
    created = asyncio.Event()

    async def run(client: Client) -> None:
        async with cluster.namespace(client, "judge-2", False, lambda _: None):
            created.set()
            await asyncio.Event().wait()

    async with serving(api), client_of(api) as client, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run(client))
        await created.wait()
        assert ("", "judge-2") in api.objects["namespaces"]
        task.cancel()
        await asyncio.wait([task])
        assert ("", "judge-2") not in api.objects["namespaces"]


async def test_a_status_that_the_user_may_not_write_is_no_failure(api: Api) -> None:
    api.fail("patch", "backendtlspolicies", Refusal(403, "Forbidden"))
    async with serving(api), client_of(api) as client:
        testbed = ClusterTestbed(client, make_settings(CASES), "python")
        assert not await testbed.write_status("BackendTLSPolicy", "names-exact-policy", {})


async def test_the_commands_of_a_failing_case_go_on_beside_the_port_forward(api: Api, tmp_path: Path) -> None:
    stubs = {"kubectl": "case $3 in port-forward) exec sleep 20;; esac", "curl": ":", "openssl": "echo verified"}
    for program, body in stubs.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / program).chmod(0o755)
    case = next(case for case in CASES if case.id == "names/exact")
    async with serving(api), client_of(api) as client:
        testbed = ClusterTestbed(client, make_settings(CASES), "python", "127.0.0.1")
        await testbed.start(CASES, lambda *_: None)
        commands = "\n".join(
            (f"export PATH={tmp_path}:$PATH", *testbed.repro_commands(case, case.policies[0], "backend"), "kill %1")
        )
    shell = await asyncio.create_subprocess_exec("bash", "-c", commands, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(shell.communicate(), 15)
    assert output == b"verified\n"
    assert "openssl s_client -connect 127.0.0.1:" in commands
