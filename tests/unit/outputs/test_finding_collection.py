"""New and fixed findings, compared with the plain difference of all findings before and after."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.findings.collection import FindingCollection
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding

FINDINGS = [Finding(Key("Service", "shop", name), reasons.INVALID, "it is wrong") for name in "abcd"]
said = st.tuples(st.sampled_from("xyz"), st.lists(st.sampled_from(FINDINGS), max_size=3).map(tuple))


@given(st.lists(st.lists(said, max_size=6), max_size=6))
def test_changes_are_the_difference_of_all_findings_before_and_after(
    rounds: list[list[tuple[str, tuple[Finding, ...]]]],
) -> None:
    collection, by_who, before = FindingCollection(), dict[str, tuple[Finding, ...]](), set[Finding]()
    for round_ in rounds:
        for who, findings in round_:
            collection.replace(who, findings)
            by_who[who] = findings
        now = {finding for findings in by_who.values() for finding in findings}
        changes = collection.changes()
        assert (set(changes.new), set(changes.gone)) == (now - before, before - now)
        assert len(changes.new) + len(changes.gone) == len(now ^ before)
        assert list(collection.sorted()) == sorted(now)
        assert not collection.changes()
        before = now
