"""Reads YAML as kubectl does, and rejects other texts without a crash."""

from __future__ import annotations

import pytest

from lasthop.edge.admission import yaml
from lasthop.edge.admission.limits import MAX_ALIASED_VALUES, MAX_TAGS
from lasthop.edge.admission.yaml import YamlMistake, field_lines, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("off", False),
        ("~", None),
        ("'yes'", "yes"),
        ("y", "y"),
        ("2027-01-31T00:00:00Z", "2027-01-31T00:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("1e3", 1000),
        ("80.0", 80),
        ("1.5", 1.5),
        ("010", 8),
        ("0x1F", 31),
        ("-5", -5),
        ("1_000", 1000),
        ("!!str 5", "5"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_a_scalar_means_what_it_means_to_kubectl(text: str, value: object) -> None:
    (document,) = parse(f"a: {text}".encode()).documents
    assert document == {"a": value}
    assert type(document["a"]) is type(value)


def test_keys_become_strings() -> None:
    assert parse(b"{1: a, on: b, 'x': c}").documents == [{"1": "a", "true": "b", "x": "c"}]


def test_empty_documents_are_left_out_and_a_byte_order_mark_is_fine() -> None:
    assert parse(b"\xef\xbb\xbf---\n---\na: 1\n---\n# nothing\n---\nb: 2\n").documents == [{"a": 1}, {"b": 2}]


def test_merge_keys_give_way_to_written_ones() -> None:
    (document,) = parse(b"base: &b {x: 1, y: 1}\nmine: {<<: *b, y: 2}\n").documents
    assert document["mine"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("text", ["a: 1\n<<: {a: 2}\n", "<<: {a: 1}\n<<: {a: 2}\n", "a: 1\n<<: [{}, {b: 1, a: 2}]\n"])
def test_a_merge_that_kubectl_reads_differently_is_an_error(text: str) -> None:
    """kubectl takes the 2, YAML the 1."""
    parsed = parse(text.encode())
    assert [m.message for m in parsed.mistakes] == ["key 'a' is written before << and has another value in it"]
    assert not parsed.complete


@pytest.mark.parametrize(
    "text", ["a: 1\n<<: {a: 1}\n", "<<: {b: 1}\n<<: {a: 1}\n", "<<: [{a: 1}, {a: 2}]\n", "<<: {a: 2}\na: 1\n"]
)
def test_a_merge_that_all_read_alike_is_none(text: str) -> None:
    parsed = parse(text.encode())
    assert parsed.complete and parsed.documents[0]["a"] == 1


def test_a_key_written_twice_is_an_error_at_its_line() -> None:
    parsed = parse(b"a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert [(m.line, m.message) for m in parsed.mistakes] == [(4, "key 'b' is written twice in one mapping")]


def test_documents_before_a_syntax_error_are_kept_and_the_rest_is_known_to_be_missing() -> None:
    parsed = parse(b"a: 1\n---\nb: [\n")
    assert parsed.documents == [{"a": 1}]
    assert not parsed.complete
    assert parsed.mistakes[0].line == 4


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"a: 1\nb: \xff\n", 2, "0xff is not UTF-8"),
        (b"a: 1\nb: \x01\n", 2, "control characters"),
        (b"a: b: c\n", 1, "mapping values"),
        (b"a: !!binary aGk=\n", 1, "!!binary"),
        (b"a: .nan\n", 1, "not a JSON value"),
        (b"a: 1\nb: 9223372036854775808\n", 2, "64 bits"),
        (b"a: " + b"1" * 5000, 1, "64 bits"),
        (b"a: 1e999\n", 1, "64 bits"),
        (b"? [1]\n: 2\n", 1, "key"),
        (b"a: *nowhere\n", 1, "no anchor"),
        (b"a: &a [*a]\n", 1, "no anchor"),
        (b"<<: 5\n", 1, "<<"),
    ],
)
def test_a_text_that_is_not_a_document_is_reported_with_its_line(text: bytes, line: int, words: str) -> None:
    parsed = parse(text)
    assert not parsed.complete
    assert parsed.mistakes[-1].line == line
    assert words in parsed.mistakes[-1].message


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    for as_json in (False, True):
        parsed = parse(b"[" * 200_000 + b"]" * 200_000, as_json=as_json)
        assert "nested" in parsed.mistakes[0].message


def test_a_billion_laughs_are_cut_short() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert str(MAX_ALIASED_VALUES) in parse("\n".join(lines).encode()).mistakes[0].message


def test_directives_are_counted_before_they_are_parsed() -> None:
    """The C parser compares each with all the others: a million of them would take an hour, with all other threads waiting."""
    many = "".join(f"%TAG !t{number}! tag:x{number}\n" for number in range(MAX_TAGS + 1))
    assert parse(f"{many}---\na: b\n".encode()).mistakes == [YamlMistake(1, "more than 100 lines begin with %TAG", True)]
    few = "".join(f"%TAG !t{number}! tag:x{number}\n" for number in range(MAX_TAGS))
    indented = "".join("  %TAG\n" for _ in range(MAX_TAGS))
    assert parse(f"{few}---\na: |\n{indented}".encode()).documents == [{"a": "%TAG\n" * MAX_TAGS}]


@pytest.mark.parametrize("text", ["# {}", "a: {}", "a: '{}'", "a: |\n  {}", "{}"])
def test_a_text_of_megabytes_is_parsed_in_pieces_between_which_other_threads_run(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = []
    sound = yaml._Pieces.read

    def read(self: yaml._Pieces, size: int = 0, /) -> str:
        pieces.append(size)
        return sound(self, size)

    monkeypatch.setattr(yaml._Pieces, "read", read)
    parse(text.format("x " * 1_000_000).encode())
    assert sum(pieces) >= 2_000_000 and max(pieces) <= 16_384


def test_json_is_read_with_its_own_errors() -> None:
    assert parse(b'{"a":\t[1, "x"]}', as_json=True).documents == [{"a": [1, "x"]}]
    assert parse(b'{"a": 1,\n "b": }', as_json=True).mistakes[0].line == 2
    assert "twice" in parse(b'{"a": 1, "a": 2}', as_json=True).mistakes[0].message
    assert "NaN" in parse(b'{"a": NaN}', as_json=True).mistakes[0].message
    assert "64 bits" in parse(b'{"a": ' + b"1" * 5000 + b"}", as_json=True).mistakes[0].message
    assert "surrogates" in parse(rb'{"a": "\ud800"}', as_json=True).mistakes[0].message


def test_every_field_has_a_line() -> None:
    text = "# é\na: 1\n---\n\n  spec:\n    list:\n    - x: 1\n      y: 2\n--- {b: 1}\n"
    first, second, third = (field_lines(text.encode(), span) for span in parse(text.encode()).spans)
    assert first[("a",)] == 2
    assert second[("spec",)] == 5
    assert second[("spec", "list", 0)] == 7
    assert second[("spec", "list", 0, "y")] == 8
    assert third[("b",)] == 9


@pytest.mark.parametrize(
    "text",
    [
        "a: b\n",
        "# c\n\na: b\n",
        "---\na: b\n",
        "--- {a: b}\n",
        "--- # c\n# d\na: b\n",
        "x: y\n---\n\na: b\n...\n",
        '{"a": "b"}',
    ],
)
def test_the_first_line_of_a_document_is_the_one_that_the_parser_finds(text: str) -> None:
    spans = parse(text.encode()).spans
    assert [yaml.first_line(text.encode(), span) for span in spans] == [field_lines(text.encode(), span)[()] for span in spans]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_text_in_utf_16_has_its_own_message(encoding: str) -> None:
    text = "kind: x".encode(encoding)
    with pytest.raises(Exception, match="it seems to be UTF-16"):
        yaml.decode(text if encoding == "utf-16" else b"\xfe\xff" + text)
