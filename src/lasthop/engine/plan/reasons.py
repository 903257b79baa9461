"""The registry of reasons: one entry for each reason of a condition or a finding, with severity, remedy and documentation.

    BACKEND_NOT_FOUND = condition("BackendNotFound", remedy="Create the Service ...")     a reason of the spec, or our own
    NO_ENDPOINTS = finding("NoEndpoints", "a route leads to a Service port without ...")   beyond the conditions

A new finding is an entry here and the place that detects it. `lasthop check`, the log, the admission webhook, the grouping by
root cause (engine/outputs/findings/root_causes.py) and docs/reference.md read the entry. Imports nothing heavy: the CLI starts
quickly.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple, NewType

from lasthop.base.api.route_kinds import ROUTE_KINDS

Reason = NewType("Reason", str)
"""CamelCase. Only the entries of this module are reasons, which the type checker enforces."""


class Cause(Enum):
    """The error that a finding may follow from."""

    SAME_FILE = auto()
    """The first error in the same file."""
    UNREAD_POLICY = auto()
    """The error in a file that may contain a BackendTLSPolicy of the namespace and cannot be read."""
    NOT_ACCEPTED = auto()
    """Another error of the same Gateway, which is not programmed because it is not accepted."""
    OWN_TARGET = auto()
    """The error in the policy's own targetRefs."""
    AT_GATEWAY = auto()
    """The error of a policy that the message names, at the same Gateway; other Gateways may refuse it for another reason."""
    NAMED = auto()
    """The error of an object that the message names."""
    MISSING = auto()
    """The error in the broken file that contains the missing object, or in the local file that this object refers to."""
    UNSERVED = auto()
    """A Gateway without a GatewayClass, unless the finding names an object or is an error of one."""
    BROKEN_NEED = auto()
    """The error in the broken file that has an object of a kind in `needs`, unless the finding names an object or is an error
    of one."""


OF_POLICY: Final = (Cause.AT_GATEWAY, Cause.NAMED, Cause.MISSING)
REFUSED: Final = "is refused"
FILE_UNUSED: Final = "none of this file is applied"
CERTIFICATE_PAIR: Final = "Put a PEM certificate chain and its key into the Secret, as tls.crt and tls.key."


class ReasonEntry(NamedTuple):
    """The properties of all findings with one reason."""

    means: str = ""
    """The text in docs/reference.md; empty if the table of condition reasons has it."""
    warning: bool = False
    """The default severity is a warning."""
    remedy: str = ""
    """The default remedy."""
    follows: tuple[Cause, ...] = (Cause.MISSING,)
    """Where to look for its root cause, in this order."""
    needs: tuple[str, ...] = ()
    """Kinds of objects that may be missing without being named; a user who may not list them cannot judge the finding."""
    effect: str = "is invalid"
    """Describes the object where a report explains only the cause."""
    causes_others: bool = True
    """Other findings may follow from this one."""
    unreached: bool = False
    """The backends of the object appear in no report."""
    passes: bool = False
    """Almost every new object has this finding for a short time."""
    not_permitted: bool = False
    """A GatewayProfile forbids it."""


REASONS: Final[dict[str, ReasonEntry]] = {}
CONDITION_REASONS: Final[set[str]] = set()


def entry_of(reason: str) -> ReasonEntry:
    """Returns the entry of a reason, or an empty one: statuses on the API server may come from another version of Lasthop."""
    return REASONS.get(reason, ReasonEntry())


def finding(name: str, means: str, **properties: Any) -> Reason:
    """Registers a reason that only findings have. `properties` are the other fields of `ReasonEntry`."""
    assert name not in REASONS
    REASONS[name] = ReasonEntry(means, **properties)
    return Reason(name)


def condition(name: str, means: str = "", **properties: Any) -> Reason:
    """Registers a reason or a type of conditions. A negative condition with that reason is also a finding."""
    CONDITION_REASONS.add(name)
    return finding(name, means, **properties)


# --- conditions, as the spec spells them; our own are marked ---------------------------------------------------------

ACCEPTED: Final = condition("Accepted")
PROGRAMMED: Final = condition("Programmed")
RESOLVED_REFS: Final = condition("ResolvedRefs")
CONFLICTED: Final = condition(
    "Conflicted", remedy="Remove one of the policies, or give each a port of its own by sectionName."
)
PARTIALLY_INVALID: Final = condition("PartiallyInvalid")
OVERLAPPING_TLS_CONFIG: Final = condition("OverlappingTLSConfig")
INSECURE_FRONTEND_VALIDATION_MODE: Final = condition(
    "InsecureFrontendValidationMode",
    "the Gateway accepts clients without a valid certificate (`AllowInsecureFallback`)",
    warning=True,
)
SUPPORTED_VERSION: Final = condition("SupportedVersion")

UNSUPPORTED_VERSION: Final = condition("UnsupportedVersion")
NOT_SERVED: Final = condition(
    "NotServed",
    "in a cluster: the CRD of a kind serves no version that Lasthop reads; the objects that were read stay in "
    "force (a warning for a kind that was never read)",
)
"""Ours: a CRD exists, but its objects cannot be read."""
INVALID: Final = condition("Invalid", "a value that the schema does not admit", follows=(Cause.NOT_ACCEPTED, Cause.MISSING))
PENDING: Final = condition("Pending")
TARGET_NOT_FOUND: Final = condition(
    "TargetNotFound", remedy="Correct the targetRef: its name, or its sectionName, which is the name of a port."
)

ADDRESS_NOT_ASSIGNED: Final = condition("AddressNotAssigned")
ADDRESS_NOT_USABLE: Final = condition("AddressNotUsable")
ADDRESSES_ASSIGNED: Final = condition("AddressesAssigned")
ASSIGNED: Final = condition("Assigned")
PARTIALLY_ASSIGNED: Final = condition("PartiallyAssigned")
NOT_ASSIGNED: Final = condition("NotAssigned")
UNSUPPORTED_ADDRESS: Final = condition("UnsupportedAddress")
INVALID_PARAMETERS: Final = condition("InvalidParameters")
LISTENERS_NOT_VALID: Final = condition("ListenersNotValid")
INVALID_CLIENT_CERTIFICATE_REF: Final = condition("InvalidClientCertificateRef", remedy=CERTIFICATE_PAIR)

HOSTNAME_CONFLICT: Final = condition("HostnameConflict", remedy="Give each listener of a port its own hostname.")
PROTOCOL_CONFLICT: Final = condition("ProtocolConflict", remedy="Give each protocol its own port.")
PORT_UNAVAILABLE: Final = condition("PortUnavailable", remedy="Give the listener another port.")
UNSUPPORTED_PROTOCOL: Final = condition("UnsupportedProtocol", needs=("BackendTLSPolicy",))
INVALID_CERTIFICATE_REF: Final = condition("InvalidCertificateRef", remedy=CERTIFICATE_PAIR)
INVALID_CA_CERTIFICATE_KIND: Final = condition("InvalidCACertificateKind")
OVERLAPPING_HOSTNAMES: Final = condition("OverlappingHostnames")
CONFIGURATION_CHANGED: Final = condition("ConfigurationChanged")
INVALID_ROUTE_KINDS: Final = condition("InvalidRouteKinds")

NOT_ALLOWED: Final = condition(
    "NotAllowed",
    remedy="Allow its namespace in spec.allowedListeners of the Gateway, or move the ListenerSet.",
    needs=("Namespace",),
    unreached=True,
)
PARENT_NOT_ACCEPTED: Final = condition("ParentNotAccepted")
PARENT_NOT_PROGRAMMED: Final = condition("ParentNotProgrammed")

NO_MATCHING_PARENT: Final = condition(
    "NoMatchingParent",
    "no parentRef names a Gateway of Lasthop or one of its ListenerSets; the route or ListenerSet has no effect (in a "
    "cluster, where another controller may serve it, a warning)",
    remedy="Correct the parentRef, or create the Gateway and its GatewayClass.",
    follows=(Cause.NAMED, Cause.MISSING, Cause.UNSERVED, Cause.BROKEN_NEED),
    needs=("ListenerSet", "Gateway", "GatewayClass"),
    unreached=True,
)
NO_MATCHING_LISTENER_HOSTNAME: Final = condition(
    "NoMatchingListenerHostname", remedy="Let the hostnames of route and listener overlap."
)
NOT_ALLOWED_BY_LISTENERS: Final = condition(
    "NotAllowedByListeners",
    remedy="Widen allowedRoutes of the listener, or move the route.",
    needs=("Namespace",),
    unreached=True,
)
UNSUPPORTED_VALUE: Final = condition(
    "UnsupportedValue",
    "`allowedListeners` of a Gateway has an invalid label selector, or none: no ListenerSet is allowed. A warning: "
    "the kind is not served by this version; sessions of an XBackend or an XBackendTrafficPolicy that a rule cannot keep; "
    "`defaultScope` or `useDefaultGateways`, which have no effect",
)
INCOMPATIBLE_FILTERS: Final = condition("IncompatibleFilters")
BACKEND_NOT_FOUND: Final = condition(
    "BackendNotFound",
    remedy="Create the Service or XBackend, or correct name, namespace and port of the reference.",
    effect=REFUSED,
)
INVALID_KIND: Final = condition("InvalidKind")
REF_NOT_PERMITTED: Final = condition(
    "RefNotPermitted",
    remedy="Create a ReferenceGrant in the namespace that is referred to, or move the object there.",
    needs=("ReferenceGrant",),
    unreached=True,
)
INVALID_BACKEND_TLS: Final = condition(
    "InvalidBackendTLS", remedy="Fix the policy or XBackend that is named.", follows=OF_POLICY, effect=REFUSED
)
"""Ours: upstream requires ResolvedRefs=False for a backend whose policy is invalid and names no reason."""

POLICIES_UNKNOWN: Final = condition(
    "PoliciesUnknown",
    "a backend is closed because an unread BackendTLSPolicy may name it; in a cluster also without an "
    "object: [why no port can become plaintext](cluster.md#when-a-port-may-be-plaintext)",
    follows=(Cause.UNREAD_POLICY,),
)
"""Ours: some input that may contain a BackendTLSPolicy for the backend has not been read."""

INTERNAL_ERROR: Final = condition(
    "InternalError",
    "a bug in Lasthop: it could not process an object, which fails closed, or read a file, which counts as "
    "broken. Please report it",
)
REFUSED_BY_PROXY: Final = condition(
    "RefusedByProxy", "Envoy refused a part of its configuration, which is withheld; please report it"
)
"""Ours, these two: configuration that could not be translated for Envoy, or that Envoy refused. Both return 500."""

INVALID_CA_CERTIFICATE_REF: Final = condition(
    "InvalidCACertificateRef", remedy="Put the CA's PEM certificate under the key ca.crt, or drop the reference."
)
NO_VALID_CA_CERTIFICATE: Final = condition(
    "NoValidCACertificate", remedy="Put the PEM certificate of the backend's CA under the key ca.crt of a ConfigMap."
)
EXPIRED_CERTIFICATE: Final = condition("ExpiredCertificate", remedy="Replace the certificate with a current one.")
"""Ours; the spec suggests the name."""
NOT_YET_VALID_CERTIFICATE: Final = condition(
    "NotYetValidCertificate", remedy="Use a certificate that is valid now, or wait for its first day."
)
"""Ours."""
INVALID_REVOCATION_LIST: Final = condition("InvalidRevocationList")
REVOCATION_LIST_NOT_CURRENT: Final = condition("RevocationListNotCurrent")
"""Ours, these two: a CRL beside a CA is invalid or not current. Connections that need it fail."""

WAIVER_NOT_PERMITTED: Final = condition("WaiverNotPermitted", not_permitted=True)
WAIVER_EXPIRED: Final = condition("WaiverExpired")
TLS_VERSION_NOT_PERMITTED: Final = condition("TLSVersionNotPermitted", not_permitted=True)
PLAINTEXT_NOT_PERMITTED: Final = condition("PlaintextNotPermitted", follows=OF_POLICY, effect=REFUSED, not_permitted=True)
PINNED_ONLY_NOT_PERMITTED: Final = condition("PinnedOnlyNotPermitted", not_permitted=True)
WEAK_CERTIFICATE_NOT_PERMITTED: Final = condition("WeakCertificateNotPermitted", not_permitted=True)
EXTERNAL_HOSTNAME_NOT_PERMITTED: Final = condition("ExternalHostnameNotPermitted", not_permitted=True)
"""Ours, these seven: a GatewayProfile forbids the setting, or the waiver has expired."""
VERIFICATION_DEGRADED: Final = condition(
    "VerificationDegraded", "a VerificationWaiver is in effect at a Gateway", warning=True
)
INSECURE_BACKEND_VERIFICATION: Final = condition("InsecureBackendVerification")
"""Ours, these two: while a waiver is in effect."""
VERIFICATION_WEAKENED: Final = condition("VerificationWeakened")
BACKENDS_WEAKENED: Final = condition("BackendsWeakened")
"""Ours, these two: the verification of a backend is weaker than before and not acknowledged; on routes, policies and
XBackends, and on the Gateway."""
NO_LONGER_VERIFIED: Final = condition(
    "NoLongerVerified",
    "the verification of a backend of the route is weaker than before, without an acknowledgement; see "
    "[backend-tls.md](backend-tls.md#verified-less-than-before)",
)
"""The reason of `VerificationWeakened` and `BackendsWeakened`."""

POLICY_STATUS_FULL: Final = condition("PolicyStatusFull")
NO_ROOM: Final = condition("NoRoom")
"""Ours, these two: on a Gateway, while the status of a policy that it needs has no free ancestor entry; its connections
fail."""

BACKEND_CONNECTED: Final = condition("BackendConnected")
HANDSHAKES_SUCCEED: Final = condition("HandshakesSucceed")
CONNECTIONS_SUCCEED: Final = condition("ConnectionsSucceed")
HANDSHAKE_FAILED: Final = condition("HandshakeFailed")
CONNECTION_FAILED: Final = condition("ConnectionFailed")
REQUESTS_FAILED: Final = condition("RequestsFailed")
NO_ENDPOINTS: Final = condition(
    "NoEndpoints",
    "a route leads to a Service port without a ready endpoint; the message says whether a label, a port name or "
    "readiness is missing (in a cluster a warning, and nothing for Services that are scaled to zero)",
    passes=True,
)
NOT_TRIED: Final = condition("NotTried")
BACKEND_FAILING: Final = condition(
    "BackendFailing",
    "connections to a backend fail, as the proxies see it: on the BackendTLSPolicy or XBackend, or on the Service "
    "where there is no policy. Gone once a connection succeeds, or after 30 minutes without an attempt",
    causes_others=False,
)
"""Ours, these nine: observed traffic. All other conditions describe configuration."""

# --- findings beyond the conditions ---------------------------------------------------------------------------------

INVALID_LIST: Final = finding(
    "InvalidList",
    "a List without `items`, a list of objects, or of another kind than List or its items' kind with List at the end",
    remedy="Write kind List and items, a list of objects.",
)
INVALID_YAML: Final = finding(
    "InvalidYAML", "the text cannot be parsed", remedy="Fix the text at this line or shortly before it."
)
UNKNOWN_KIND: Final = finding(
    "UnknownKind",
    "no such `kind`, or not in that `apiVersion`, but similar to a kind that Lasthop reads; other kinds are skipped",
)
UNKNOWN_FIELD: Final = finding("UnknownField", "the schema has no such field")
REQUIRED: Final = finding("Required", "a field is missing")
RULE_VIOLATED: Final = finding("RuleViolated", "a rule (CEL) of the CRD does not hold; the message is the CRD's")
DUPLICATE: Final = finding("Duplicate", "the same name, key or entry twice in one object")
TOO_LARGE: Final = finding("TooLarge", "larger than an API server accepts")
DUPLICATE_OBJECT: Final = finding(
    "DuplicateObject", "the same object twice; the one in force stays", remedy="Remove one of the two."
)
EMPTY_FILE: Final = finding("EmptyFile", "a file that had objects is empty; the objects stay until the file is deleted")
UNREADABLE: Final = finding("Unreadable", "a file or folder cannot be read, or an object of a cluster cannot be decoded")
FOLDER_LOST: Final = finding("FolderLost", "the folder itself was removed; its last content stays in force")
LOCAL_FILE: Final = finding("LocalFile", "a file named by `lasthop.dev/file.KEY` cannot be used")
OLDER_PAIR_IN_FORCE: Final = finding(
    "OlderPairInForce",
    "the files of `tls.crt` and `tls.key` do not match; the last matching pair is in force",
    warning=True,
)
FILE_NOT_APPLIED: Final = finding(
    "FileNotApplied",
    "a broken file has no last good content, so none of its objects are in force",
    warning=True,
    follows=(Cause.SAME_FILE,),
    effect=FILE_UNUSED,
)
OLDER_TEXT_IN_FORCE: Final = finding(
    "OlderTextInForce",
    "a broken file's last good content is in force, not its current text",
    warning=True,
    follows=(Cause.SAME_FILE,),
    effect=FILE_UNUSED,
)
REPEATED_FOLDER: Final = finding("RepeatedFolder", "a link to a folder that is already read", warning=True)
STATE_NOT_SAVED: Final = finding(
    "StateNotSaved",
    "last good contents cannot be saved, so they would not survive a restart",
    warning=True,
    remedy="Check the state directory.",
)

API_SERVER_UNAVAILABLE: Final = finding(
    "APIServerUnavailable", "in a cluster: the API server does not answer; the last known objects stay in force"
)
FORBIDDEN: Final = finding(
    "Forbidden",
    "in a cluster: RBAC does not permit reading a kind; the message names verb, resource and remedy (a warning for optional "
    "kinds, and in `lasthop check`, which lists the findings that it cannot judge without the kind)",
)
UNAUTHORIZED: Final = finding("Unauthorized", "in a cluster: the API server does not accept the credentials for a kind")

NO_GATEWAY_CLASS: Final = finding(
    "NoGatewayClass",
    "in a folder, and in `check` of a cluster: the Gateway's class does not exist, or in a folder belongs to another "
    "controller, so nothing serves the Gateway",
    needs=("GatewayClass",),
    unreached=True,
)
NOTHING_SERVED: Final = finding(
    "NothingServed",
    "only in `check`: the folder contains no Gateway",
    remedy="Add a Gateway; lasthop init creates a small working folder.",
    follows=(Cause.BROKEN_NEED,),
    needs=("Gateway",),
    effect="nothing is served",
)
TOO_MANY_ENDPOINTS: Final = finding(
    "TooManyEndpoints",
    "a route leads to a Service port with more endpoints than are used; see [limits](#limits)",
    warning=True,
    remedy="Use several Services.",
)
SHADOWED: Final = finding(
    "Shadowed",
    "a ListenerSet of another namespace serves a hostname of the route with a more specific listener (on the route "
    "and on the Gateway); an older or more specific TLSRoute, TCPRoute or UDPRoute takes the connections of this one; "
    "or every port of a policy's Service has a policy with a sectionName",
    warning=True,
)
NOT_REACHED: Final = finding(
    "NotReached",
    "no Gateway reaches the policy's targets or the XBackend, or only by TLS Passthrough, so it has no effect",
    warning=True,
    remedy="Refer to the targets in a route of a Gateway, or remove the policy.",
    follows=(Cause.OWN_TARGET, Cause.UNSERVED, Cause.BROKEN_NEED),
    needs=(*ROUTE_KINDS, "ListenerSet", "Gateway", "GatewayClass", "ReferenceGrant"),
    effect="has no effect",
)
WAIVER_EXPIRES_SOON: Final = finding(
    "WaiverExpiresSoon",
    "a VerificationWaiver ends within a week",
    warning=True,
    remedy="Fix the backend's certificate by then, or extend the waiver.",
)
PLAINTEXT_BACKEND: Final = finding(
    "PlaintextBackend",
    "a plaintext backend that seems to serve TLS, without a BackendTLSPolicy: its port is 443 or named https, or an "
    "annotation of the Service enables TLS at other gateways; or an external XBackend without TLS",
    warning=True,
    needs=("BackendTLSPolicy",),
)
WARNING: Final = finding(
    "Warning",
    "a CA that expires soon; an expired or not yet valid CA among valid ones; a server certificate used as a CA; dates of a "
    "Gateway's own certificates; an option without effect; a UDP port",
    warning=True,
)


# --- condition types -------------------------------------------------------------------------------------------------


class ConditionType(NamedTuple):
    """The properties of a condition type."""

    negative: bool = False
    """Status True reports a problem (negative polarity); for other types False does."""
    weakened: bool = False
    """Present only while verification is weakened or the object is partly in effect. The object itself works as specified."""
    event: bool = False
    """A change emits an Event."""
    observed: bool = False
    """Reports observed traffic. Unknown means that no traffic was observed yet."""


CONDITION_TYPES: Final[dict[str, ConditionType]] = {
    ACCEPTED: ConditionType(event=True),
    PROGRAMMED: ConditionType(event=True),
    ADDRESSES_ASSIGNED: ConditionType(),
    RESOLVED_REFS: ConditionType(),
    SUPPORTED_VERSION: ConditionType(),
    OVERLAPPING_TLS_CONFIG: ConditionType(),
    CONFLICTED: ConditionType(negative=True),
    PARTIALLY_INVALID: ConditionType(negative=True),
    INSECURE_FRONTEND_VALIDATION_MODE: ConditionType(weakened=True),
    BACKEND_CONNECTED: ConditionType(observed=True),
    VERIFICATION_DEGRADED: ConditionType(weakened=True, event=True),
    INSECURE_BACKEND_VERIFICATION: ConditionType(weakened=True, event=True),
    VERIFICATION_WEAKENED: ConditionType(negative=True, event=True),
    BACKENDS_WEAKENED: ConditionType(weakened=True, event=True),
    POLICY_STATUS_FULL: ConditionType(weakened=True, event=True),
}
"""All condition types that Lasthop writes."""


def condition_type(type: str) -> ConditionType:
    """Returns the properties of a type. Foreign types count as positive polarity."""
    return CONDITION_TYPES.get(type, ConditionType())
