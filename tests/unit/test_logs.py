"""The lines of the log."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from lasthop.base.text import logs
from lasthop.base.text.logs import LOG
from tests.logged import captured

FIELDS = {"folder": "/a b", "files": 3, "kinds": {"Pod": 1}, "admin": "127.0.0.1:1", "last": None, "query": "a=b"}


def test_a_line_of_text_has_the_fields_by_name_and_quotes_values_whose_end_would_be_unclear() -> None:
    line = logs.text_line("info", "running", FIELDS)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", line[:8])
    assert line[8:] == " [info     ] running admin=127.0.0.1:1 files=3 folder='/a b' kinds={'Pod': 1} last=None query='a=b'"


def test_colours_are_around_the_text_and_change_nothing_in_it() -> None:
    line = logs.text_line("error", "no proxy", FIELDS, coloured=True)
    assert "\x1b[31m\x1b[1merror    \x1b[0m" in line
    assert re.sub(r"\x1b\[\d+m", "", line)[8:] == logs.text_line("error", "no proxy", FIELDS)[8:]


def test_the_object_of_a_finding_is_named_in_its_text_alone() -> None:
    assert logs.text_line("error", "a: b", {"object": "a", "reason": "X"})[8:] == " [error    ] a: b reason=X"
    assert logs.text_line("error", "a", {"object": "a"})[8:] == " [error    ] a object=a"


def test_a_line_of_json_has_every_field_and_what_json_has_no_form_for_as_text() -> None:
    fields = json.loads(logs.json_line("warning", "held\nup", {**FIELDS, "object": {1}, "reason": "X"}))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", fields.pop("timestamp"))
    assert fields == {**FIELDS, "object": "{1}", "reason": "X", "event": "held\nup", "level": "warning"}


@pytest.mark.parametrize(
    ("lowest", "written"),
    [("debug", "debug info warning error"), ("info", "info warning error"), ("warning", "warning error"), ("error", "error")],
)
def test_only_entries_of_the_lowest_level_and_above_are_written(
    lowest: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOG, "level", lowest)
    with captured() as entries:
        for write in (LOG.debug, LOG.info, LOG.warning, LOG.error):
            write("event", n=1)
    assert [entry["level"] for entry in entries] == written.split()


@pytest.mark.parametrize(("format", "begins"), [("json", "{"), ("text", "")])
def test_lines_go_to_standard_error_in_the_chosen_format(
    format: str, begins: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LOG, "level", LOG.level)
    monkeypatch.setattr(LOG, "write", LOG.write)
    logs.configure(format, "warning")
    LOG.info("too low")
    LOG.warning("held up", seconds=1)
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("{")) == ("", 1, begins == "{")
    assert "held up" in err


def test_a_log_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(writer, "w") as unread:
        closed = open(os.devnull, "w")  # noqa: SIM115
        closed.close()
        for file in (full, unread, closed):
            monkeypatch.setattr(sys, "stderr", file)
            for _ in range(1000):
                logs._print("a line")
        monkeypatch.undo()
        # Closing writes the remaining lines.
        for file in (full, unread):
            with pytest.raises(OSError):
                file.close()
