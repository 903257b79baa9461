"""Label selectors, compared with apimachinery's LabelSelectorAsSelector and its tests."""

from __future__ import annotations

import pytest

from lasthop.base.api.gateway import LabelSelector, LabelSelectorRequirement, ListenerNamespaces, RouteNamespaces
from lasthop.base.api.meta import StringMap
from lasthop.engine.resolve.gateways.allowed_listeners import invalid_selector, namespaces_problem, selects

EVERYTHING = (
    StringMap(),
    StringMap({"team": "blue"}.items()),
    StringMap({"team": ""}.items()),
    StringMap({"a/b": "c", "team": "red"}.items()),
)


def wanting(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key, operator, values),))


def labelled(key: str, value: str) -> LabelSelector:
    return LabelSelector(match_labels=StringMap({key: value}.items()))


INVALID = {
    "In without values": (wanting("team", "In"), "operator In needs values"),
    "NotIn without values": (wanting("team", "NotIn"), "operator NotIn needs values"),
    "Exists with values": (wanting("team", "Exists", "blue"), "operator Exists takes no values"),
    "DoesNotExist with values": (wanting("absent", "DoesNotExist", "blue"), "operator DoesNotExist takes no values"),
    "Exists with an empty value": (wanting("team", "Exists", ""), "operator Exists takes no values"),
    "an operator of another case": (wanting("team", "notin", "red"), "operator notin is not one of"),
    "no operator": (wanting("team", "", "red"), "operator '' is not one of"),
    "an operator of the text form": (wanting("team", "!=", "red"), "operator '!=' is not one of"),
    "an empty key": (wanting("", "DoesNotExist"), "'' is not a label key"),
    "a key with a space": (wanting("te am", "DoesNotExist"), "'te am' is not a label key"),
    "a key with a final newline": (wanting("team\n", "DoesNotExist"), r"'team\n' is not a label key"),
    "a key without a prefix": (wanting("/team", "DoesNotExist"), "'/team' is not a label key"),
    "a key without a name": (wanting("example.com/", "DoesNotExist"), "'example.com/' is not a label key"),
    "a key with two slashes": (wanting("a/b/c", "DoesNotExist"), "'a/b/c' is not a label key"),
    "a key with a prefix in upper case": (wanting("Example.com/team", "DoesNotExist"), "is not a label key"),
    "a key that is too long": (wanting("k" * 64, "DoesNotExist"), "is not a label key"),
    "a prefix that is too long": (wanting("p" * 254 + "/k", "DoesNotExist"), "is not a label key"),
    "a key of foreign letters": (wanting("ťeam", "DoesNotExist"), "is not a label key"),
    "a value with a slash": (wanting("team", "NotIn", "a/b"), "'a/b' is not a label value"),
    "a later value": (wanting("team", "NotIn", "red", "-x"), "'-x' is not a label value"),
    "a value with a final newline": (wanting("team", "NotIn", "red\n"), r"'red\n' is not a label value"),
    "a value that is too long": (wanting("team", "NotIn", "v" * 64), "is not a label value"),
    "a label's key": (labelled("te am", "blue"), "matchLabels: 'te am' is not a label key"),
    "a label's value": (labelled("team", "b lue"), "matchLabels: 'b lue' is not a label value"),
}


@pytest.mark.parametrize("selector, text", INVALID.values(), ids=INVALID)
def test_an_invalid_selector_selects_nothing_and_is_a_problem(selector: LabelSelector, text: str) -> None:
    assert text in invalid_selector(selector)
    assert not any(selects(selector, labels) for labels in EVERYTHING)
    for rule in (RouteNamespaces("Selector", selector), ListenerNamespaces("Selector", selector)):
        problem = namespaces_problem(rule)
        assert problem is not None and text in problem.message


@pytest.mark.parametrize("selector, _", INVALID.values(), ids=INVALID)
def test_one_invalid_requirement_among_valid_ones_selects_nothing(selector: LabelSelector, _: str) -> None:
    valid = LabelSelectorRequirement("other", "DoesNotExist")
    joined = LabelSelector(selector.match_labels, (valid, *selector.match_expressions))
    assert invalid_selector(joined).startswith(("matchExpressions[1]: ", "matchLabels: "))
    assert not any(selects(joined, labels) for labels in EVERYTHING)


BLUE, NONE = StringMap({"team": "blue"}.items()), StringMap()
VALID = {
    "nothing": (LabelSelector(), True, True),
    "In": (wanting("team", "In", "red", "blue"), True, False),
    "In, another": (wanting("team", "In", "red"), False, False),
    "NotIn": (wanting("team", "NotIn", "blue"), False, True),
    "NotIn, another": (wanting("team", "NotIn", "red"), True, True),
    "NotIn, the empty value": (wanting("team", "NotIn", ""), True, True),
    "Exists": (wanting("team", "Exists"), True, False),
    "DoesNotExist": (wanting("team", "DoesNotExist"), False, True),
    "labels": (labelled("team", "blue"), True, False),
    "labels, another": (labelled("team", "red"), False, False),
    "the longest key and value": (wanting("p" * 253 + "/" + "k" * 63, "NotIn", "v" * 63), True, True),
}


@pytest.mark.parametrize("selector, blue, unlabelled", VALID.values(), ids=VALID)
def test_a_valid_selector_selects_as_kubernetes_does(selector: LabelSelector, blue: bool, unlabelled: bool) -> None:
    assert invalid_selector(selector) == "" and namespaces_problem(RouteNamespaces("Selector", selector)) is None
    assert (selects(selector, BLUE), selects(selector, NONE)) == (blue, unlabelled)


@pytest.mark.parametrize("from_", ["All", "Same", "None"])
def test_a_selector_that_is_not_in_use_is_not_judged(from_: str) -> None:
    assert namespaces_problem(RouteNamespaces(from_, wanting("team", "NotIn"))) is None


def test_a_rule_that_names_no_known_source_of_namespaces_is_a_problem() -> None:
    assert namespaces_problem(RouteNamespaces("Selector")) is not None
    assert namespaces_problem(RouteNamespaces("all")) is not None
