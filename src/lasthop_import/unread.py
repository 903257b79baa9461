"""Judges the fields and annotations that an importer does not know.

There are three cases. A field that may restrict access, or narrow a match, closes its routes. Any other field of the system
is of severity high, because its loss may matter. An annotation of another program is a warning.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.reader import UNREAD
from lasthop_import.settings import ImportSettings, System

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_RESTRICTS: Final = re.compile(
    "access|allow|auth|black|block|captcha|cidr|credential|csrf|den(y|ied)|filter|firewall|forbid|guard|hmac|identity|internal"
    "|ldap|login|middleware|modsec|mtls|oauth|oidc|password|permi|plugin|policies|private|protect|referer|restrict|saml|script"
    "|secur|signature|snippet|source|token|user|verify|white|(acl|ips?|jwks|jwt|lua|opa|sso|waf|wasm)$"
)
"""Words, or their beginnings, in the names of settings by which gateways restrict access."""
_NARROWS: Final = frozenset(("match", "matches", "conditions"))


def may_restrict(name: str) -> bool:
    """Returns whether the name of an unknown setting looks like one that restricts access."""
    return any(_RESTRICTS.match(word.lower()) for word in _WORD.findall(name.rpartition("/")[2]))


def weighed(system: System, settings: ImportSettings, note: Note) -> Note:
    """Returns the note about an unread field with the category and severity of what may be lost; any other note as it is."""
    source = note.source
    if note.reason != UNREAD or source is None:
        return note
    path = source.path
    annotation = path[:2] == ("metadata", "annotations")
    if annotation and not str(path[-1]).startswith(system.prefixes(settings)):
        return note
    restricting = source.document.kind in system.restricting and len(path) == 2 and path[0] == "spec"
    if restricting or may_restrict(str(path[-1])) or (not annotation and _NARROWS & {*path}):
        text = "this importer does not know the field, which may restrict access"
        return msgspec.structs.replace(note, category=Category.ACCESS_CONTROL, text=text)
    return msgspec.structs.replace(note, severity=NoteSeverity.HIGH)
