"""What becomes of a request at a Gateway, as a value that scripts can read, with the explanation as a tree."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from lasthop.engine.outputs.explain.fact import Fact


class Action(StrEnum):
    FORWARD = "forward"
    """To a backend, which gives the answer."""
    REDIRECT = "redirect"
    RESPOND = "respond"
    """The gateway answers by itself."""
    CONNECT = "connect"
    """The connection is forwarded; what is sent on it is not looked at."""
    CLOSE = "close"
    """The connection is closed."""
    UNREACHABLE = "unreachable"
    """Nothing listens there."""


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend of the rule, and how much of the traffic it gets."""

    backend: str
    """`Service shop/api`; empty if the reference must not be followed."""
    port: int = 0
    share: float = 1.0
    protocol: str = ""
    manner: str = ""
    """How the connection is verified, in the words of `lasthop audit`."""
    policy: str = ""
    detail: str = ""
    status: int = 0
    """What this share gets from the gateway itself; 0: the backend answers."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    gateway: str
    action: Action
    explanation: Fact
    status: int = 0
    """Of an answer that the gateway gives by itself."""
    listener: str = ""
    hostname: str = ""
    """The virtual host; `*`: any."""
    path: str = ""
    """As it is matched."""
    route: str = ""
    """`HTTPRoute shop/web`."""
    rule: int | None = None
    match: int | None = None
    rule_name: str = ""
    location: str = ""
    """Of a redirect."""
    sent_path: str = ""
    """What the backend is asked for."""
    sent_host: str = ""
    backends: tuple[Share, ...] = ()

    @property
    def leads_somewhere(self) -> bool:
        return self.action in (Action.FORWARD, Action.CONNECT, Action.REDIRECT) or bool(self.route)
