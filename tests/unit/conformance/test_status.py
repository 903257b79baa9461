from __future__ import annotations

from conformance.node.probes import Verdict, port_of, url_of
from conformance.node.status import ContainerState, PodState, phase, status
from tests.unit.conformance.objects import mk_container, mk_pod

RUNNING = {"state": "running", "ready": True, "started_at": "2026-01-01T00:00:00Z"}


def test_a_pod_is_ready_when_all_its_containers_are() -> None:
    one, two = ContainerState("one", "i", **RUNNING), ContainerState("two", "i", state="running")  # type: ignore[arg-type]
    content = status(mk_pod(), PodState("now", ip="10.244.1.1"), [], [one, two])
    assert {c["type"]: c["status"] for c in content["conditions"]}["Ready"] == "False"
    two.ready = True
    content = status(mk_pod(), PodState("now", ip="10.244.1.1"), [], [one, two])
    assert {c["type"]: c["status"] for c in content["conditions"]}["Ready"] == "True"
    assert content["podIPs"] == [{"ip": "10.244.1.1"}]


def test_conditions_keep_their_time_until_they_change() -> None:
    old = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    content = status({**mk_pod(), "status": {"conditions": [old]}}, PodState("now"), [], [ContainerState("one", "i")])
    assert content["conditions"][0] == old


def test_the_states_that_a_container_is_not_in_are_removed_by_the_patch() -> None:
    state = ContainerState("one", "i", **RUNNING).status()["state"]  # type: ignore[arg-type]
    assert state == {"waiting": None, "running": {"startedAt": "2026-01-01T00:00:00Z"}, "terminated": None}


def test_phases() -> None:
    assert phase("Always", [ContainerState("a", "i")]) == "Pending"
    assert phase("Always", [ContainerState("a", "i", state="terminated")]) == "Running"
    assert phase("Never", [ContainerState("a", "i", state="terminated")]) == "Succeeded"
    assert phase("Never", [ContainerState("a", "i", state="terminated", exit_code=1)]) == "Failed"


def test_a_probe_fails_after_three_bad_answers_in_a_row_and_recovers_after_one_good_one() -> None:
    verdict = Verdict(healthy=True)
    assert [verdict.answer(good) for good in (False, False, True, False, False, False, True)] == [
        True,
        True,
        True,
        True,
        True,
        False,
        True,
    ]


def test_probe_ports_may_be_names() -> None:
    container = mk_container(ports=[{"name": "ready", "containerPort": 19001}])
    assert port_of("ready", container) == 19001
    assert (
        url_of({"port": "ready", "path": "ready", "scheme": "HTTPS"}, container, "10.244.1.1")
        == "https://10.244.1.1:19001/ready"
    )
