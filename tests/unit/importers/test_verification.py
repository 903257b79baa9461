"""Decisions about imported backends: their required fields; none results in weaker verification than the old gateway's."""

from __future__ import annotations

import pytest

from lasthop_import.decisions import Decision, DecisionError, read_decisions
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, Name
from lasthop_import.rule_hops import HopPort
from lasthop_import.writer.trust import PolicyAnchors
from lasthop_import.writer.verification import as_before, as_decided

PORT = HopPort("Service", "shop", "api", 443)
USABLE = PolicyAnchors(system=True)


def decided(*lines: str) -> Decision:
    text = "".join(f"  {line}\n" for line in ("port: shop/api:443", *lines)).replace("  port", "- port", 1)
    return read_decisions("decisions.yaml", f"backends:\n{text}".encode()).by_port["shop/api:443"]


@pytest.mark.parametrize("answer", ["plaintext: true", "waive: All"])
@pytest.mark.parametrize("reason", ["", "reason: ''", "reason: '  '"])
def test_plaintext_and_waivers_need_a_reason(answer: str, reason: str) -> None:
    with pytest.raises(DecisionError, match="needs a reason"):
        decided(answer, "expires: never", *filter(None, [reason]))
    assert decided(answer, "expires: never", "reason: in a mesh").reason == "in a mesh"


@pytest.mark.parametrize("pin", ["{certificates: [leaf.pem]}", f"{{pins: ['{'a' * 64}']}}"])
def test_a_ca_and_a_pin_exclude_each_other(pin: str) -> None:
    with pytest.raises(DecisionError, match="exclude each other"):
        decided("ca: {system: true}", f"pin: {pin}", "hostname: api.example")
    assert decided(f"pin: {pin}").names_trust
    assert decided("ca: {system: true}").names_trust


@pytest.mark.parametrize(
    "decision", [Decision("shop/api:443", hostname="api.example"), Decision("shop/api:443", waive="Names")]
)
def test_a_decision_whose_ca_cannot_be_used_stays_open(decision: Decision) -> None:
    """Or a policy, or a waiver of names, would have nothing to hold the chain against."""
    broken = PolicyAnchors(problem="the CA cannot be read", reason="ca-missing")
    policy_decided = as_decided(PORT, HopTLS(OldLevel.UNVERIFIED, "off"), decision, broken, ())
    assert (policy_decided.new.todo, policy_decided.reason, policy_decided.waives) == (True, "ca-missing", "")
    assert "the CA cannot be read" in policy_decided.text
    assert not as_decided(PORT, HopTLS(OldLevel.UNVERIFIED, "off"), decision, USABLE, ()).open


@pytest.mark.parametrize(
    ("names", "open_"), [(["*.shop.example"], True), (["a.example", "b.example"], True), (["a.example"], False)]
)
def test_a_host_with_several_names_is_not_a_name_to_verify(names: list[str], open_: bool) -> None:
    """The old gateway checked the one name of the request; a wildcard would accept any of them."""
    tls = HopTLS(OldLevel.HOST_NAME, "the Host", names=tuple(map(Name, names)))
    converted = as_before(PORT, tls, USABLE)
    assert converted.open is open_
    assert converted.reason == ("several-names" if open_ else "")
