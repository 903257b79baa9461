"""Defines the configurations, one ServersTransport a row, and the certificates that a hop of each level accepts.

The rows are those of a released Traefik: `peerCertSANs` is in none yet, its predecessor `peerCertURI` is.
"""

from __future__ import annotations

from typing import Any, Final

from tests.importers.end_to_end import BY_ADDRESS, BY_URI, CERTIFICATES, GOOD, NAME, URI

Json = dict[str, Any]
CA: Final = [{"configMap": "ca"}]
DEFAULT: Final = "default"
"""The row without a ServersTransport: the static configuration's transport is used."""
ROWS: Final[dict[str, Json]] = {
    "verified": {"serverName": NAME, "rootCAs": CA},
    "versions": {"serverName": NAME, "rootCAs": CA, "minVersion": "VersionTLS12", "maxVersion": "VersionTLS13"},
    "min-version-alone": {"serverName": NAME, "rootCAs": CA, "minVersion": "VersionTLS12"},
    "versions-equal": {"serverName": NAME, "rootCAs": CA, "minVersion": "VersionTLS13", "maxVersion": "VersionTLS13"},
    "version-unknown": {"serverName": NAME, "rootCAs": CA, "maxVersion": "TLS13"},
    "cipher-unknown": {"insecureSkipVerify": True, "cipherSuites": ["ECDHE-RSA-AES128-GCM-SHA256"]},
    "no-server-name": {"rootCAs": CA},
    "skip": {"insecureSkipVerify": True, "serverName": NAME, "rootCAs": CA},
    "skip-and-uri": {"insecureSkipVerify": True, "rootCAs": CA, "peerCertURI": URI},
    "ca-under-no-key": {"serverName": NAME, "rootCAs": [{"secret": "pair"}]},
    "missing-ca": {"serverName": NAME, "rootCAs": [{"secret": "nowhere"}]},
    "no-ca": {"serverName": NAME},
    DEFAULT: {},
}
ACCEPTED: Final = {
    "name": {GOOD},
    "unverified": set(CERTIFICATES),
    "uri": {BY_URI},
    "ip-name": {BY_ADDRESS},
    "broken": set[str](),
    "TODO": set[str](),
}
"""The certificates that each level accepts, if the row's own CA is trusted."""
SYSTEM: Final = ("no-ca", "missing-ca", DEFAULT)
"""Rows that Traefik has no CA for, and so uses the system's, which none of the certificates is of."""
ASKING: Final = ("min-version-alone", "versions-equal", "cipher-unknown", "no-server-name", "skip", "ca-under-no-key", DEFAULT)
"""Rows that the import has a question about; it is answered with the CA and the name."""


def accepted_before(row: str, level: str) -> set[str]:
    """Returns what Traefik accepts, if the report is right about the row's level."""
    return ACCEPTED[level] if level == "unverified" or row not in SYSTEM else set()


def accepted_now(row: str, level: str) -> set[str]:
    """Returns what Lasthop accepts, if the report is right about the row's new level."""
    return ACCEPTED[level] if row in ASKING or row not in SYSTEM else set()


def documents() -> list[Json]:
    """Returns an IngressRoute for each row, and its ServersTransport."""
    objects: list[Json] = []
    for row, spec in ROWS.items():
        service: Json = {"name": row, "port": 443, "scheme": "https"}
        if spec:
            service["serversTransport"] = row
            objects.append(_object("ServersTransport", row, spec))
        route = {"kind": "Rule", "match": f"Host(`{row}.test`)", "services": [service]}
        objects.append(_object("IngressRoute", row, {"entryPoints": ["web"], "routes": [route]}))
    return objects


def _object(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "traefik.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
