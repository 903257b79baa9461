"""Kinds of the bundle that are admitted but have no effect in this version, which their status says."""

from __future__ import annotations

from lasthop.api.meta import Object, Struct


class TargetReference(Struct, frozen=True):
    kind: str
    name: str
    group: str = ""


class UnservedSpec(Struct, frozen=True):
    target_refs: tuple[TargetReference, ...] = ()
    controller_name: str = ""


class Unserved(Object, frozen=True):
    spec: UnservedSpec = UnservedSpec()
