"""A finding in words."""

from __future__ import annotations

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, with_remedy


@pytest.mark.parametrize("message", ["the port is closed", "the port is closed."])
def test_the_problem_and_the_remedy_are_two_sentences(message: str) -> None:
    finding = Finding(Key("Service", "shop", "api"), reasons.INVALID, message, "Open it.", field="spec")
    assert str(finding) == "Service shop/api, spec: the port is closed. Open it."


def test_a_question_needs_no_full_stop_and_a_message_alone_stays_as_it_is() -> None:
    assert with_remedy("did you mean api?", "Correct it.") == "did you mean api? Correct it."
    assert with_remedy("the port is closed", "") == "the port is closed"
