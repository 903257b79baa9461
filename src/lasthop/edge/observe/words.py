"""Makes what backends and clients have written fit to be shown."""

from __future__ import annotations

from lasthop.base.text.printable import printable
from lasthop.engine.plan.observation import MAX_NAMES, MAX_WORDS, LeafCertificate


def cut(text: str) -> str:
    """Returns the text printable and at most `MAX_WORDS` long."""
    text = printable(text[: MAX_WORDS + 1])
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"


def shown(certificate: LeafCertificate | None) -> LeafCertificate | None:
    """Returns the certificate with its texts cut, and no more names than are shown."""
    if certificate is None:
        return None
    names = tuple(map(cut, certificate.names[:MAX_NAMES]))
    return LeafCertificate(
        cut(certificate.subject), cut(certificate.issuer), names, certificate.not_before, certificate.not_after
    )
