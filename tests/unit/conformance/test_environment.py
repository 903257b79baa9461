from __future__ import annotations

from typing import Any

import pytest

from conformance.node.environment import Waiting, command, environment, expand, field
from tests.unit.conformance.objects import mk_container, mk_find, mk_pod, mk_secret


def env_of(*entries: dict[str, Any], **secrets: Any) -> dict[str, str]:
    container = mk_container(env=list(entries))
    return environment(mk_pod(container), container, {"PATH": "/bin"}, "10.244.1.1", mk_find(**secrets))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("$(A)", "1"), ("x$(A)y$(A)", "x1y1"), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$A", "$A"), ("$", "$"), ("$$$(A)", "$1")],
)
def test_variables_expand_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_later_entries_see_earlier_ones_and_field_refs() -> None:
    name = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert env_of(name, {"name": "URL", "value": "http://$(NAME):$(PORT)"})["URL"] == "http://web-1:$(PORT)"


def test_the_api_servers_address_is_in_every_environment() -> None:
    assert env_of()["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"


def test_a_missing_secret_is_waited_for_and_a_missing_optional_one_left_out() -> None:
    reference = {"name": "missing", "key": "k"}
    with pytest.raises(Waiting, match='secret "missing" not found'):
        env_of({"name": "A", "valueFrom": {"secretKeyRef": reference}})
    assert "A" not in env_of({"name": "A", "valueFrom": {"secretKeyRef": {**reference, "optional": True}}})


def test_a_key_of_a_secret_is_decoded() -> None:
    entry = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert env_of(entry, s=mk_secret(k="value"))["A"] == "value"


def test_fields_with_keys() -> None:
    assert field(mk_pod(), "metadata.labels['app']", "") == "web"
    assert field(mk_pod(), "metadata.labels", "") == 'app="web"'
    assert field(mk_pod(), "status.podIP", "10.244.1.1") == "10.244.1.1"


def test_command_replaces_the_entrypoint_and_args_follow_either() -> None:
    assert command(mk_container(args=["a"]), ("run",), {}) == ["run", "a"]
    assert command(mk_container(command=["$(X)"], args=["a"]), ("run",), {"X": "x"}) == ["x", "a"]
