"""Chooses client certificates: one in the policy of a backend, or one of a Gateway for all of its TLS backends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from lasthop.base.api.names import is_dns_subdomain
from lasthop_import.decisions import Decisions
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, ListenerKey, ObjectName
from lasthop_import.names import shortened
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.rule_hops import HopPort, RuleHop
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.objects import ObjectWriter, OutputFile

KEYS: Final = (("tls.crt", "tls.key"), ("cert", "key"))
"""Keys of a certificate and its private key in a Secret. A policy reads the first pair, Istio both."""
CONFLICT: Final = "client-certificate-conflict"
WIDENED: Final = "client-certificate-widened"
DECIDE: Final = "Write clientCertificate: NAMESPACE/NAME, or none, in decisions.yaml."


class GatewayClientCertificates(NamedTuple):
    """The client certificates that Gateways show to all of their TLS backends."""

    chosen: Mapping[ObjectName, ObjectName]
    """By Gateway."""
    hops: frozenset[int]
    """Ids of the hops that get their certificate from the Gateway: their policies need not name it."""
    notes: tuple[Note, ...]


def choose_for_gateways(
    rule_hops: Sequence[RuleHop], gateways: Mapping[ListenerKey, ObjectName], decisions: Decisions
) -> GatewayClientCertificates:
    """Returns the certificates that Gateways show to all of their TLS backends.

    These are the decided certificate, the one that the old gateway showed to all backends, and the common certificate of all
    TLS backends of a Gateway if their policies cannot name it. `gateways`: the Gateway of each listener.
    """
    if decisions.no_client_certificate:
        return GatewayClientCertificates({}, frozenset(), ())
    shown: dict[ObjectName, dict[ObjectName | None, list[RuleHop]]] = {}
    for rule_hop, tls in _with_tls(rule_hops):
        for gateway in _owners(rule_hop, gateways):
            shown.setdefault(gateway, {}).setdefault(tls.client_certificate, []).append(rule_hop)
    shared = {gateway for gateway, by_certificate in shown.items() if _from_elsewhere(by_certificate)}

    def by_gateway(rule_hop: RuleHop) -> bool:
        wide = rule_hop.tls is not None and rule_hop.tls.shown_to_all
        return wide or decisions.client_certificate is not None or _owners(rule_hop, gateways) <= shared

    chosen: dict[ObjectName, ObjectName] = {}
    hops: set[int] = set()
    notes: list[Note] = []
    for gateway, by_certificate in sorted(shown.items()):
        named = _covered(by_certificate, by_gateway)
        hops |= {id(rule_hop.hop) for several in named.values() for rule_hop in several}
        certificate = _only_certificate(named, decisions.client_certificate)
        if certificate is not None:
            chosen[gateway] = certificate
        notes += _gateway_notes(gateway, certificate, named, widened=None in by_certificate)
    return GatewayClientCertificates(chosen, frozenset(hops), tuple(notes))


def _owners(rule_hop: RuleHop, gateways: Mapping[ListenerKey, ObjectName]) -> set[ObjectName]:
    return {gateways[key] for key in rule_hop.rule.listeners if key in gateways} if rule_hop.rule else set()


def _covered(
    by_certificate: Mapping[ObjectName | None, Sequence[RuleHop]], by_gateway: Callable[[RuleHop], bool]
) -> dict[ObjectName, list[RuleHop]]:
    covered = {name: list(filter(by_gateway, several)) for name, several in by_certificate.items() if name is not None}
    return {name: covered[name] for name in sorted(covered) if covered[name]}


def _only_certificate(named: Collection[ObjectName], decided: ObjectName | None) -> ObjectName | None:
    """Returns the certificate that a Gateway shows: the decided one, or the only one; None if several exclude each other."""
    if not named:
        return None
    return decided or (next(iter(named)) if len(named) == 1 else None)


def _with_tls(rule_hops: Iterable[RuleHop]) -> Iterator[tuple[RuleHop, HopTLS]]:
    """Yields the hops of rules to Services for which the gateway itself starts TLS."""
    for rule_hop in rule_hops:
        if rule_hop.tls is None or rule_hop.rule is None or rule_hop.port is None or rule_hop.port.kind != "Service":
            continue
        if rule_hop.tls.level not in (OldLevel.PASSTHROUGH, OldLevel.PLAINTEXT):
            yield rule_hop, rule_hop.tls


def _gateway_notes(
    gateway: ObjectName, certificate: ObjectName | None, named: Mapping[ObjectName, Sequence[RuleHop]], *, widened: bool
) -> Iterator[Note]:
    """Yields a note if several certificates exclude each other, or if more backends get to see the chosen one."""
    if not named:
        return
    source, target = next(iter(named.values()))[0].source, f"Gateway {gateway}"
    if certificate is None:
        text = f"a Gateway shows one client certificate, and the backends had {len(named)}: {', '.join(map(str, named))}"
        yield Note(Category.DECISION, CONFLICT, text, source, remedy=DECIDE, target=target)
    elif widened:
        text = f"client certificate {certificate} is now shown to all TLS backends of the Gateway"
        yield Note(Category.LOOSENED, WIDENED, text, source, target=target)


def _from_elsewhere(by_certificate: Mapping[ObjectName | None, Sequence[RuleHop]]) -> bool:
    """Returns whether all backends of a Gateway were shown one certificate, and it is in another namespace than a backend."""
    if len(by_certificate) != 1:
        return False
    (certificate, rule_hops), *_ = by_certificate.items()
    return certificate is not None and any(
        rule_hop.port and rule_hop.port.namespace != certificate.namespace for rule_hop in rule_hops
    )


class BackendCertificate(NamedTuple):
    """The client certificate in a backend's own policy."""

    certificate: ObjectName | None = None
    notes: tuple[Note, ...] = ()


def choose_for_port(
    port: HopPort, tls_hops: Sequence[tuple[RuleHop, HopTLS]], decisions: Decisions, gateways: GatewayClientCertificates
) -> BackendCertificate:
    """Returns the client certificate for all routes to a port, because a policy has only one."""
    by_certificate: dict[ObjectName | None, RuleHop] = {}
    for rule_hop, tls in tls_hops:
        by_certificate.setdefault(None if id(rule_hop.hop) in gateways.hops else tls.client_certificate, rule_hop)
    named = sorted(name for name in by_certificate if name is not None)
    if not named or decisions.no_client_certificate:
        return BackendCertificate()
    source = by_certificate[named[0]].hop.source
    if len(named) > 1:
        text = f"a backend is shown one client certificate, and the routes to {port} had {len(named)}: "
        text += ", ".join(map(str, named))
        return BackendCertificate(None, (Note(Category.DECISION, CONFLICT, text, source, remedy=DECIDE),))
    if None not in by_certificate:
        return BackendCertificate(named[0])
    text = f"client certificate {named[0]} is now shown on all routes to {port}"
    return BackendCertificate(named[0], (Note(Category.LOOSENED, WIDENED, text, source),))


class ClientSecrets:
    """Finds the Secrets for policies. A policy can only use Secrets of its own namespace."""

    def __init__(self, inputs: Inputs, settings: ImportSettings, objects: ObjectWriter) -> None:
        self._inputs = inputs
        self._settings = settings
        self._objects = objects
        self._copied: dict[tuple[ObjectName, str], str] = {}

    def name(self, certificate: ObjectName, namespace: str, source: SourceRef, target: str) -> tuple[str, list[Note]]:
        """Returns the name of the Secret for a policy of this namespace, with notes about the remaining tasks. The name is
        empty if no policy can name it. A missing Secret, or one that is not copied yet, fails closed."""
        if not is_dns_subdomain(certificate.name):
            text = f"{certificate} cannot be the name of a Secret; no client certificate is shown"
            return "", [Note(Category.CANNOT, "client-certificate", text, source, target=target, severity=NoteSeverity.HIGH)]
        data = self._inputs.data("Secret", *certificate)
        pairs = [(data[cert], data[key]) for cert, key in KEYS if data is not None and data.keys() >= {cert, key}]
        if certificate.namespace == namespace:
            if data is None or data.keys() >= set(KEYS[0]):
                return certificate.name, []
            text = f"Secret {certificate} does not have the client certificate as tls.crt and tls.key"
            remedy = "Write these keys into the Secret."
            return certificate.name, [Note(Category.TODO, "secret-keys", text, source, remedy=remedy, target=target)]
        name = shortened(f"{certificate.name}-from-{certificate.namespace}")
        if self._settings.with_secrets and pairs:
            name = self._copy(certificate, namespace, pairs[0], source)
            text = f"Secret {certificate} is copied, and does not follow when that is renewed"
            remedy = "Renew it with the original."
            copied = f"Secret {namespace}/{name}"
            return name, [Note(Category.CHANGED, "client-certificate-copied", text, source, "", remedy, copied)]
        text = (
            f"the client certificate is in Secret {certificate}, and a policy of namespace {namespace} takes none from there"
        )
        remedy = (
            f"Copy it to Secret {namespace}/{name}, or import with --with-secrets; until then nothing is sent. To have the "
            f"Gateway show it to all of its TLS backends, write clientCertificate: {certificate} in decisions.yaml."
        )
        return name, [Note(Category.TODO, "client-certificate-elsewhere", text, source, remedy=remedy, target=target)]

    def _copy(self, certificate: ObjectName, namespace: str, pair: tuple[bytes, bytes], source: SourceRef) -> str:
        if copied_name := self._copied.get((certificate, namespace)):
            return copied_name
        name = self._objects.free_name("Secret", namespace, f"{certificate.name}-from-{certificate.namespace}")
        self._copied[certificate, namespace] = name
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": pair[0].decode(errors="replace"), "tls.key": pair[1].decode(errors="replace")},
        }
        comment = (f"Copied from Secret {certificate}: it does not follow when that is renewed.",)
        self._objects.add(OutputFile.SECRETS, document, (source,), comment)
        return name
