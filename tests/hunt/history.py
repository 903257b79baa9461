"""Defines a history: the events of a folder and of the process that serves it. Every text carries its meaning, so that the
oracle need not parse it. A history is written to and read from YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

ALL: Final = "all"

Delivery = Literal["write", "replace", "release", "data"]
"""How edits reach the folder: written in place; each renamed into place; all at once, by a link to another release of the
whole folder; all at once, by the `..data` link of a mounted ConfigMap (only files below `mounted/`)."""
Ending = Literal["", "kill", "term", "hup"]
Loss = Literal["", "all", "memory", "contents"]
Concerned = tuple[str, ...] | Literal["all"]
Odd = Literal["fifo", "socket", "dangling", "loop", "folder", "unreadable"]


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes one file. Without text, `to` or `odd` it is deleted."""

    path: str
    text: str | None = None
    """With the tokens of base.py."""
    encoding: str = "utf-8"
    pad: int = 0
    """Bytes of comments at the end."""
    to: str = ""
    """The name that it gets."""
    odd: Odd | None = None
    """The replacement of the file."""
    names: tuple[str, ...] = ()
    """Services (namespace/name) that readable policies in the text name."""
    unknown: Concerned = ()
    """Services that an unreadable part of the text names, or `all` if that part may name any."""
    hops: tuple[str, ...] = ()
    """Service ports (namespace/name:port) that the text makes reachable. An unknown text keeps those of the text before."""
    gateway: bool = False
    how: str = ""
    """The spelling or the mistake."""

    @property
    def content(self) -> str:
        assert self.text is not None
        return self.text


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Happens at once as far as the oracle is concerned; then everything that was written takes effect."""

    edits: tuple[Edit, ...] = ()
    via: Delivery = "write"
    process: Ending = ""
    """kill and term: the edits are made while it is down, and it is started again."""
    lose: Loss = ""
    """The lost part of the state directory."""
    folder: Literal["", "away", "back"] = ""
    whole: bool = False
    """Every text is good now, and the state equals that of a fresh start."""
    compare: bool = False
    """With `whole`: a fresh start is made, and its status and audit are compared too."""
    why: str = ""


class History(msgspec.Struct, frozen=True, omit_defaults=True):
    steps: tuple[Step, ...]
    linked: bool = False
    """The folder that is served is a link."""
    rule: str = ""


def load(path: Path) -> History:
    return msgspec.convert(yaml.safe_load(path.read_text()), History)


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dump(history: History) -> str:
    value: Any = msgspec.to_builtins(history)
    for step in value["steps"]:
        for edit in step.get("edits", ()):
            if edit.get("encoding") == "utf-8":  # msgspec compares defaults by identity
                del edit["encoding"]
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
