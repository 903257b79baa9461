"""Reads `spec.options` of a BackendTLSPolicy: our keys, their values, and what is wrong with them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lasthop.base.api.meta import StringMap
from lasthop.base.api.profiles import PREFIX
from lasthop.engine.plan.problem import Problem, invalid
from lasthop.engine.plan.tls_options import OPTIONS, Option, TLSOptions

FIELD: Final = "spec.options"
OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
KNOWN: Final = {f"{PREFIX}{option.name}": option for option in OPTIONS}


class ParsedOptions(msgspec.Struct, frozen=True):
    options: TLSOptions
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


NONE: Final = ParsedOptions(TLSOptions())


def parse(options: StringMap) -> ParsedOptions:
    if not options:
        return NONE
    fields: dict[str, str | tuple[str, ...]] = {}
    problems, warnings = [], []
    for key, value in options:
        if "/" not in key:
            warnings.append(f"option {key} has no effect: names without a domain are reserved for Gateway API")
        if not key.startswith(PREFIX):
            continue
        option = KNOWN.get(key)
        if option is None:
            problems.append(f"option {key} is unknown; Lasthop has {', '.join(each.name for each in OPTIONS)}")
            continue
        fields[option.field] = found = tuple(dict.fromkeys(map(str.strip, value.split(",")))) if option.label else value
        problems += _wrong_values(key, option, found)
    parsed = TLSOptions() if problems else msgspec.convert(fields, TLSOptions)
    if parsed.lowest > parsed.max_version:
        problems.append(f"the lowest TLS version ({parsed.lowest}) is above the highest ({parsed.max_version})")
    return ParsedOptions(parsed, tuple(invalid(problem).at(FIELD) for problem in problems), tuple(warnings))


def _wrong_values(key: str, option: Option, found: str | tuple[str, ...]) -> list[str]:
    if isinstance(found, str) and not option.values:
        return (
            [] if OBJECT_NAME.fullmatch(found) else [f"option {key} is {found!r}; write the name of a Secret of its namespace"]
        )
    known = ", ".join(sorted(option.values))
    if isinstance(found, str):
        return [] if found in option.values else [f"option {key} is {found!r}; write one of {known}"]
    unknown = ", ".join(repr(word) for word in found if word not in option.values)
    return [f"option {key} has {unknown}; known are {known}"] if unknown else []
