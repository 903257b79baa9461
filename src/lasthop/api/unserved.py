"""Kinds of the bundle that are admitted but have no effect in this version, which a finding says."""

from __future__ import annotations

from typing import Final

from lasthop.api.meta import Object, Struct

NOT_SERVED: Final = "{} is not served by this version"


class UnservedSpec(Struct, frozen=True):
    controller_name: str = ""


class Unserved(Object, frozen=True):
    spec: UnservedSpec = UnservedSpec()
