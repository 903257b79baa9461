"""Judges the fields and annotations that an importer does not know, or cannot use because of their type.

There are four cases. A field that may restrict access or narrow a match closes its routes. One that may ask for TLS closes
those without TLS. Any other field of the system is of severity high, because its loss may matter. An annotation of another
program is a warning.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lasthop.edge.admission.problem import Path
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.reader import UNREAD, WRONG_TYPE
from lasthop_import.settings import ImportSettings, System

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_RESTRICTS: Final = re.compile(
    "access|allow|auth|black|block|captcha|cidr|credential|csrf|den(y|ied)|filter|firewall|forbid|guard|hmac|identity|internal"
    "|ldap|login|middleware|modsec|mtls|oauth|oidc|password|permi|plugin|policies|private|protect|referer|restrict|saml|script"
    "|secur|signature|snippet|source|token|user|white|(acl|ips?|jwks|jwt|lua|opa|sso|waf|wasm)$"
)
"""Words, or their beginnings, in the names of settings by which gateways restrict access."""
_ENCRYPTS: Final = re.compile("cert|encrypt|https|ssl|tls|trust|validation|verif|(ca|sni)$")
_NARROWS: Final = frozenset(("match", "matches", "conditions"))


def may_restrict(name: str) -> bool:
    """Returns whether the name of an unknown setting looks like one that restricts access."""
    return _names(_RESTRICTS, name)


def _names(wanted: re.Pattern[str], name: str) -> bool:
    return any(wanted.match(word.lower()) for word in _WORD.findall(name.rpartition("/")[2]))


def weighed(system: System, settings: ImportSettings, note: Note) -> Note:
    """Returns the note about an unread field, or one of the wrong type, with the category and severity of what may be lost;
    any other note as it is."""
    source = note.source
    if note.reason not in (UNREAD, WRONG_TYPE) or source is None:
        return note
    path = source.path
    annotation = path[:2] == ("metadata", "annotations")
    if annotation and not str(path[-1]).startswith(system.prefixes(settings)):
        return note
    restricting = source.document.kind in system.restricting and len(path) == 2 and path[0] == "spec"
    closes = restricting or may_restrict(str(path[-1])) or (not annotation and _NARROWS & {*path})
    if closes or _encrypts((source.document.kind, *path)):
        text = f"{note.text.partition(', and')[0]}; it may {'restrict access' if closes else 'ask for TLS'}"
        return msgspec.structs.replace(note, category=Category.ACCESS_CONTROL, text=text, hides_tls=not closes)
    return msgspec.structs.replace(note, severity=NoteSeverity.HIGH)


def _encrypts(path: Path) -> bool:
    return any(_names(_ENCRYPTS, step) for step in path if isinstance(step, str))
