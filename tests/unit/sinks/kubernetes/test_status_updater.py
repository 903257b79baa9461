"""The leader's writes to the cluster: statuses that do not flap, and significant Events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.base.api.status import ConditionStatus, GatewayStatus
from lasthop.edge.kubernetes.observed import ObservedStatus, ObservedStatuses
from lasthop.edge.sinks.kubernetes.status_updater import SETTLING, StatusUpdater, Transition, transitions
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, FindingChanges
from tests.clock import Clock
from tests.fake_api import FakeApi, client_of, until
from tests.metrics import counts

GATEWAY, OTHER = Key("Gateway", "shop", "gw"), Key("Gateway", "shop", "other")
POLICY = Key("BackendTLSPolicy", "shop", "erp")
LATER = Finding(POLICY, reasons.NOT_REACHED, "nothing leads to it")
"""Comes after what must not be told, and is told."""
FINDING = Finding(POLICY, reasons.INVALID_CA_CERTIFICATE_REF, "ConfigMap shop/ca does not exist", "Create it.")


def mk_status(programmed: str, reason: str) -> GatewayStatus:
    return GatewayStatus(conditions=(ConditionStatus("Programmed", programmed, reason, observed_generation=1),))


def standing(api: FakeApi, gateway: Key = GATEWAY) -> str:
    conditions = api.get("gateways", gateway.name, "shop")["status"]["conditions"]
    status: str = next(c["status"] for c in conditions if c["type"] == "Programmed")
    return status


@asynccontextmanager
async def writing(api: FakeApi, programmed: str = "True") -> AsyncIterator[tuple[StatusUpdater, Clock]]:
    observed, clock = ObservedStatuses(), Clock(1000.0)
    observed.versions["Gateway"] = "v1"
    for key, status in ((GATEWAY, programmed), (OTHER, "Unknown")):
        condition = {"type": "Programmed", "status": status, "reason": "Programmed", "observedGeneration": 1}
        metadata = {"name": key.name, "namespace": key.namespace}
        obj = api.put("gateways", {"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}})
        observed.observe(key, ObservedStatus(obj["metadata"]["resourceVersion"], msgspec.json.encode(obj["status"]), 1))
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        updater = StatusUpdater(
            client,
            observed,
            identity="a",
            namespace="system",
            uid_of=lambda key: f"uid of {key.name}",
            patience=0.02,
            clock=clock,
        )
        task = tasks.create_task(updater.run())
        await until(lambda: updater.elector.leading)
        yield updater, clock
        task.cancel()


async def test_a_new_leader_does_not_say_that_a_gateway_is_down_before_it_has_listened(api: FakeApi) -> None:
    async with writing(api) as (updater, clock):
        updater.status_changed({GATEWAY: mk_status("False", "Pending"), OTHER: mk_status("False", "Pending")})
        await until(lambda: standing(api, OTHER) == "False")  # which was looked at after it
        assert standing(api) == "True" and updater.writer.pending
        updater.status_changed({GATEWAY: mk_status("True", "Programmed")})
        await until(lambda: not updater.writer.pending)
        assert len(api.asked("update", "gateways")) == 1, "it is as it was"

        clock.now += SETTLING
        updater.status_changed({GATEWAY: mk_status("False", "Pending")})
        await until(lambda: standing(api) == "False")


@pytest.mark.parametrize("key", [GATEWAY, Key("ListenerSet", "shop", "more")], ids=str)
async def test_a_new_leader_delays_only_what_it_may_not_have_heard_yet(api: FakeApi, key: Key) -> None:
    def standing(status: str, reason: str) -> dict[str, Any]:
        return {"conditions": [{"type": "Programmed", "status": status, "reason": reason}]}

    up = standing("True", "Programmed")
    async with writing(api) as (updater, clock):
        for reason in ("Pending", "AddressNotAssigned", "ParentNotProgrammed"):
            assert updater.premature(key, up, standing("False", reason)), reason
            assert not updater.premature(key, standing("False", reason), up), "news"
        for reason in ("Invalid", "PortUnavailable", "ListenersNotValid", "NotAllowed"):
            assert not updater.premature(key, up, standing("False", reason)), reason
        clock.now += SETTLING
        assert not updater.premature(key, up, standing("False", "Pending"))


async def test_a_new_leader_keeps_observations_until_proxies_report_to_it(api: FakeApi) -> None:
    async with writing(api) as (updater, clock):
        seen, unheard = ({"ancestors": [connected(status)]} for status in ("True", "Unknown"))
        refused = {"ancestors": [connected("Unknown", accepted="False")]}
        assert updater.premature(POLICY, seen, unheard)
        assert not updater.premature(POLICY, unheard, seen), "news"
        assert not updater.premature(POLICY, seen, {"ancestors": [connected("False")]}), "also bad news"
        assert not updater.premature(POLICY, seen, refused), "there is more to tell"
        failing, silent = ({"parents": [of_route(*conditions)]} for conditions in (("BackendConnected",), ()))
        assert updater.premature(Key("HTTPRoute", "shop", "r"), failing, silent), "a route says nothing while nothing fails"
        clock.now += SETTLING
        assert not updater.premature(POLICY, seen, unheard)


def of_route(*failing: str) -> dict[str, Any]:
    conditions = [{"type": "Accepted", "status": "True"}, *({"type": type, "status": "False"} for type in failing)]
    return {"parentRef": {"name": "gw"}, "controllerName": CONTROLLER_NAME, "conditions": conditions}


def connected(status: str, accepted: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Accepted", "status": accepted}, {"type": "BackendConnected", "status": status}]
    return {"ancestorRef": {"name": "gw"}, "controllerName": CONTROLLER_NAME, "conditions": conditions}


async def test_certain_mistakes_are_reported_at_once(api: FakeApi) -> None:
    async with writing(api) as (updater, _):
        updater.status_changed({GATEWAY: mk_status("False", "Invalid")})
        await until(lambda: standing(api) == "False")


async def test_a_gateway_that_was_never_programmed_gets_its_status_at_once(api: FakeApi) -> None:
    async with writing(api, "Unknown") as (updater, _):
        updater.status_changed({GATEWAY: mk_status("False", "Pending")})
        await until(lambda: standing(api) == "False")
        assert api.events == [], "that is how every Gateway begins"
        updater.status_changed({GATEWAY: mk_status("True", "Programmed")})
        await until(lambda: bool(api.events))
        (event,) = api.events
        assert (event["reason"], event["type"], event["regarding"]["uid"]) == ("Programmed", "Normal", "uid of gw")


async def test_a_finding_that_lasts_becomes_an_event_and_so_does_its_end(api: FakeApi) -> None:
    async with writing(api) as (updater, _):
        updater.findings_changed(FindingChanges((FINDING,), ()))
        await until(lambda: len(api.events) == 1)
        (event,) = api.events
        assert (event["reason"], event["type"]) == ("InvalidCACertificateRef", "Warning")
        assert event["note"] == "ConfigMap shop/ca does not exist Create it."
        updater.findings_changed(FindingChanges((), (FINDING,)))
        await until(lambda: len(api.events) == 2)
        assert {event["reason"] for event in api.events} == {"InvalidCACertificateRef", "Resolved"}


async def test_a_momentary_finding_causes_no_event(api: FakeApi) -> None:
    async with writing(api) as (updater, _):
        updater.findings_changed(FindingChanges((FINDING,), ()))
        updater.findings_changed(FindingChanges((), (FINDING,)))
        updater.findings_changed(FindingChanges((LATER,), ()))
        await until(lambda: bool(api.events))
        assert [event["reason"] for event in api.events] == [LATER.reason]


async def test_a_condition_is_not_repeated_as_a_finding(api: FakeApi) -> None:
    degraded = Finding(POLICY, reasons.VERIFICATION_DEGRADED, "nothing is checked")
    async with writing(api) as (updater, _):
        updater.findings_changed(FindingChanges((degraded, FINDING), ()))
        await until(lambda: len(api.events) == 1)
        updater.findings_changed(FindingChanges((LATER,), (degraded, FINDING)))
        await until(lambda: len(api.events) == 3)
        assert {event["reason"] for event in api.events} == {"InvalidCACertificateRef", "Resolved", LATER.reason}


async def test_only_the_leader_writes_events(api: FakeApi) -> None:
    async with client_of(api) as client:
        updater = StatusUpdater(
            client, ObservedStatuses(), identity="b", namespace="system", uid_of=lambda key: "uid", patience=0.02
        )
        updater.findings_changed(FindingChanges((FINDING,), ()))
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, over.set)  # after the finding's own timer
        await over.wait()
        assert counts(updater.events.counts) == {} and api.events == []


def mk_conditions(**conditions: str) -> dict[str, Any]:
    return {
        "conditions": [{"type": type, "status": status, "reason": "R", "message": "m"} for type, status in conditions.items()]
    }


def test_transitions_between_two_statuses() -> None:
    assert transitions({}, mk_conditions(Programmed="False", ResolvedRefs="False")) == []
    assert transitions(mk_conditions(Programmed="Unknown"), mk_conditions(Programmed="True")) == [
        Transition("Programmed", "m")
    ]
    lost = transitions(mk_conditions(Programmed="True"), mk_conditions(Programmed="False"))
    assert lost == [Transition("NotProgrammed", "R: m", warning=True)]
    assert transitions(mk_conditions(Programmed="True"), mk_conditions(Programmed="True")) == []


def test_the_begin_and_the_end_of_degraded_verification_are_reported() -> None:
    def at_gateway(*types: str) -> dict[str, Any]:
        conditions = [{"type": type, "status": "True", "message": "by Waiver old"} for type in types]
        ours = {"ancestorRef": {"name": "gw"}, "controllerName": "lasthop.dev/gateway-controller", "conditions": conditions}
        return {"ancestors": [{**ours, "controllerName": "another.example/controller"}, ours]}

    begun = transitions(at_gateway(), at_gateway("VerificationDegraded"))
    assert begun == [Transition("VerificationDegraded", "at Gateway gw: by Waiver old", warning=True)]
    over = transitions(at_gateway("VerificationDegraded"), at_gateway())
    assert over == [Transition("VerificationDegradedOver", "at Gateway gw: no longer the case")]
