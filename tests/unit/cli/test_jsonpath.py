"""`-o jsonpath=PATH` of every command that has JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.cli.args.jsonpath import JSONPathError, lines, parse
from lasthop.cli.main import main
from tests.folders import lasthop

DOCUMENT = {
    "items": [{"name": "a", "n": 1}, {"name": "b", "more": {"x.y/z": True}}, {"n": None}],
    "empty": [],
    "text": "t",
}


@pytest.mark.parametrize(
    "path, values",
    [
        (".items[0].name", ["a"]),
        ("{.items[0].name}", ["a"]),
        ("$.items[0].name", ["a"]),
        ("items[-2].name", ["b"]),
        (".items[*].name", ["a", "b"]),
        (".items[*].n", ["1", "null"]),
        (".items[1].more['x.y/z']", ["true"]),
        (r".items[1].more.x\.y/z", ["true"]),
        (".items[0].*", ["a", "1"]),
        (".items[0]", ['{"name": "a", "n": 1}']),
        (".empty[*].name", []),
        (".", [json.dumps(DOCUMENT)]),
    ],
)
def test_a_path_leads_to_values(path: str, values: list[str]) -> None:
    assert list(lines(DOCUMENT, parse(path))) == values


@pytest.mark.parametrize(
    "path, words",
    [
        (".itmes", "the document has no .itmes; it has items, empty, text"),
        (".items[3].name", ".items has 3 items, so it has no [3]"),
        (".items.name", ".items is a list, so it has no .name; write .items[*].name"),
        (".items.itmes", ".items is a list, so it has no .itmes; write .items[*]"),
        (".text[0]", ".text is a text, so it has no [0]"),
        (".text[*]", ".text is a text, so it has no [*]"),
        (".items[*].nam", ".items[0] has no .nam; it has name, n"),
        (".items[1].more.x", ".items[1].more has no .x; it has x.y/z"),
        (".items[?(@.n==1)]", "cannot read [?(@.n==1)]"),
        ("{range .items[*]}", "cannot read  .items"),
        ("", "the path is missing"),
    ],
)
def test_an_error_names_the_place(path: str, words: str) -> None:
    with pytest.raises(JSONPathError) as error:
        list(lines(DOCUMENT, parse(path)))
    assert words in str(error.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab.'[", max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text("ab.*", min_size=1, max_size=3), below, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path or ".", value
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, f'{path}["{name}"]')


@given(JSON)
def test_every_value_of_a_document_has_a_path(document: Any) -> None:
    for path, value in places(document):
        assert list(lines(document, parse(path))) == [value if isinstance(value, str) else json.dumps(value)]


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for command_name in command.list_commands(context):
            if subcommand := command.get_command(context, command_name):
                yield from commands(subcommand, f"{name} {command_name}".strip())
    else:
        yield name, command


def test_every_command_with_json_documents_and_accepts_a_path() -> None:
    options = {
        name: next((option for option in command.params if "--output" in option.opts), None)
        for name, command in commands(main)
    }
    with_json = {
        name: option
        for name, option in options.items()
        if option and isinstance(option.type, click.Choice) and "json" in option.type.choices
    }
    assert {"status", "check", "audit", "probe", "pin", "ps", "version"} <= set(with_json)
    for name, option in with_json.items():
        context = click.Context(main)
        assert option.type.convert("jsonpath=.a", option, context) == "json", name
        assert "jsonpath=PATH" in (option.make_metavar(context) or ""), name


def test_commands_print_what_the_path_chooses(tmp_path: Path) -> None:
    assert lasthop("version", "-o", "jsonpath={.lasthop}").stdout == f"{version('lasthop')}\n"
    (tmp_path / "a.yaml").write_text("kind: Gateway\n")
    result = lasthop("check", str(tmp_path), "-o", "jsonpath=.findings[*].line")
    assert (result.exit_code, result.stdout.split()) == (1, ["1", "1"])
    wrong = lasthop("check", str(tmp_path), "-o", "jsonpath=.finding")
    assert wrong.exit_code == 1 and "the document has no .finding; it has errors" in wrong.output
    assert lasthop("check", str(tmp_path), "-o", "jsonpath=.a[?]").exit_code == 2
    assert "remove one" in lasthop("status", "-w", "-o", "jsonpath=.a").output
