"""What a reference to something that does not exist was probably meant to name."""

from __future__ import annotations

import msgspec

from lasthop.base.text.suggestions import closest
from lasthop.engine.engine import Engine
from lasthop.engine.plan.finding import Finding
from lasthop.web.engine_view import names

_FEW = 2000
"""Names among which a near one is looked for."""


def guessed(finding: Finding, engine: Engine) -> Finding:
    """Returns the finding with a suggestion, if something of that kind and namespace has nearly the name that is missed."""
    missing = next((key for key in finding.missing if key.name and engine.store.get(key) is None), None)
    if missing is None or any(key[:2] == missing[:2] and key != missing for key in finding.about):
        return finding  # or with what was meant already
    known = [name for namespace, name in names(engine, missing.kind) if namespace == missing.namespace]
    close = closest(missing.name, known) if len(known) <= _FEW else ""
    if not close or close == missing.name:  # it is there, and cannot be read
        return finding
    return msgspec.structs.replace(finding, message=f"{finding.message.rstrip('.')}; did you mean {close}?")
