"""Absence of a policy is proven before a port becomes plaintext, for any behaviour of the API server and any order of
events."""

from __future__ import annotations

import asyncio

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.sources.kubernetes import source as sources
from lasthop.engine.resolve.settings import installed
from lasthop.run import controller as controllers
from tests.fake_api import GATEWAY as GROUP
from tests.fake_api import FakeApi, Refusal, until
from tests.unit.proving import POLICIES, base, controlling, put_hop, put_policy, put_route, put_service

V1, V1ALPHA2 = (GROUP, "v1", POLICIES), (GROUP, "v1alpha2", POLICIES)
GATEWAYS = (GROUP, "v1", "gateways")
CRDS = "customresourcedefinitions"
CRD = f"{POLICIES}.{GROUP}"
UNKNOWN = "an unread BackendTLSPolicy may target this port"
FORBIDDEN = Refusal(403, "Forbidden", "User x cannot list backendtlspolicies")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "PROOF_TIMEOUT", 0.3)


def shop(api: FakeApi) -> None:
    """Puts a plaintext and a verified backend."""
    base(api)
    put_hop(api, "plain")
    put_policy(api, "safe")
    put_hop(api, "safe")


def forbid(api: FakeApi) -> None:
    for verb in ("list", "watch"):
        api.fail(verb, POLICIES, "*", FORBIDDEN)


async def test_a_start_lists_the_policies_once_and_closes_nothing_that_was_plaintext(api: FakeApi) -> None:
    shop(api)
    put_hop(api, "other")
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        assert site.history == {"plain": ["plaintext"], "other": ["plaintext"], "safe": ["verified"]}
        [query] = api.asked("list", POLICIES)
        assert "resourceVersion" not in query, "that list could be old"
        [accept] = api.accepted["list", POLICIES]
        assert "PartialObjectMetadataList" in accept
        assert {reason for reasons in site.reasons.values() for reason in reasons} == {"ResolvedRefs"}


async def test_nothing_is_programmed_before_the_list_of_the_start_has_been_answered(api: FakeApi) -> None:
    shop(api)
    api.gates["list", POLICIES] = asyncio.Event()
    async with controlling(api) as site:
        await until(lambda: api.asked("list", POLICIES))
        for number in range(3):  # a tenant who keeps adding hops does not delay the start
            put_hop(api, f"new{number}")
            await asyncio.sleep(0.02)
        assert not site.controller.loaded.is_set()
        api.gates["list", POLICIES].set()
        await until(site.controller.loaded.is_set)
        assert len(api.asked("list", POLICIES)) == 1
        assert site.mode("new0") in ("none", "closed"), "they came after the request"
        await site.becomes("new0", "plaintext")


async def test_a_policy_that_comes_during_the_list_of_the_start_counts(api: FakeApi) -> None:
    shop(api)
    api.gates["list", POLICIES] = asyncio.Event()
    async with controlling(api) as site:
        await until(lambda: api.asked("list", POLICIES))
        put_policy(api, "plain")
        await until(lambda: site.source.observed.get(Key("BackendTLSPolicy", "shop", "plain")))
        api.gates["list", POLICIES].set()
        await site.becomes("plain", "tls")
        assert site.history["plain"] == ["verified"]


async def test_nothing_is_programmed_before_every_kind_is_read_or_absent(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(api)
    api.served -= {GATEWAYS}
    monkeypatch.setattr(sources, "RETRY", 0.02)
    async with controlling(api, discovery_interval=3600.0) as site:
        await until(lambda: api.discoveries > 2)
        assert not site.controller.loaded.is_set(), "proxies would lose everything"
        api.served |= {GATEWAYS}
        await site.becomes("safe", "tls")


async def test_new_hops_are_proven_by_one_list_and_their_routes_never_report_otherwise(api: FakeApi) -> None:
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        before = len(api.asked("list", POLICIES))
        for number in range(20):
            put_hop(api, f"n{number}")
        for number in range(20):
            await site.becomes(f"n{number}", "plaintext")
        assert len(api.asked("list", POLICIES)) <= before + 3
        await until(lambda: len(site.reasons) == 22)
        assert {reason for reasons in site.reasons.values() for reason in reasons} == {"ResolvedRefs"}


async def test_a_policy_that_is_heard_after_the_route_that_is_younger_is_waited_for(api: FakeApi) -> None:
    """C3: each kind has its own watch and its own back-off."""
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        api.delay(POLICIES)
        put_policy(api, "late")
        put_hop(api, "late")
        await until(lambda: UNKNOWN in site.message("late"))
        assert site.mode("late") in ("none", "closed")
        put_hop(api, "other")  # one whose absence is proven by the same list waits for the same watch
        api.deliver(POLICIES)
        await site.becomes("late", "tls")
        await site.becomes("other", "plaintext")
        assert "plaintext" not in site.history["late"]


async def test_a_policy_that_was_deleted_after_the_list_is_not_waited_for(api: FakeApi) -> None:
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        api.delay(POLICIES)
        put_policy(api, "brief")
        put_hop(api, "brief")
        await until(lambda: UNKNOWN in site.message("brief"))
        api.delete(POLICIES, "brief", "shop")
        before = len(api.asked("list", POLICIES))
        api.deliver(POLICIES)
        await site.becomes("brief", "plaintext")
        assert len(api.asked("list", POLICIES)) <= before + 1


async def test_a_proof_counts_only_for_the_occasion_that_it_was_requested_for(api: FakeApi) -> None:
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        before, gate = len(api.asked("list", POLICIES)), asyncio.Event()
        api.gates["list", POLICIES] = gate
        put_hop(api, "x")
        await until(lambda: len(api.asked("list", POLICIES)) == before + 1)
        put_policy(api, "x")
        await site.becomes("x", "tls")
        api.delete(POLICIES, "x", "shop")
        await until(lambda: site.history["x"][-1] != "verified")
        assert site.history["x"].count("plaintext") == 0
        gate.set()
        await site.becomes("x", "plaintext")
        assert len(api.asked("list", POLICIES)) >= before + 2


async def test_a_deleted_policy_leads_to_plaintext_without_a_gap(api: FakeApi) -> None:
    shop(api)
    async with controlling(api) as site:
        await site.becomes("safe", "tls")
        gate = api.gates["list", POLICIES] = asyncio.Event()
        before = len(api.asked("list", POLICIES))
        api.delete(POLICIES, "safe", "shop")
        await until(lambda: len(api.asked("list", POLICIES)) > before)
        assert site.mode("safe") == "tls", "what is programmed stays while the proof is under way"
        gate.set()
        await site.becomes("safe", "plaintext")
        assert set(site.reasons["safe"]) == {"ResolvedRefs"}


async def test_a_deleted_policy_closes_the_port_if_absence_cannot_be_proven(api: FakeApi) -> None:
    shop(api)
    async with controlling(api) as site:
        await site.becomes("safe", "tls")
        api.fail("list", POLICIES, "*", FORBIDDEN)
        api.delete(POLICIES, "safe", "shop")
        await site.becomes("safe", "closed")
        assert "User x cannot list" in site.message("safe")
        api.faults.clear()
        await site.becomes("safe", "plaintext")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (FORBIDDEN, "403 Forbidden"),
        (Refusal(401, "Unauthorized"), "401 Unauthorized"),
        (Refusal(410, "Expired"), "410 Expired"),
        (Refusal(503, "ServiceUnavailable"), "503 ServiceUnavailable"),
        ("reset", "Reset"),
    ],
)
async def test_while_policies_cannot_be_listed_new_hops_are_closed_and_the_rest_stays(
    api: FakeApi, fault: Refusal | str, message: str
) -> None:
    """C1."""
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        for verb in ("list", "watch"):
            api.fail(verb, POLICIES, "*", fault)
        api.end(POLICIES)
        put_hop(api, "new")
        await until(lambda: message in site.message("new"))
        assert "BackendTLSPolicies cannot be listed" in site.message("new")
        assert (site.mode("plain"), site.mode("safe")) == ("plaintext", "tls") and site.mode("new") in ("none", "closed")
        assert any(finding.reason == "PoliciesUnknown" for finding in site.controller.findings())
        api.faults.clear()
        await site.becomes("new", "plaintext")
        await until(lambda: not site.controller.source_findings)
        assert site.history["plain"] == ["plaintext"] and site.history["safe"] == ["verified"]


async def test_a_crd_that_serves_only_a_version_we_cannot_read_is_unknown(api: FakeApi) -> None:
    """C2."""
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        api.served -= {V1}
        api.served |= {V1ALPHA2}
        api.end(POLICIES)
        put_hop(api, "new")
        await until(lambda: "serves only v1alpha2" in site.message("new"))
        await until(lambda: any(finding.reason == "NotServed" for finding in site.controller.source_findings))
        await until(lambda: "serves only v1alpha2" in site.message("lasthop"), within=10.0)
        assert (site.mode("plain"), site.mode("safe")) == ("plaintext", "tls") and site.mode("new") in ("none", "closed")
        api.served |= {V1}
        await site.becomes("new", "plaintext")
        await until(lambda: not site.controller.source_findings and not site.message("lasthop"))
        assert site.history["safe"] == ["verified"]


async def test_a_start_with_a_crd_that_serves_only_a_version_we_cannot_read_programs_nothing(api: FakeApi) -> None:
    """N3, alpha2: running proxies keep what they have."""
    shop(api)
    api.served -= {V1}
    api.served |= {V1ALPHA2}
    async with controlling(api) as site:
        await until(lambda: any(finding.reason == "NotServed" for finding in site.source.findings()))
        assert not site.controller.loaded.is_set()
        api.served |= {V1}
        await site.becomes("safe", "tls")
        assert site.history["safe"] == ["verified"]


@pytest.mark.parametrize("missed", [1, 2])
async def test_a_discovery_that_misses_the_kind_at_the_start_is_not_believed(api: FakeApi, missed: int) -> None:
    """N3, cold404: the CRD exists, however often discovery misses it."""
    shop(api)
    api.overlooked.add(V1)
    async with controlling(api) as site:
        await until(lambda: not api.overlooked)
        if missed == 2:
            api.overlooked.add(V1)
        await site.becomes("safe", "tls")
        await site.becomes("plain", "plaintext")
        assert site.history["safe"] == ["verified"]


@pytest.mark.parametrize("answer", [FORBIDDEN, Refusal(503, "ServiceUnavailable")])
async def test_a_missing_kind_is_absent_only_by_a_404_of_its_crd(api: FakeApi, answer: Refusal) -> None:
    shop(api)
    api.served -= {V1}
    api.fail("get", CRDS, "*", answer)
    async with controlling(api) as site:
        await until(
            lambda: any("its CRD exists cannot be determined" in finding.message for finding in site.source.findings())
        )
        assert not site.controller.loaded.is_set()
        api.faults.clear()
        await site.becomes("safe", "plaintext")


async def test_without_the_right_to_look_at_the_crd_nothing_is_proven(api: FakeApi) -> None:
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        api.fail("get", CRDS, "*", Refusal(403, "Forbidden", "User x cannot get customresourcedefinitions"))
        put_hop(api, "new")
        await until(lambda: "exists cannot be determined: 403 Forbidden: User x cannot get" in site.message("new"))
        assert site.mode("new") in ("none", "closed") and site.mode("plain") == "plaintext"
        api.faults.clear()
        await site.becomes("new", "plaintext")


async def test_while_the_crd_is_gone_and_its_objects_are_still_listed_nothing_is_proven(api: FakeApi) -> None:
    """The server may have deleted the policies together with the CRD, perhaps only to replace it."""
    shop(api)
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        api.fail("get", CRDS, "*", Refusal(404, "NotFound"))
        put_hop(api, "new")
        await until(lambda: "is being deleted" in site.message("new"))
        assert site.mode("new") in ("none", "closed")
        api.faults.clear()
        await site.becomes("new", "plaintext")


async def test_a_crd_that_is_replaced_at_once_was_never_absent(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(api)
    monkeypatch.setattr(sources, "ABSENT_AFTER", 3600.0)
    monkeypatch.setattr(sources, "RETRY", 0.02)
    async with controlling(api, discovery_interval=3600.0) as site:
        await site.becomes("safe", "tls")
        discoveries = api.discoveries
        api.served -= {V1}
        api.end(POLICIES)
        await until(lambda: api.discoveries > discoveries + 3)
        put_hop(api, "new")
        await until(lambda: UNKNOWN in site.message("new"))
        api.served |= {V1}
        await site.becomes("new", "plaintext")
        assert site.history["safe"] == ["verified"]


async def test_the_wait_for_a_deleted_crd_begins_with_its_deletion(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it could not be read before."""
    shop(api)
    api.put(CRDS, {"metadata": {"name": CRD}})
    monkeypatch.setattr(sources, "RETRY", 0.02)
    async with controlling(api, discovery_interval=3600.0) as site:
        await site.becomes("safe", "tls")
        api.served -= {V1}
        api.end(POLICIES)
        await until(lambda: any("its CRD exists, and" in finding.message for finding in site.source.findings()))
        discoveries = api.discoveries
        api.delete(CRDS, CRD)
        await until(lambda: api.discoveries > discoveries + 2)
        api.served |= {V1}
        put_hop(api, "new")
        await site.becomes("new", "plaintext")
        assert site.history["safe"] == ["verified"]


async def test_a_crd_that_is_being_deleted_proves_nothing_and_one_that_is_gone_does(api: FakeApi) -> None:
    """H3: the server deletes the policies first."""
    shop(api)
    async with controlling(api) as site:
        await site.becomes("safe", "tls")
        api.put(CRDS, {"metadata": {"name": CRD, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        api.delete(POLICIES, "safe", "shop")
        await site.becomes("safe", "closed")
        assert "being deleted" in site.message("safe")
        assert site.mode("plain") == "plaintext"
        api.delete(CRDS, CRD)
        api.served -= {V1}
        api.end(POLICIES)
        await site.becomes("safe", "plaintext")
        put_hop(api, "new")
        await site.becomes("new", "plaintext")


async def test_a_crd_that_is_made_again_is_read_before_another_port_becomes_plaintext(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(api)
    api.served -= {V1}
    api.objects[POLICIES].clear()
    monkeypatch.setattr(sources, "ABSENT_AFTER", 0.05)
    monkeypatch.setattr(sources, "RETRY", 0.05)
    async with controlling(api, discovery_interval=3600.0) as site:
        await site.becomes("safe", "plaintext")
        discoveries = api.discoveries
        put_policy(api, "safe")
        put_policy(api, "new")
        api.put(CRDS, {"metadata": {"name": CRD}})  # discovery does not list it yet
        put_hop(api, "new")
        await until(lambda: "exists, and" in site.message("new"))
        assert site.mode("safe") == "plaintext", "it stays until the policies have been read"
        await until(lambda: api.discoveries > discoveries and installed(site.engine.graph, "BackendTLSPolicy"))
        api.served |= {V1}
        api.put(CRDS, {"metadata": {"name": CRD}, "status": {}})
        await site.becomes("safe", "tls")
        await site.becomes("new", "tls")
        assert "plaintext" not in site.history["new"]


async def test_a_policy_whose_targets_cannot_be_read_closes_new_ports_of_its_namespace_only(api: FakeApi) -> None:
    shop(api)
    api.put("namespaces", {"metadata": {"name": "other"}})
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        put_policy(api, "odd", targetRefs=[{"kind": 7}])
        await until(lambda: site.source.unknown()[1:])
        put_hop(api, "new")
        put_hop(api, "there", "other")
        await site.becomes("there", "plaintext", "other")
        await until(lambda: "the targets of BackendTLSPolicy shop/odd cannot be decoded" in site.message("new"))
        assert site.mode("new") in ("none", "closed") and site.mode("plain") == "plaintext"
        api.delete(POLICIES, "odd", "shop")
        await site.becomes("new", "plaintext")


async def test_a_policy_whose_targets_cannot_be_read_does_not_hold_up_the_start_of_others(api: FakeApi) -> None:
    shop(api)
    api.put("namespaces", {"metadata": {"name": "other"}})
    put_policy(api, "odd", targetRefs=[{"kind": 7}])
    put_hop(api, "there", "other")
    async with controlling(api) as site:
        await site.becomes("there", "plaintext", "other")
        assert site.mode("safe") == "tls" and site.mode("plain") in ("none", "closed")


async def test_a_namespace_whose_policies_may_not_be_listed_concerns_no_other_one(api: FakeApi) -> None:
    base(api)
    api.put("namespaces", {"metadata": {"name": "other"}})
    async with controlling(api, namespaces=("shop", "other")) as site:
        await until(site.controller.loaded.is_set)
        api.forbidden.add((POLICIES, "other"))
        put_hop(api, "here")
        put_hop(api, "there", "other")
        await site.becomes("here", "plaintext")
        await until(lambda: "403" in site.message("there"))
        assert site.mode("there", "other") in ("none", "closed")
        api.forbidden.clear()
        await site.becomes("there", "plaintext", "other")


async def test_a_tenant_whose_hops_wait_delays_no_edit_of_others(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "PROOF_TIMEOUT", 3600.0)
    shop(api)
    api.put("namespaces", {"metadata": {"name": "other"}})
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        api.gates["list", POLICIES] = asyncio.Event()
        put_hop(api, "new")
        put_route(api, "missing", "other")
        await until(lambda: site.reasons.get("missing") == ["BackendNotFound"])
        assert "new" not in site.reasons
        api.gates["list", POLICIES].set()
        await site.becomes("new", "plaintext")
        await until(lambda: site.reasons.get("new") == ["ResolvedRefs"])


async def test_5000_policies_are_listed_in_pages(api: FakeApi) -> None:
    base(api)
    for number in range(1100):
        put_policy(api, f"p{number}")
    put_hop(api, "plain")
    async with controlling(api) as site:
        await site.becomes("plain", "plaintext")
        assert [query.get("limit") for query in api.asked("list", POLICIES)] == ["500"] * 3


async def test_a_service_that_comes_after_its_route_is_proven_too(api: FakeApi) -> None:
    base(api)
    put_route(api, "late")
    async with controlling(api) as site:
        await until(lambda: site.reasons.get("late") == ["BackendNotFound"])
        put_service(api, "late")
        await site.becomes("late", "plaintext")
