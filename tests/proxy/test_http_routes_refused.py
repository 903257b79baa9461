"""Rules that cannot be fulfilled: they respond with 500, the rest serves, and Envoy receives nothing that it would reject."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy.documents import Document
from tests.proxy.echo import (
    Echo,
    ask,
    echo,
    full_path,
    mirror,
    redirect,
    request_headers,
    response_headers,
    rewrite,
    rule,
    rules,
    service,
    to,
)
from tests.proxy.lasthop import Lasthop

HOST = "refused.test"
GOOD = [to("refused")]
EXTENSION = {"type": "ExtensionRef", "extensionRef": {"group": "foreign.example", "kind": "Filter", "name": "x"}}

# name: the rule, the reason, and a word of the message
REFUSED: dict[str, tuple[Document, str, str]] = {
    "twice": (rule("/bad", request_headers(set={"x-a": "1"}, remove=["X-A"]), to=GOOD), "IncompatibleFilters", "x-a"),
    "twice-out": (rule("/bad", response_headers(set={"x-a": "1"}, add={"x-A": "2"}), to=GOOD), "IncompatibleFilters", "x-a"),
    "redirect-and-mirror": (rule("/bad", redirect(port=1), mirror("refused")), "IncompatibleFilters", "mirror"),
    "host": (rule("/bad", request_headers(set={"Host": "x"}), to=GOOD), "UnsupportedValue", "URLRewrite"),
    "no-header": (rule("/bad", request_headers(remove=["not a header\n"]), to=GOOD), "UnsupportedValue", "header"),
    "pseudo": (rule("/bad", request_headers(remove=[":path"]), to=GOOD), "UnsupportedValue", ":path"),
    "no-path": (rule("/bad", redirect(path=full_path("/a\nb"))), "UnsupportedValue", "path"),
    "query-in-path": (rule("/bad", rewrite(path=full_path("/a?b")), to=GOOD), "UnsupportedValue", "path"),
    "on-backend": (rule("/bad", to=[to("refused", filters=[mirror("refused")])]), "UnsupportedValue", "RequestMirror"),
}


@pytest.fixture(scope="module")
def backend(gateway: Lasthop) -> Iterator[Echo]:
    with echo("refused") as running:
        gateway.load("refused-services.yaml", *service("refused", running.port))
        yield running
        assert "refused configuration" not in gateway.log


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_that_cannot_be_done_answers_500_and_the_others_serve(gateway: Lasthop, backend: Echo, name: str) -> None:
    bad, reason, word = REFUSED[name]
    gateway.load("refused.yaml", rules("refused", rule("/", to=GOOD), bad))
    assert ask(gateway, HOST, "/bad/x").status == 500
    assert ask(gateway, HOST, "/good").seen["backend"] == "refused"
    conditions = gateway.conditions("HTTPRoute", "refused")
    assert conditions["Accepted"][0] == "True"
    status, why, message = conditions["PartiallyInvalid"]
    assert (status, why) == ("True", reason)
    assert message.startswith("Dropped Rule") and "rules[1]" in message and word in message
    gateway.load("refused.yaml", rules("refused", bad))
    assert ask(gateway, HOST, "/bad/x").status == 500
    assert gateway.conditions("HTTPRoute", "refused")["Accepted"][:2] == ("False", reason)
    assert "PartiallyInvalid" not in gateway.conditions("HTTPRoute", "refused")


def test_an_unknown_filter_is_an_unresolved_reference(gateway: Lasthop, backend: Echo) -> None:
    gateway.load("refused.yaml", rules("refused", rule("/", to=GOOD), rule("/bad", EXTENSION, to=GOOD)))
    assert (ask(gateway, HOST, "/bad").status, ask(gateway, HOST, "/good").status) == (500, 200)
    conditions = gateway.conditions("HTTPRoute", "refused")
    assert conditions["Accepted"][0] == "True"
    assert conditions["ResolvedRefs"][:2] == ("False", "InvalidKind")


@pytest.mark.parametrize(
    "match",
    [
        {"path": {"type": "RegularExpression", "value": "/(unclosed"}},
        {"path": {"type": "RegularExpression", "value": ""}},
        {"path": {"type": "RegularExpression", "value": "/(?=look-ahead)"}},
        {"headers": [{"name": "x-a", "type": "RegularExpression", "value": "(unclosed"}]},
        {"queryParams": [{"name": "a", "type": "RegularExpression", "value": "*"}]},
    ],
)
def test_a_bad_regular_expression_is_not_sent_to_envoy(gateway: Lasthop, backend: Echo, match: Document) -> None:
    """It matches nothing; what else its rule matches answers 500; the other rules and the next edit are served."""
    several = {"matches": [match, {"path": {"value": "/bad"}}], "backendRefs": GOOD}
    gateway.load("refused.yaml", rules("refused", rule("/", to=GOOD), several))
    assert ask(gateway, HOST, "/good?a=b", headers={"x-a": "(unclosed"}).status == 200
    assert ask(gateway, HOST, "/bad").status == 500
    conditions = gateway.conditions("HTTPRoute", "refused")
    assert conditions["PartiallyInvalid"][:2] == ("True", "UnsupportedValue")
    assert "refused configuration" not in gateway.log


def test_a_large_regular_expression_is_taken(gateway: Lasthop, backend: Echo) -> None:
    match = {"path": {"type": "RegularExpression", "value": "/([a-z]{1,200}|[0-9]{1,200})/(x|y|z)*"}}
    gateway.load("refused.yaml", rules("refused", {"matches": [match], "backendRefs": GOOD}))
    assert ask(gateway, HOST, "/abc/xyz").status == 200
    assert ask(gateway, HOST, "/ABC/xyz").status == 404


def test_an_invalid_share_of_the_weights_answers_500_and_the_rest_flows(gateway: Lasthop, backend: Echo) -> None:
    refs = [to("refused", weight=3), to("not-there", weight=1)]
    refs += [{**to("refused", weight=1), "group": "foreign.example", "kind": "Thing"}, to("not-there-either", weight=0)]
    gateway.load("refused.yaml", rules("refused", rule("/", to=refs)))
    answers = [ask(gateway, HOST).status for _ in range(200)]
    assert set(answers) == {200, 500}
    assert abs(answers.count(500) / 200 - 2 / 5) < 0.15
    gateway.load("refused.yaml", rules("refused", rule("/", to=[])))
    assert ask(gateway, HOST).status == 500
