"""Renders a PinSet for a certificate, with comments that explain it and show where the next key goes."""

from __future__ import annotations

import re
from typing import Final

import yaml

from lasthop.base.text.printable import printable
from lasthop.edge.probe.certificate_view import CertificateInfo

API_VERSION: Final = "lasthop.dev/v1alpha1"


def as_yaml(leaf: CertificateInfo, name: str, namespace: str, form: str, origin: str) -> str:
    """Returns a PinSet for a certificate. `origin` describes its source, and whether that was verified."""
    place = f"\n  namespace: {_text(namespace)}" if namespace else ""
    return f"""\
# {printable(origin)}
# A BackendTLSPolicy in the same namespace refers to it, alone, by
#   caCertificateRefs: [{{group: lasthop.dev, kind: PinSet, name: {name}}}]
apiVersion: {API_VERSION}
kind: PinSet
metadata:
  name: {_text(name)}{place}
spec:
{_CHECKED[form]}{_pinned(leaf, form)}"""


_CHECKED: Final = {
    "certificate": "  # Only this certificate, while it is valid and has a name that the policy requires.\n",
    "key": "  # Only certificates with this key. Names and dates are not verified: the key is the identity.\n",
    "fingerprint": "  # Only this certificate. Names and dates are not verified: the certificate is the identity.\n",
}


def _pinned(leaf: CertificateInfo, form: str) -> str:
    if form == "certificate":
        indented = "".join(f"    {line}\n" for line in leaf.pem.splitlines())
        return f"""\
  certificates:
  - |
{indented}\
  # The next certificate, before the backend presents it; afterwards remove the one above:
  # - |
  #   -----BEGIN CERTIFICATE-----
"""
    kind, value, next_ = ("SPKI", leaf.spki_sha256, "key") if form == "key" else ("Certificate", leaf.sha256, "certificate")
    return f"""\
  pins:
  # {leaf.key}, until {leaf.not_after[:10]}
  - {{type: {kind}, algorithm: SHA256, value: "{value}"}}
  # The next {next_}, before the backend presents it (lasthop pin next.pem --by {form}); afterwards remove the one above:
  # - {{type: {kind}, algorithm: SHA256, value: ""}}
"""


def default_name(known_as: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", known_as.lower()).strip("-.")[:63].strip("-.") or "backend"


def _text(value: str) -> str:
    """Quotes a name where YAML would read it as a number."""
    return str(yaml.safe_dump(value)).splitlines()[0]
