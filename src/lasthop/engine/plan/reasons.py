"""Condition types and reasons, as the spec spells them; our own are marked. Imports nothing heavy: the CLI starts quickly."""

from __future__ import annotations

from typing import Final, NamedTuple

ACCEPTED: Final = "Accepted"
PROGRAMMED: Final = "Programmed"
RESOLVED_REFS: Final = "ResolvedRefs"
CONFLICTED: Final = "Conflicted"
PARTIALLY_INVALID: Final = "PartiallyInvalid"
OVERLAPPING_TLS_CONFIG: Final = "OverlappingTLSConfig"
INSECURE_FRONTEND_VALIDATION_MODE: Final = "InsecureFrontendValidationMode"
SUPPORTED_VERSION: Final = "SupportedVersion"

UNSUPPORTED_VERSION: Final = "UnsupportedVersion"
NOT_SERVED: Final = "NotServed"
"""Ours: a CRD exists, and its objects cannot be read."""
INVALID: Final = "Invalid"
PENDING: Final = "Pending"
TARGET_NOT_FOUND: Final = "TargetNotFound"

ADDRESS_NOT_ASSIGNED: Final = "AddressNotAssigned"
ADDRESS_NOT_USABLE: Final = "AddressNotUsable"
ADDRESSES_ASSIGNED: Final = "AddressesAssigned"
ASSIGNED: Final = "Assigned"
PARTIALLY_ASSIGNED: Final = "PartiallyAssigned"
NOT_ASSIGNED: Final = "NotAssigned"
UNSUPPORTED_ADDRESS: Final = "UnsupportedAddress"
INVALID_PARAMETERS: Final = "InvalidParameters"
LISTENERS_NOT_VALID: Final = "ListenersNotValid"
INVALID_CLIENT_CERTIFICATE_REF: Final = "InvalidClientCertificateRef"

HOSTNAME_CONFLICT: Final = "HostnameConflict"
PROTOCOL_CONFLICT: Final = "ProtocolConflict"
PORT_UNAVAILABLE: Final = "PortUnavailable"
UNSUPPORTED_PROTOCOL: Final = "UnsupportedProtocol"
INVALID_CERTIFICATE_REF: Final = "InvalidCertificateRef"
INVALID_CA_CERTIFICATE_KIND: Final = "InvalidCACertificateKind"
OVERLAPPING_HOSTNAMES: Final = "OverlappingHostnames"
CONFIGURATION_CHANGED: Final = "ConfigurationChanged"
INVALID_ROUTE_KINDS: Final = "InvalidRouteKinds"

NOT_ALLOWED: Final = "NotAllowed"
PARENT_NOT_ACCEPTED: Final = "ParentNotAccepted"
PARENT_NOT_PROGRAMMED: Final = "ParentNotProgrammed"

NO_MATCHING_PARENT: Final = "NoMatchingParent"
NO_MATCHING_LISTENER_HOSTNAME: Final = "NoMatchingListenerHostname"
NOT_ALLOWED_BY_LISTENERS: Final = "NotAllowedByListeners"
UNSUPPORTED_VALUE: Final = "UnsupportedValue"
INCOMPATIBLE_FILTERS: Final = "IncompatibleFilters"
BACKEND_NOT_FOUND: Final = "BackendNotFound"
INVALID_KIND: Final = "InvalidKind"
REF_NOT_PERMITTED: Final = "RefNotPermitted"
INVALID_BACKEND_TLS: Final = "InvalidBackendTLS"
"""Ours: upstream requires ResolvedRefs=False for a backend whose policy is invalid and names no reason."""

POLICIES_UNKNOWN: Final = "PoliciesUnknown"
"""Ours: some input that may contain a BackendTLSPolicy for the backend has not been read."""

INTERNAL_ERROR: Final = "InternalError"
REFUSED_BY_PROXY: Final = "RefusedByProxy"
"""Ours, these two: what could not be translated for Envoy, and what Envoy did not take. Both answer 500."""

INVALID_CA_CERTIFICATE_REF: Final = "InvalidCACertificateRef"
NO_VALID_CA_CERTIFICATE: Final = "NoValidCACertificate"
EXPIRED_CERTIFICATE: Final = "ExpiredCertificate"
"""Ours; the spec suggests the name."""
NOT_YET_VALID_CERTIFICATE: Final = "NotYetValidCertificate"
"""Ours."""
INVALID_REVOCATION_LIST: Final = "InvalidRevocationList"
REVOCATION_LIST_NOT_CURRENT: Final = "RevocationListNotCurrent"
"""Ours, these two: a CRL beside a CA that cannot be used, or not now. What needs it fails."""

WAIVER_NOT_PERMITTED: Final = "WaiverNotPermitted"
WAIVER_EXPIRED: Final = "WaiverExpired"
TLS_VERSION_NOT_PERMITTED: Final = "TLSVersionNotPermitted"
PLAINTEXT_NOT_PERMITTED: Final = "PlaintextNotPermitted"
PINNED_ONLY_NOT_PERMITTED: Final = "PinnedOnlyNotPermitted"
WEAK_CERTIFICATE_NOT_PERMITTED: Final = "WeakCertificateNotPermitted"
EXTERNAL_HOSTNAME_NOT_PERMITTED: Final = "ExternalHostnameNotPermitted"
"""Ours, these seven: what a GatewayProfile forbids, and what time has ended."""
VERIFICATION_DEGRADED: Final = "VerificationDegraded"
INSECURE_BACKEND_VERIFICATION: Final = "InsecureBackendVerification"
"""Ours, these two: while a waiver is in effect."""
VERIFICATION_WEAKENED: Final = "VerificationWeakened"
BACKENDS_WEAKENED: Final = "BackendsWeakened"
"""Ours, these two: while a backend is verified less than it was, and nobody has acknowledged it; on routes, policies and
XBackends, and on the Gateway."""
NO_LONGER_VERIFIED: Final = "NoLongerVerified"
"""The reason of both."""

POLICY_STATUS_FULL: Final = "PolicyStatusFull"
NO_ROOM: Final = "NoRoom"
"""Ours, these two: on a Gateway, while a policy that it needs has no room for it in its status; what needs it fails."""

BACKEND_CONNECTED: Final = "BackendConnected"
HANDSHAKES_SUCCEED: Final = "HandshakesSucceed"
CONNECTIONS_SUCCEED: Final = "ConnectionsSucceed"
HANDSHAKE_FAILED: Final = "HandshakeFailed"
CONNECTION_FAILED: Final = "ConnectionFailed"
REQUESTS_FAILED: Final = "RequestsFailed"
NO_ENDPOINTS: Final = "NoEndpoints"
NOT_TRIED: Final = "NotTried"
BACKEND_FAILING: Final = "BackendFailing"
"""Ours, these nine: what has happened on the wire. All others say what is to happen."""


class ConditionType(NamedTuple):
    """What everything that reads or writes conditions has to know of a type."""

    negative: bool = False
    """True is bad news; of all others False is."""
    weakened: bool = False
    """There only while less is verified than could be, or less works than was asked: the object itself does what it should,
    and that is worth knowing."""
    event: bool = False
    """A change is worth an Event."""
    observed: bool = False
    """It says what has happened, so that Unknown is no bad news: nothing has happened yet."""


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
"""Every type that Lasthop writes at some time."""


def condition_type(type: str) -> ConditionType:
    """Returns what is known of a type; one that is not ours is taken as the usual kind, which is good news when true."""
    return CONDITION_TYPES.get(type, ConditionType())
