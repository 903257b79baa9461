"""Parses plain YAML scalars like kubectl, which uses Go's YAML 1.1."""

from __future__ import annotations

import re
from typing import Final

Scalar = str | int | float | bool | None

_WORDS: Final[dict[str, bool | None]] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+|0o?[0-7_]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST: Final = 80
"""Characters of a number: 64 bits in base 2 with their prefix, and some more."""


def plain(text: str) -> Scalar:
    """Parses a scalar. Raises `ValueError`, with a message for the user, for numbers beyond JSON or 64 bits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INT.fullmatch(text):
        return integer(text)
    if _FLOAT.fullmatch(text):
        return real(text)
    if _NOT_A_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is not a JSON value")
    return text


def integer(text: str) -> int:
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]}... does not fit into 64 bits")
    digits = text.replace("_", "")
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits.lstrip("+"))
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    number = sign * int(digits, 8 if octal else 0)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text} does not fit into 64 bits")
    return number


def real(text: str) -> int | float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:_LONGEST]} does not fit into 64 bits")
    # kubectl sends JSON to the API server, in which 80.0 becomes 80.
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
