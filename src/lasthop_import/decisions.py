"""Decisions: the user's choices in cases where an import must not choose. Users keep `decisions.yaml` in git, and the next
import reads it.

An import only appends to the file, so users' text and comments stay unchanged. It appends each open question once, as a
commented entry with the possible answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from lasthop.base.api.names import is_dns_subdomain
from lasthop.base.api.times import rfc3339
from lasthop.base.text.printable import printable
from lasthop.edge.admission.yaml import parse
from lasthop_import.documents import Document, SourceText
from lasthop_import.model import Name, NameKind, ObjectName
from lasthop_import.reader import Account, FieldReader
from lasthop_import.settings import DAY

NEVER: Final = "never"
WAIVABLE: Final = ("All", "Names", "Expiry")
_PORT: Final = re.compile(r"(?P<namespace>[a-z0-9.-]+)/(?P<name>[a-z0-9.-]+):(?P<port>[0-9]+)")
_PIN: Final = re.compile(r"[0-9A-Fa-f]{64}|([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}|[A-Za-z0-9+/]{43}=")
HEADER: Final = """\
# Decisions of `lasthop import`: keep this file in git. An entry without a comment sign is in force; the next import reads it.
# Until a port has one, its policy fails closed. Choose one answer for each port:
#   ca: {configMap: NAME}                   a CA; also secret:, clusterTrustBundle:, file: PEM, system: true, serviceCA: true
#   hostname: NAME                          the name that the certificate must have, and that is sent as SNI
#   subjectAltNames: [NAME, spiffe://...]   any one of these instead
#   pin: {certificates: [FILE.pem]}         exactly this certificate; or pins: [SHA-256 of its key]; see lasthop pin
#   names: strict                           where only the chain was checked: the name is checked from now on
#   names: any                              where the request's Host was: any hostname of the route
#   waive: All                              nothing is verified (or Names, Expiry); needs reason: TEXT, expires: DATE or never
#   merge: true                             where routes disagree: accept what either of them did
#   split: true                             where routes disagree: a second Service for the other ones
#   plaintext: true                         only where it was plaintext before; needs reason: TEXT
# An entry with route: instead of port: is about a route that answers 500 because its access control is lost:
#   open: true                              it is served without that; needs reason: TEXT
backends:
"""


class DecisionError(Exception):
    """The file is unusable. The message has the place and the remedy."""


class CA(msgspec.Struct, frozen=True):
    kind: str
    """ConfigMap, Secret, ClusterTrustBundle, file, system or serviceCA."""
    name: str = ""


class Decision(msgspec.Struct, frozen=True):
    port: str
    """`namespace/service:port`."""
    ca: CA | None = None
    hostname: str = ""
    names: tuple[Name, ...] = ()
    choice: str = ""
    """strict or any."""
    waive: str = ""
    reason: str = ""
    owner: str = ""
    expires: str = ""
    """RFC 3339; empty: never."""
    certificates: tuple[str, ...] = ()
    """Files."""
    pins: tuple[str, ...] = ()
    merge: bool = False
    split: bool = False
    plaintext: bool = False

    @property
    def only_merges(self) -> bool:
        """The requirements of the routes are merged, and the decision names no other hostname."""
        return self.merge and not self.hostname and not self.names

    @property
    def names_trust(self) -> bool:
        """Whether the decision itself specifies how to verify certificates, or waives verification."""
        return bool(self.ca or self.certificates or self.pins or self.waive == "All")


class Decisions(msgspec.Struct, frozen=True):
    by_port: Mapping[str, Decision] = {}
    opened: Mapping[str, str] = {}
    """The reason for serving each of these routes without its access control, by `Ingress obs/grafana`."""
    client_certificate: ObjectName | None = None
    no_client_certificate: bool = False
    files: Mapping[str, bytes] = {}
    """Contents of the files that entries name, by the path as written."""

    @property
    def named_files(self) -> tuple[str, ...]:
        ca_files = [d.ca.name for d in self.by_port.values() if d.ca and d.ca.kind == "file"]
        return tuple(dict.fromkeys([*ca_files, *(file for d in self.by_port.values() for file in d.certificates)]))


class Question(msgspec.Struct, frozen=True, order=True):
    """A question that only the user can decide."""

    port: str
    reason: str
    was: str
    """The old level, with its reason."""
    hostname: str
    """A known or guessed name."""
    answers: tuple[tuple[str, ...], ...]
    """Lines of YAML for each possible answer; the first is proposed."""
    key: str = "port"
    """For a route, `port` is the name of an object."""


def read_decisions(name: str, content: bytes) -> Decisions:
    """Parses the file. Raises `DecisionError`."""
    parsed = parse(content)
    if parsed.mistakes:
        raise DecisionError(f"{name}:{parsed.mistakes[0].line}: {parsed.mistakes[0].message}")
    if not parsed.documents:
        return Decisions()
    if len(parsed.documents) > 1:
        raise DecisionError(f"{name}:{parsed.spans[1].line}: this must be one document; remove the line ---")
    value = parsed.documents[0]
    if not isinstance(value, dict):
        raise DecisionError(f"{name}:1: this must be a mapping with the key backends")
    account = Account(Document(value, SourceText(name, content), parsed.spans[0]), [])
    reader = FieldReader(account, value)
    decisions: dict[str, Decision] = {}
    opened: dict[str, str] = {}
    routes: set[str] = set()
    for entry in reader.children("backends"):
        if "route" in entry:
            route = entry.text("route")
            if route in routes:
                _fail(entry, "route", f"there are two decisions for {route}; remove one")
            routes.add(route)
            opened |= _opened(entry, route)
            continue
        decision = _decision(entry)
        if decision.port in decisions:
            _fail(entry, "port", f"there are two decisions for {decision.port}; remove one")
        decisions[decision.port] = decision
    client = reader.text("clientCertificate")
    chosen = _client_certificate(reader, client) if client not in ("", "none") else None
    _check_account(account)
    return Decisions(decisions, opened, chosen, client == "none")


def _opened(entry: FieldReader, route: str) -> dict[str, str]:
    reason = entry.text("reason")
    if not entry.boolean("open"):
        return {}
    if not reason.strip():
        _fail(entry, "open", "needs a reason; write reason: TEXT")
    return {route: reason}


def _client_certificate(reader: FieldReader, client: str) -> ObjectName:
    namespace, slash, name = client.partition("/")
    if not slash or not is_dns_subdomain(namespace) or not is_dns_subdomain(name):
        _fail(reader, "clientCertificate", "write namespace/name of a Secret, or none")
    return ObjectName(namespace, name)


def _check_account(account: Account) -> None:
    """Raises if a field is unknown or of the wrong type."""
    name = account.document.text.name
    for path in account.unread():
        raise DecisionError(f"{name}:{account.document.line(path)}: unknown field {path[-1]}")
    if account.notes and (source := account.notes[0].source):
        raise DecisionError(f"{name}:{source.document.line(source.path)}: {source.field} {account.notes[0].text}")


def _decision(entry: FieldReader) -> Decision:
    port = entry.text("port")
    if not _PORT.fullmatch(port):
        _fail(entry, "port", "write namespace/service:port, with the port as a number")
    pin = entry.child("pin")
    decision = Decision(
        port=port,
        ca=_ca(entry),
        hostname=entry.text("hostname").lower(),
        names=tuple(_name(entry, name) for name in entry.texts("subjectAltNames")),
        choice=entry.text("names"),
        waive=entry.text("waive"),
        reason=entry.text("reason"),
        owner=entry.text("owner"),
        expires=_expires(entry),
        certificates=pin.texts("certificates"),
        pins=pin.texts("pins"),
        merge=entry.boolean("merge"),
        split=entry.boolean("split"),
        plaintext=entry.boolean("plaintext"),
    )
    _check_values(entry, decision)
    _check_waiver(entry, decision)
    _check_combination(entry, decision)
    return decision


def _check_values(entry: FieldReader, decision: Decision) -> None:
    if decision.choice not in ("", "strict", "any"):
        _fail(entry, "names", "is strict or any")
    if decision.hostname and not is_dns_subdomain(decision.hostname):
        _fail(entry, "hostname", "must be a DNS name, without a wildcard; an IP address cannot be one")
    for pin in decision.pins:
        if not _PIN.fullmatch(pin):
            _fail(entry, "pin", f"{pin!r} is not a SHA-256, as lasthop pin --by key prints it")
    if len(decision.names) > 5:
        _fail(entry, "subjectAltNames", "holds more than 5 names, which is the limit of a BackendTLSPolicy")


def _check_waiver(entry: FieldReader, decision: Decision) -> None:
    """Raises if a waiver or plaintext has no reason, or if a waiver has no expiry."""
    if decision.waive not in ("", *WAIVABLE):
        _fail(entry, "waive", f"is one of {', '.join(WAIVABLE)}")
    if (decision.waive or decision.plaintext) and not decision.reason.strip():
        _fail(entry, "waive" if decision.waive else "plaintext", "needs a reason; write reason: TEXT")
    if decision.waive and "expires" not in entry:
        _fail(entry, "waive", "needs an end; write expires: 2027-01-31T00:00:00Z, or expires: never")


def _check_combination(entry: FieldReader, decision: Decision) -> None:
    """Raises if one answer makes another one meaningless."""
    if decision.waive == "All" and any((decision.ca, decision.certificates, decision.pins, decision.names)):
        _fail(entry, "waive", "All verifies nothing, so it cannot be combined with a CA, pin or name; remove one of them")
    if decision.ca and (decision.certificates or decision.pins):
        _fail(entry, "ca", "and pin exclude each other; remove one of them")
    if decision.pins and (decision.waive or decision.names or decision.certificates):
        _fail(entry, "pin", "by hash verifies no names and dates; remove waive, subjectAltNames and certificates, or the pins")


def _ca(entry: FieldReader) -> CA | None:
    if "ca" not in entry:
        return None
    ca = entry.child("ca")
    kinds = {"configMap": "ConfigMap", "secret": "Secret", "clusterTrustBundle": "ClusterTrustBundle", "file": "file"}
    candidates = [CA(kind, ca.text(key)) for key, kind in kinds.items() if key in ca]
    candidates += [CA(key) for key in ("system", "serviceCA") if key in ca and ca.boolean(key)]
    if len(candidates) != 1:
        _fail(entry, "ca", "names one of configMap, secret, clusterTrustBundle, file, system: true, serviceCA: true")
    (chosen,) = candidates
    if chosen.kind in kinds.values() and not (chosen.name and (chosen.kind == "file" or is_dns_subdomain(chosen.name))):
        _fail(entry, "ca", f"{chosen.name!r} is not the name of a {chosen.kind}")
    return chosen


def _name(entry: FieldReader, value: str) -> Name:
    if "://" in value:
        return Name(value, NameKind.URI)
    if not is_dns_subdomain(value.lower().removeprefix("*.")):
        _fail(entry, "subjectAltNames", f"{value!r} is neither a DNS name nor a URI")
    return Name(value.lower())


def _expires(entry: FieldReader) -> str:
    value = entry.text("expires")
    if value == NEVER or "expires" not in entry:
        return ""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        _fail(entry, "expires", "is a time like 2027-01-31T00:00:00Z, or never")
    return rfc3339((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _fail(entry: FieldReader, key: str, text: str) -> None:
    source = entry.source(key)
    raise DecisionError(f"{source.document.text.name}:{source.document.line(source.path)}: {key}: {text}")


# --- writing ---------------------------------------------------------------------------------------------------------


def default_expiry(now: float, days: int) -> str:
    """Returns the midnight after this number of days, in the syntax of decisions; `never` for 0."""
    return rfc3339((now // DAY + 1 + days) * DAY) if days else NEVER


def appended(
    text: str,
    questions: Iterable[Question],
    decided: Iterable[str],
    now: float,
    days: int,
    probed: Mapping[str, tuple[str, ...]] | None = None,
) -> str:
    """Returns the file with new questions as comments; `decided` are entries in force, `probed` has observations by port."""
    added = [*decided]
    for question in sorted(questions):
        if f"{question.key}: {question.port} " not in text.replace("\n", " \n"):
            added.append(_commented(question, default_expiry(now, days), (probed or {}).get(question.port, ())))
    if not added:
        return text
    start = text or HEADER
    return f"{start}{'' if start.endswith(chr(10)) else chr(10)}{''.join(added)}"


def _commented(question: Question, expires: str, probed: tuple[str, ...]) -> str:
    proposed, *alternatives = question.answers
    lines = [f"- {question.key}: {question.port}  # {question.reason}; was {printable(question.was)}"]
    lines += [f"  # {line}" for line in probed]
    lines += [f"  {line}" for line in proposed]
    for first, *following in alternatives:
        lines += [f"  # or: {first}", *(f"  #     {line}" for line in following)]
    return "".join(f"# {line.replace('EXPIRES', expires)}\n" for line in lines)


def entry(port: str, waive: str, reason: str, expires: str, was: str) -> str:
    """Returns a decision in force, for the shortcuts of the command."""
    quoted = msgspec.json.encode(reason).decode()
    return f"- port: {port}  # was {printable(was)}\n  waive: {waive}\n  reason: {quoted}\n  expires: {expires or NEVER}\n"
