from __future__ import annotations

import itertools

import pytest

from lasthop_import import values
from lasthop_import.model import ImportedValueMatch
from lasthop_import.values import cors, duration, header_edits, is_host, methods, milliseconds, retry_codes, value_match


@pytest.mark.parametrize(
    ("written", "converted"),
    [("4s", "4s"), ("1.5s", "1s500ms"), ("1h30m", "5400s"), ("0s", "0s"), ("200000s", "55h2000s"), ("0.000001s", "1ms")],
)
def test_durations_of_go_and_protobuf_become_those_of_gateway_api(written: str, converted: str) -> None:
    number = milliseconds(written)
    assert number is not None
    assert duration(number) == converted


@pytest.mark.parametrize("written", ["", "soon", "-1s", "1", "1d", "9999999999h", "1s ", "１s"])
def test_an_invalid_duration_is_none(written: str) -> None:
    assert milliseconds(written) is None


def test_a_header_that_cannot_be_edited_is_returned_beside_the_others() -> None:
    edited = header_edits("RequestHeaderModifier", {"x-a": "1"}, {"bad name": "2", "Host": "h", "x-b": "a\nb"}, ["x-c"])
    assert edited.refused == ("bad name", "Host", "x-b")
    edit = edited.filters[0].request_header_modifier
    assert edit is not None
    assert [header.name for header in edit.add] == ["x-a"]
    assert edit.remove == ("x-c",)


def test_without_a_writable_origin_there_is_no_cors() -> None:
    assert cors(["junk", "https://.*"]).filter is None
    assert cors(["https://a.example", "junk"], ["get", "BREW"]).refused == ("junk", "BREW")


def test_alternatives_of_methods_are_taken_apart() -> None:
    assert methods("^(GET|POST)$", regex=True) == ("GET", "POST")
    assert methods("P.*", regex=True) is None
    assert methods("GET|POST") is None


def test_a_value_is_escaped_in_the_pattern_that_it_becomes() -> None:
    assert value_match("x-a", "prefix", "a.b") == ImportedValueMatch("x-a", r"a\.b.*", regex=True)
    assert value_match("bad name", "exact", "1") is None
    assert value_match("x-a", "exact", "") is None


def test_conditions_for_retries_become_status_codes() -> None:
    retry = retry_codes(["gateway-error", "503", "connect-failure", "odd", "99999"])
    assert retry.codes == (502, 503, 504)
    assert retry.refused == ("odd", "99999")


def test_hostnames_are_those_of_listeners() -> None:
    assert is_host("*.a.example")
    assert not any(map(is_host, ("*", "a.*", "10.0.0.1", "bad_host", "A.example", "")))


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("80", 80),
        ("65535", 65535),
        ("00080", 80),
        *((text, 0) for text in ("", "0", "000", "65536", "99999999999", "-80", "+80", "8 0", "80x", "\u0668\u0660")),
    ],
)
def test_a_port_is_read_from_digits_only(text: str, port: int) -> None:
    assert values.port_number(text) == port


def test_a_redirect_has_only_parts_that_gateway_api_has() -> None:
    schemes, hosts = ("", "http", "https", "ftp", "HTTPS"), ("", "a.example", "*.example", "10.0.0.1", "A.example", "a b")
    codes = (0, 200, 301, 302, 303, 304, 307, 308)
    for scheme, host, port, code in itertools.product(schemes, hosts, (-1, 0, 1, 65535, 65536), codes):
        filter = values.redirect(scheme, host, None, port, code, usual=301).request_redirect
        assert filter is not None
        assert filter.scheme == (scheme if scheme in ("http", "https") else "")
        assert filter.hostname == (host if host in ("a.example", "*.example") else "")
        assert filter.port == (port if port in (1, 65535) else 0)
        assert filter.status_code == (code if code in (301, 302, 303, 307, 308) else 301)


def test_a_rewrite_that_changes_nothing_is_no_filter() -> None:
    assert values.url_rewrite() == ()
    assert len(values.url_rewrite("a.example")) == len(values.url_rewrite(path=values.full_path("/x"))) == 1
