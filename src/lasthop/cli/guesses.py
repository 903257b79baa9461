"""What a reference to something that does not exist was probably meant to name."""

from __future__ import annotations

import re

import msgspec

from lasthop.api.kinds import KINDS
from lasthop.engine import Engine
from lasthop.plan.finding import Finding
from lasthop.suggestions import closest
from lasthop.web.engine_view import names

_MISSING = re.compile(
    r"\b(?P<kind>[A-Z]\w+) (?:(?P<namespace>[a-z0-9-]+)/)?(?P<name>[a-z0-9][a-z0-9.-]*),? (?:which )?does not exist"
)
_FEW = 2000
"""Names among which a near one is looked for."""


def guessed(finding: Finding, engine: Engine) -> Finding:
    """With a suggestion, if something of that kind and namespace has nearly the name that is missed."""
    missing = _MISSING.search(finding.message)
    if missing is None or "did you mean" in finding.message or missing["kind"] not in KINDS:
        return finding
    known = [name for namespace, name in names(engine, missing["kind"]) if namespace == (missing["namespace"] or "")]
    close = closest(missing["name"], known) if len(known) <= _FEW else ""
    if not close:
        return finding
    return msgspec.structs.replace(finding, message=f"{finding.message.rstrip('.')}; did you mean {close}?")
