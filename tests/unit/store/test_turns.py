"""Members that are processed out of turn leave nothing behind: a stage that is clean is not asked for its turns."""

from __future__ import annotations

import pytest

from lasthop.engine.store.turns import Turns


@pytest.mark.parametrize("marks", [1, 3])
def test_a_clean_stage_remembers_no_member(marks: int) -> None:
    turns = Turns()
    for number in range(5):
        members = [("kind", f"{number}-{member}") for member in range(marks)]
        for member in members:
            turns.mark(member, "owner")
        assert turns.owners_of_new() == {"owner"}
        assert all(map(turns.drop, members)) and not turns.drop(members[0])
        assert not turns.dirty and not turns._queues and not turns._new
