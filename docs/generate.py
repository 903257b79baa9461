"""Writes the generated parts of docs/reference.md and docs/not-here.md, docs/audit.schema.json, the pictures, and the schemas
that admission reads (`make docs`).

A test fails if they are out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from docs import pictures
from lasthop.base.api import crds
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.profiles import PREFIX
from lasthop.base.api.unserved import FIELDS as UNSERVED_FIELDS
from lasthop.base.api.unserved import Unserved
from lasthop.cli.commands.explain import request_command
from lasthop.cli.main import COMMANDS, main
from lasthop.cli.render import audit_evidence
from lasthop.engine.plan.limits import FIELDS, MAX_ENDPOINTS, MESSAGE_LENGTH, ceiling, reason
from lasthop.engine.plan.reasons import REASONS as FINDINGS
from lasthop.engine.plan.tls_options import OPTIONS

REFERENCE = Path(__file__).with_name("reference.md")
AUDIT_SCHEMA = Path(__file__).with_name("audit.schema.json")
NOT_HERE = Path(__file__).with_name("not-here.md")
SCHEMAS = Path(crds.__file__).with_name(crds.COMPACT)
WIDTH = 120


def commands() -> Iterator[str]:
    top = click.Context(main, info_name="lasthop", terminal_width=WIDTH, max_content_width=WIDTH, **main.context_settings)
    yield from ("```", main.get_help(top), "```", "")
    for name in COMMANDS:
        command = main.get_command(top, name)
        assert command is not None
        yield from _command(top, name, command)
        if name == "explain":
            yield from _command(top, f"{name} request", request_command)


def _command(top: click.Context, name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, top, name, terminal_width=WIDTH, max_content_width=WIDTH)
    yield from (f"### lasthop {name}", "", "```", command.get_help(context), "```", "")


def kinds() -> Iterator[str]:
    yield from ("| kind | apiVersion | |", "|---|---|---|")
    for kind in KINDS.values():
        unserved = "admitted, not served by this version" if kind.struct is Unserved else ""
        yield f"| {kind.kind} | {', '.join(f'`{version}`' for version in kind.api_versions)} | {unserved} |"
    yield ""


def unserved() -> Iterator[str]:
    yield from ("| kind | field | effect |", "|---|---|---|")
    yield from (f"| {kind.kind} | all of it | no effect |" for kind in KINDS.values() if kind.struct is Unserved)
    yield from (f"| {', '.join(field.kinds)} | `{field.path}` | {field.instead} |" for field in UNSERVED_FIELDS)
    yield ""


def option_values() -> Iterator[str]:
    yield from ("| option | values | default |", "|---|---|---|")
    for option in OPTIONS:
        values = ", ".join(f"`{value}`" for value in sorted(option.values)) or "the name of a Secret in the policy's namespace"
        if option.label:
            both = len(option.values) == 2
            values = f"{values} or both, with a comma between" if both else f"some of {values}, with commas between"
        default = f"`{option.default}`" if option.default in option.values else option.default
        yield f"| `{PREFIX}{option.name}` | {values} | {default} |"
    yield ""


def findings() -> Iterator[str]:
    yield from ("| reason | severity | meaning |", "|---|---|---|")
    for name, entry in FINDINGS.items():
        if entry.means:
            yield f"| `{name}` | {'warning' if entry.warning else 'error'} | {entry.means} |"
    yield ""


def remedies() -> Iterator[str]:
    yield from ("| reason | advice of `lasthop check`, if the message has none |", "|---|---|")
    yield from (f"| `{name}` | {entry.remedy} |" for name, entry in sorted(FINDINGS.items()) if entry.remedy)
    yield ""


def limits() -> Iterator[str]:
    yield from ("| `spec.limits` | default | at most | meaning and reason |", "|---|---|---|---|")
    for name, field in FIELDS.items():
        yield f"| `{field.encode_name}` | {field.default:,} | {ceiling(name):,} | {reason(name)} |"
    yield f"| (fixed) | {MAX_ENDPOINTS:,} | | Endpoints of a Service port or an XBackend in use; a finding reports more. |"
    yield f"| (fixed) | {MESSAGE_LENGTH:,} | | Characters in a condition's message; longer messages count the omitted parts. |"
    yield ""


def audit_schema() -> str:
    return json.dumps(audit_evidence.schema(), indent=2) + "\n"


PARTS = {
    "commands": commands,
    "kinds": kinds,
    "unserved": unserved,
    "options": option_values,
    "findings": findings,
    "remedies": remedies,
    "limits": limits,
}
PAGES = {REFERENCE: tuple(PARTS), NOT_HERE: ("unserved",)}


def generated(page: Path) -> str:
    """Returns the page's text with what stands between each pair of markers made anew."""
    text = page.read_text()
    for name in PAGES[page]:
        start, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
        lines = "\n".join(line.rstrip() for line in "\n".join(PARTS[name]()).splitlines())
        new = f"{start}\n{lines}\n\n{end}".replace("\\", r"\\")
        text, count = re.subn(f"{re.escape(start)}.*?{re.escape(end)}", new, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{page} has {count} places for {name}; it needs one")
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(generated(page))
    AUDIT_SCHEMA.write_text(audit_schema())
    for picture, text in pictures.drawn().items():
        picture.write_text(text)
    SCHEMAS.write_bytes(crds.compacted())
