"""Random histories of connections: the final state of a hop, the number of its changes, and the memory it takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lasthop.edge.observe.observations import Observations
from lasthop.edge.observe.verdict import EVIDENCE_EXPIRY_SECONDS, LONGEST_RECOVERY
from lasthop.engine.plan.observation import Health
from tests.observed import HOP, A, B, World

POD_1, POD_2 = "pod-1", "pod-2"

EVENTS = st.one_of(
    st.tuples(st.just("succeeds"), st.sampled_from((A, B)), st.sampled_from((POD_1, POD_2)), st.booleans()),
    st.tuples(st.just("fails"), st.sampled_from((A, B)), st.sampled_from((POD_1, POD_2)), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from((0.3, 2.0, 15.0, 400.0))),
    st.tuples(st.just("changed"), st.sampled_from(("first", "second", "third"))),
)


def play(events: list[tuple[object, ...]]) -> World:
    world = World(POD_1, POD_2)
    for event in events:
        match event:
            case ("succeeds", str(address), str(proxy), bool(sampled)):
                world.succeeds(address, proxy, sampled=sampled)
            case ("fails", str(address), str(proxy), bool(logged)):
                world.fails(address, proxy=proxy, logged=logged)
            case ("wait", float(seconds)):
                world.wait(seconds)
            case ("changed", str(config)):
                world.config = config
    return world


@given(st.lists(EVENTS, max_size=40))
def test_a_settled_history_is_judged_as_by_a_later_observer(events: list[tuple[object, ...]]) -> None:
    """Except for single failures beside successes, whose order only the observer of the whole history knows."""
    world = play([*events, ("wait", LONGEST_RECOVERY + 10.0)])
    fresh = Observations()
    for tally in world.tallies.values():
        fresh.heard(tally.report(world.now), world.now)
    fresh.step(world.now)
    seen = [endpoint for tally in world.tallies.values() for endpoint in tally.report(world.now).hops[HOP].endpoints]
    of_now = [endpoint for endpoint in seen if endpoint.config == world.config]
    if all(endpoint.in_a_row != 1 for endpoint in of_now) or not any(endpoint.last_success for endpoint in of_now):
        ours, theirs = world.state, fresh.state(HOP, world.config)
        assert (ours.health, ours.failures, ours.working) == (theirs.health, theirs.failures, theirs.working)


@given(st.lists(EVENTS, max_size=40))
def test_silence_ends_everything(events: list[tuple[object, ...]]) -> None:
    world = play([*events, ("wait", EVIDENCE_EXPIRY_SECONDS + 1.0)])
    assert world.state.health is Health.UNTRIED


@given(st.lists(EVENTS, max_size=60))
def test_only_observed_failures_and_successes_are_reported(events: list[tuple[object, ...]]) -> None:
    world = play([*events, ("wait", 10.0)])
    for config in ("first", "second", "third"):
        tried = {(key[2], counts[0] > 0, counts[1] > 0) for key, counts in world.connections.items() if key[0] == config}
        state = world.observations.state(HOP, config)
        failing = {address for failure in state.failures for address in failure.endpoints}
        assert failing <= {address for address, _, bad in tried if bad}
        assert set(state.working) <= {address for address, good, _ in tried if good}
        assert bool(state.failures) == state.health.bad


@given(st.lists(st.sampled_from(("succeeds", "fails")), min_size=20, max_size=200), st.sampled_from((0.2, 1.0, 4.0)))
def test_reports_change_seldom_for_any_behaviour_of_a_backend(outcomes: list[str], pause: float) -> None:
    """A failure needs 5 s, and each return takes longer than the last."""
    world = World()
    for outcome in outcomes:
        getattr(world, outcome)()
        world.wait(pause)
    assert len(world.healths) <= 3 + len(outcomes) * pause / 10
