"""Finds the DestinationRule that a gateway uses for a host and port, as pilot does.

Pilot searches the gateway's namespace, the Service's, then the root namespace; the most specific host wins. Rules for one
host in one namespace merge: subsets add up, and the oldest trafficPolicy wins as a whole. An entry of portLevelSettings
replaces all settings above it, so that an entry without `tls` turns TLS off.
[pilot/pkg/model/push_context.go, destination_rule.go, networking/util/util.go]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lasthop.engine.resolve.routing.hostnames import specificity
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, ImportedRetryBudget
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.istio.kinds import DESTINATION_RULE, exported, fqdn


class ClientTLS(msgspec.Struct, frozen=True):
    """The `tls` of a DestinationRule, as written."""

    source: SourceRef
    mode: str
    """Empty if not set, which means DISABLE."""
    sni: str = ""
    names: tuple[str, ...] = ()
    credential: str = ""
    ca_file: str = ""
    client_files: tuple[str, str] = ("", "")
    skip: bool = False
    crl: str = ""

    @property
    def starts(self) -> bool:
        return self.mode not in ("", "DISABLE")


class TrafficPolicy(msgspec.Struct, frozen=True):
    tls: ClientTLS | None = None
    upgrade: bool = False
    """Whether h2UpgradePolicy is UPGRADE."""
    budget: ImportedRetryBudget | None = None
    ports: Mapping[int, TrafficPolicy] = {}

    def of(self, port: int) -> tuple[TrafficPolicy, bool]:
        """Returns the settings of a port, and whether portLevelSettings has an entry for it."""
        return (self.ports[port], True) if port in self.ports else (self, False)


class DestinationRule(msgspec.Struct, frozen=True):
    document: Document
    host: str
    export_to: tuple[str, ...]
    policy: TrafficPolicy | None
    subsets: Mapping[str, tuple[Mapping[str, str], TrafficPolicy | None]]
    """The labels and policy of each subset, by name."""
    workloads: Mapping[str, str] | None
    """The labels of the selected proxies; None selects all."""

    @property
    def namespace(self) -> str:
        return self.document.namespace


class Effective(msgspec.Struct, frozen=True):
    """The settings of one host, port and subset."""

    tls: ClientTLS | None = None
    upgrade: bool = False
    budget: ImportedRetryBudget | None = None
    lost: ClientTLS | None = None
    """A `tls` that the author expects to apply, but that does not."""
    why_lost: str = ""
    reason: str = ""


class DestinationRules:
    def __init__(self, rules: Iterable[DestinationRule]) -> None:
        self._rules = tuple(rules)
        self._used: set[Document] = set()

    def effective(
        self,
        host: str,
        service_namespace: str,
        port: int,
        subset: str,
        gateway_namespace: str,
        root: str,
        labels: Mapping[str, str],
    ) -> Effective:
        """Returns the settings that a gateway with these labels, in this namespace, uses for a port of a host."""
        rules = self._applicable(host, service_namespace, gateway_namespace, root, labels)
        self._used |= {rule.document for rule in rules}
        if not rules:
            return self._hidden(host, port, gateway_namespace)
        policy, lost = _of_port(next(filter(None, (rule.policy for rule in rules)), None), port)
        if subset_policy := next((rule.subsets[subset][1] for rule in rules if subset and subset in rule.subsets), None):
            policy, lost = _of_subset(subset_policy, policy, lost, port)
        if lost and not policy.tls:
            why = f"portLevelSettings has an entry for port {port} without tls, which replaces the tls above it"
            return Effective(None, policy.upgrade, policy.budget, lost, why, "port-level-disables-tls")
        return Effective(policy.tls, policy.upgrade, policy.budget)

    def labels_of(self, host: str, subset: str) -> Mapping[str, str] | None:
        """Returns the labels of a subset; None without a rule that defines it."""
        return next((rule.subsets[subset][0] for rule in self._rules if rule.host == host and subset in rule.subsets), None)

    def note_unused(self, inputs: Inputs) -> None:
        for rule in self._rules:
            if rule.document not in self._used:
                text = "no route of a gateway leads to its host, or it does not apply there"
                inputs.skip(rule.document, "rule-not-used", text)

    def _applicable(
        self, host: str, service: str, gateway: str, root: str, labels: Mapping[str, str]
    ) -> list[DestinationRule]:
        """Returns the rules of the first namespace with matching rules, sorted: rules with a workloadSelector, then by age."""
        for rules in (self._own(gateway, root), self._exported(service, gateway), self._exported(root, gateway)):
            fitting = [rule for rule in rules if _covers(rule.host, host) and _is_for(rule, gateway, labels)]
            if fitting:
                best = min(specificity_of(rule.host) for rule in fitting)
                most_specific = [rule for rule in fitting if specificity_of(rule.host) == best]
                return sorted(most_specific, key=lambda rule: (rule.workloads is None, rule.document.age))
        return []

    def _own(self, gateway: str, root: str) -> list[DestinationRule]:
        """Returns the rules of the gateway's own namespace. In the root namespace, only rules that are not exported count."""
        rules = [rule for rule in self._rules if rule.namespace == gateway]
        return rules if gateway != root else [rule for rule in rules if rule.export_to == (".",)]

    def _exported(self, namespace: str, gateway: str) -> list[DestinationRule]:
        rules = (rule for rule in self._rules if rule.namespace == namespace)
        return [rule for rule in rules if exported(rule.export_to, rule.namespace, gateway)]

    def _hidden(self, host: str, port: int, gateway: str) -> Effective:
        """Returns a `tls` for the host from a rule that is not visible to the gateway."""
        for rule in sorted(self._rules, key=lambda rule: (specificity_of(rule.host), rule.document.age)):
            policy = rule.policy.of(port)[0] if rule.policy and _covers(rule.host, host) else None
            if policy and policy.tls and policy.tls.starts:
                self._used.add(rule.document)
                cause = "its workloadSelector selects other proxies"
                if rule.workloads is None:
                    cause = f"a gateway in namespace {gateway} does not see it"
                why = f"{rule.document.name} does not apply: {cause}"
                return Effective(None, False, None, policy.tls, why, "rule-not-seen")
        return Effective()


def _of_port(whole: TrafficPolicy | None, port: int) -> tuple[TrafficPolicy, ClientTLS | None]:
    """Returns the policy for a port, and the general `tls` if an entry for the port without `tls` replaces it."""
    if whole is None:
        return TrafficPolicy(), None
    policy, has_entry = whole.of(port)
    lost = whole.tls if has_entry and not policy.tls and whole.tls and whole.tls.starts else None
    return policy, lost


def _of_subset(
    subset: TrafficPolicy, above: TrafficPolicy, lost: ClientTLS | None, port: int
) -> tuple[TrafficPolicy, ClientTLS | None]:
    """Returns the policy of a subset for a port, with the settings that it inherits from the policy above it."""
    policy, has_entry = subset.of(port)
    tls = policy.tls if policy.tls or has_entry else above.tls
    if has_entry and not policy.tls:
        lost = next((candidate for candidate in (subset.tls, above.tls) if candidate and candidate.starts), lost)
    return TrafficPolicy(tls, policy.upgrade or above.upgrade, policy.budget or above.budget), lost


def _covers(pattern: str, host: str) -> bool:
    return pattern in ("*", host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def specificity_of(pattern: str) -> tuple[int, int]:
    return specificity("" if pattern == "*" else pattern)


def _is_for(rule: DestinationRule, gateway: str, labels: Mapping[str, str]) -> bool:
    """Returns whether a workloadSelector may select the gateway. Labels that the Gateway's selector does not name are
    unknown; the rule then counts, because it may start TLS."""
    if rule.workloads is None:
        return True
    return rule.namespace == gateway and all(labels.get(key, value) == value for key, value in rule.workloads.items())


# --- reading ---------------------------------------------------------------------------------------------------------


def read_rules(inputs: Inputs) -> DestinationRules:
    return DestinationRules(_rule(inputs.open(document)) for document in inputs.of(DESTINATION_RULE))


def _rule(reader: FieldReader) -> DestinationRule:
    spec = reader.child("spec")
    selector = spec.child("workloadSelector") if "workloadSelector" in spec else None
    subsets: dict[str, tuple[Mapping[str, str], TrafficPolicy | None]] = {}
    for subset in spec.children("subsets"):
        labels = subset.text_map("labels")
        policy = _policy(subset.child("trafficPolicy")) if "trafficPolicy" in subset else None
        subsets.setdefault(subset.text("name"), (labels, policy))
    host = spec.text("host")
    return DestinationRule(
        document=reader.document,
        host=fqdn(host, reader.namespace),
        export_to=spec.texts("exportTo"),
        policy=_policy(spec.child("trafficPolicy")) if "trafficPolicy" in spec else None,
        subsets=subsets,
        workloads=_labels(selector) if selector is not None else None,
    )


def _labels(selector: FieldReader) -> Mapping[str, str]:
    labels = selector.text_map("matchLabels")
    text = "applies only to some proxies; it counts if it may select the gateway"
    selector.note(Category.CHANGED, "workload-selector", text)
    return labels


_DROPPED = {
    "loadBalancer": "the new gateway balances in its own way",
    "outlierDetection": "an endpoint is ejected only because connections to it keep failing",
    "tunnel": "tunnels have no equivalent",
    "proxyProtocol": "the PROXY protocol is not sent to backends",
}


def _policy(reader: FieldReader) -> TrafficPolicy:
    for key, text in _DROPPED.items():
        reader.cannot(key, text)
    pool = reader.child("connectionPool")
    http = pool.child("http")
    upgrade = http.text("h2UpgradePolicy") == "UPGRADE"
    for key in sorted(http.value):
        if key != "h2UpgradePolicy":
            http.cannot(key, "limits of connections are the new gateway's own")
    pool.cannot("tcp", "limits and timeouts of connections are the new gateway's own")
    ports: dict[int, TrafficPolicy] = {}
    for entry in reader.children("portLevelSettings"):
        number = entry.child("port").integer("number")
        policy = _policy(entry)
        if number is not None:
            ports.setdefault(number, policy)
    budget = _budget(reader.child("retryBudget")) if "retryBudget" in reader else None
    return TrafficPolicy(_tls(reader.child("tls")) if "tls" in reader else None, upgrade, budget, ports)


def _budget(reader: FieldReader) -> ImportedRetryBudget:
    """Returns a retry budget. Istio's defaults are 20 % and 3 concurrent retries."""
    percent, at_least = reader.raw("percent"), reader.integer("minRetryConcurrency", 3)
    valid = isinstance(percent, int | float) and not isinstance(percent, bool) and 0 <= percent <= 100
    if percent is not None and not valid:
        reader.note(Category.CANNOT, "retry-budget", "is not a percentage; 20 is used", "percent")
    return ImportedRetryBudget(int(percent) if valid else 20, min(max(at_least or 0, 0), 1_000_000))


def _tls(reader: FieldReader) -> ClientTLS:
    skip = reader.raw("insecureSkipVerify")
    if skip not in (None, True, False):
        text = "must be true or false; an API server refuses it, and it counts as true here, which verifies nothing"
        reader.note(Category.CANNOT, "not-a-boolean", text, "insecureSkipVerify", severity=NoteSeverity.HIGH)
    tls = ClientTLS(
        source=reader.source(),
        mode=reader.text("mode"),
        sni=reader.text("sni"),
        names=reader.texts("subjectAltNames"),
        credential=reader.text("credentialName"),
        ca_file=reader.text("caCertificates"),
        client_files=(reader.text("clientCertificate"), reader.text("privateKey")),
        skip=skip not in (None, False),
        crl=reader.text("caCrl"),
    )
    if tls.skip and (tls.names or tls.ca_file):
        text = "contradicts caCertificates and subjectAltNames, which then verify nothing; Istio refuses both together"
        reader.note(Category.CANNOT, "contradiction", text, "insecureSkipVerify", severity=NoteSeverity.HIGH)
    return tls


def unread_rule(inputs: Inputs, host: str) -> HopTLS | None:
    """Returns unknown TLS for a hop if a DestinationRule without a host, or of an unsupported version, may apply to it."""
    unread = inputs.unread_versions(DESTINATION_RULE)
    for document in (*unread, *inputs.of(DESTINATION_RULE)):
        name = document.spec.get("host")
        if not isinstance(name, str) or (document in unread and _covers(fqdn(name, document.namespace), host)):
            why = f"is of version {document.api_version}, which is not read" if document in unread else "names no host"
            return HopTLS(OldLevel.UNKNOWN, f"{document.name} {why}", was_plaintext=True)
    return None
