"""States which Services must not be connected to in plaintext. Shares no code with Lasthop and parses nothing.

A port may be plaintext if every text is known and no policy names it. While a text that may name it is unknown, it may be
plaintext only if it has been served so without interruption since before that text came.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec.structs import replace

from tests.hunt.history import ALL, Edit, History, Step

SERVICES = ("shop/alpha", "shop/bravo", "shop/carol", "default/delta")


class State(NamedTuple):
    """The folder as it is meant."""

    texts: dict[str, Edit]
    lost: bool = False
    """The folder is away: nothing in it can be read."""

    @property
    def hops(self) -> frozenset[str]:
        texts = self.texts.values()
        return frozenset(hop for text in texts for hop in text.hops) if any(text.gateway for text in texts) else frozenset()

    def named(self, service: str) -> bool:
        return any(service in text.names for text in self.texts.values())

    def unknown(self, service: str) -> bool:
        return self.lost or any(text.unknown == ALL or service in text.unknown for text in self.texts.values())

    def absent(self, service: str) -> bool:
        return not self.named(service) and not self.unknown(service)

    def after(self, edit: Edit) -> State:
        texts = dict(self.texts)
        before = texts.pop(edit.path, None)
        if edit.to:
            # A name that is not read, like p.YAML, may be meant to be: its policies become unknown.
            if before:
                texts[edit.to] = before if not edit.unknown else replace(before, names=(), unknown=edit.unknown)
        elif edit.text is not None or edit.odd:
            texts[edit.path] = meant(edit, before)
        return State(texts, self.lost)


def meant(edit: Edit, before: Edit | None) -> Edit:
    """Returns the edit with every Service that its raw text mentions, in case its stated meaning omits one, and with the hops
    that an older text keeps in force."""
    if edit.unknown and before:
        edit = replace(edit, hops=edit.hops or before.hops, gateway=edit.gateway or before.gateway)
    if edit.text is None or edit.names or edit.unknown:
        return edit
    words = set(re.findall(r"[\w-]+", "\n".join(line.partition("#")[0] for line in edit.text.splitlines())))
    if not any("backendtls" in word.casefold() for word in words):
        return edit
    return replace(edit, unknown=tuple(service for service in SERVICES if service.partition("/")[2] in words))


class Oracle:
    def __init__(self) -> None:
        self.state = State({})
        self._plaintext: frozenset[str] = frozenset()
        """Hops that are plaintext by right, and stay so while nothing interrupts them."""
        self.meanwhile: frozenset[str] = frozenset(SERVICES)
        """Services that must be plaintext neither before the last step, nor during, nor after it."""

    @property
    def forbidden(self) -> frozenset[str]:
        """Services that must not be connected to in plaintext."""
        by_right = {hop.partition(":")[0] for hop in self._plaintext}
        return frozenset(service for service in SERVICES if not self.state.absent(service) and service not in by_right)

    @property
    def verified(self) -> frozenset[str]:
        """Services that are reachable and named by a policy, where everything is known."""
        return frozenset(service for hop in self.state.hops if self.state.named(service := hop.partition(":")[0]))

    @property
    def reachable(self) -> frozenset[str]:
        return frozenset(hop.partition(":")[0] for hop in self.state.hops)

    def take(self, step: Step) -> None:
        before, was = self.state, self.forbidden
        states = [before]
        for edit in step.edits:
            states.append(states[-1].after(edit))
        end = states[-1]._replace(lost=step.folder == "away" or (before.lost and step.folder != "back"))
        # Lasthop may see every state between two edits, or only the last one.
        at_once = step.via in ("release", "data") or step.process in ("kill", "term")
        between = [] if at_once else states[1:]
        passing = {hop for state in between for hop in state.hops if state.absent(hop.partition(":")[0])}
        stays = self._plaintext & before.hops if step.process != "term" else frozenset[str]()
        self.state = end
        self._plaintext = frozenset(
            hop
            for hop in end.hops
            if end.absent(service := hop.partition(":")[0]) or (not end.named(service) and hop in stays | passing)
        )
        self.meanwhile = was & self.forbidden - {hop.partition(":")[0] for hop in passing}


def forbidden_in_the_end(history: History) -> frozenset[str]:
    oracle = Oracle()
    for step in history.steps:
        oracle.take(step)
    return oracle.forbidden
