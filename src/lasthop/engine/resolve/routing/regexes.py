"""Compiles regular expressions of routes as Envoy does: RE2, Latin-1.

RE2 never backtracks, but its time is program size times input length: with a very large expression, one request can block a
worker for seconds. For an invalid expression, Envoy refuses the whole route table."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2

from lasthop.engine.plan.limits import REGEX_CEILING, Limits, over
from lasthop.engine.resolve.routing.http_syntax import shown

TEXT_LENGTH: Final = 4_096
"""The CRD's largest limit, which applies to header values. It bounds the compile time."""
_MEMORY: Final = 1 << 20
"""RE2 aborts early on programs larger than several times `REGEX_CEILING`."""
_TOO_LARGE: Final = b"pattern too large"


class Regexes:
    """Counts the regular expressions of one route in their order, and refuses those above the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._number = 0
        self.size = 0
        """Sum of all program sizes."""

    def problem(self, *patterns: str, quoted: bool = True) -> str:
        """Returns why the last pattern, which is composed of those before it, is invalid; empty if it is valid. Header values
        are not `quoted`, because they may be secrets and findings are logged."""
        self._number += 1
        if self._number > self._limits.regexes_per_route:
            return f"the route has too many regular expressions; {over(self._limits, 'regexes_per_route')}"
        size = 0
        for pattern in patterns:
            if not pattern:
                return "an empty regular expression; write .* for any text"
            if len(pattern) > TEXT_LENGTH:
                return f"a regular expression of {len(pattern):,} characters; the limit is {TEXT_LENGTH:,}; use less"
            result = program_size(pattern)
            if isinstance(result, str):
                subject, why = (shown(pattern), result) if quoted else ("the value", result.partition(": ")[0])
                return f"{subject} is not an RE2 regular expression ({why}); correct it"
            size = result
        if size > self._limits.regex_program_size:
            excess = f"has program size {size:,}" if size <= REGEX_CEILING else "is too large"
            return f"{shown(patterns[-1]) if quoted else 'the value'} {excess}; {over(self._limits, 'regex_program_size')}"
        self.size += size
        return ""


@lru_cache(maxsize=4_096)
def program_size(pattern: str) -> int | str:
    """Returns the program size that `re2.max_program_size` limits, or the error of the pattern."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        return int(re2.compile(pattern.encode(), options).programsize)
    except UnicodeEncodeError:
        return "not UTF-8"
    except re2.error as error:
        message: bytes = error.args[0]
        return REGEX_CEILING + 1 if message.startswith(_TOO_LARGE) else message.decode(errors="replace")
