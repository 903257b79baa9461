"""The bench of the control plane: what it assumes of Lasthop. Nothing is measured here."""

from __future__ import annotations

from bench.control.fleet import PROXIES
from bench.goals import GOALS
from lasthop.edge.xds.budget import MAX_STREAMS


def test_the_simulated_proxies_and_the_real_one_fit_into_the_budget_of_a_gateway() -> None:
    """One more is refused, and ends the bench."""
    assert PROXIES <= MAX_STREAMS
    assert ("control", f"{PROXIES} proxies: policy edit received by all") in GOALS
