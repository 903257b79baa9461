"""The requirements that cases test: literal quotations of specifications. `[…]` marks an omission."""

from __future__ import annotations

from typing import Final

from lasthop_judge.model import Requirement

_GEP: Final = "GEP-1897"
_API: Final = "BackendTLSPolicy v1, comment of "

# --- GEP-1897 and the API -------------------------------------------------------------------------------------------

CONNECT: Final = Requirement(
    "The `BackendTLSPolicy` tells a client “Connect to this service using TLS”. This is unconditional to the type of traffic "
    "the gateway client is forwarding.",
    f"{_GEP}, How a client behaves",
)
LISTENERS: Final = Requirement(
    "For instance, the following will all have the gateway client add TLS if the backend is targeted by a BackendTLSPolicy: "
    "* A Gateway accepts traffic on an HTTP listener * A Gateway accepts and terminates TLS on an HTTPS listener * A Gateway "
    "accepts traffic on a TCP listener",
    f"{_GEP}, How a client behaves",
)
VERIFY: Final = Requirement(
    "if a Service matches a BackendTLSPolicy, then assume the connection is TLS, and verify that the TargetRef’s certificate "
    "can be validated by the client (Gateway) using the provided certificates and hostname before the connection is made",
    f"{_GEP}, API",
)
NEVER_PLAINTEXT: Final = Requirement(
    "For an invalid BackendTLSPolicy, implementations MUST NOT fall back to unencrypted (plaintext) connections. Instead, the "
    "corresponding TLS connection MUST fail, and the client MUST receive an HTTP 5xx error response.",
    f"{_GEP}, API",
)
INVALID_REF: Final = Requirement(
    "If any of the CACertificateRefs cannot be resolved (e.g., the referenced resource does not exist) or is misconfigured "
    "(e.g., ConfigMap does not contain a key named `ca.crt`), the `ResolvedRefs` status condition MUST be set to `False` with "
    "`Reason: InvalidCACertificateRef`. Connections using that CACertificateRef MUST fail, and the client MUST receive an "
    "HTTP 5xx error response.",
    f"{_GEP}, API",
)
MALFORMED_REF: Final = Requirement(
    "A CACertificateRef is considered invalid when it refers to a nonexistent resource or when the data within that resource "
    "is malformed.",
    f"{_API}InvalidCACertificateRef",
)
MALFORMED_FAILS: Final = Requirement(
    "A CACertificateRef is considered invalid when it refers to a nonexistent resource or when the data within that resource "
    "is malformed. […] Connections using an invalid CACertificateRef MUST fail, and the client MUST receive an HTTP 5xx error "
    "response.",
    f"{_API}InvalidCACertificateRef and caCertificateRefs",
)
MESSAGE: Final = Requirement(
    "In this case, the Reason must be set to `InvalidCACertificateRef` and the Message of the Condition must indicate which "
    "reference is invalid and why.",
    f"{_API}caCertificateRefs",
)
INVALID_KIND: Final = Requirement(
    "References to objects with an unsupported Group and Kind are not valid, and MUST be rejected by the implementation with "
    "the `ResolvedRefs` status condition set to `False` and `Reason: InvalidKind`.",
    f"{_GEP}, API",
)
KIND_FAILS: Final = Requirement(
    "A CACertificateRef is invalid if: […] * It refers to an unknown or unsupported kind of resource. […] Connections using "
    "an invalid CACertificateRef MUST fail, and the client MUST receive an HTTP 5xx error response.",
    f"{_API}caCertificateRefs",
)
ALL_INVALID: Final = Requirement(
    "If ALL CACertificateRefs are invalid, the implementation MUST also ensure the `Accepted` Condition on the "
    "BackendTLSPolicy is set to `status: False`, with a Reason `NoValidCACertificate`.",
    f"{_API}caCertificateRefs",
)
ANY_INVALID: Final = Requirement(
    "In all cases, the implementation MUST ensure the `ResolvedRefs` Condition on the BackendTLSPolicy is set to "
    "`status: False`, with a Reason and Message that indicate the cause of the error. Connections using an invalid "
    "CACertificateRef MUST fail, and the client MUST receive an HTTP 5xx error response.",
    f"{_API}caCertificateRefs",
)
CORE_REF: Final = Requirement(
    "Support: Core - An optional single reference to a Kubernetes ConfigMap, with the CA certificate in a key named `ca.crt`.",
    f"{_API}caCertificateRefs",
)
MORE_REFS: Final = Requirement(
    "Support: Implementation-specific - More than one reference, other kinds of resources, or a single reference that "
    "includes multiple certificates.",
    f"{_API}caCertificateRefs",
)
OTHER_NAMESPACE: Final = Requirement("References to a resource in a different namespace are invalid.", f"{_GEP}, API")
WELL_KNOWN: Final = Requirement(
    "If an implementation does not support the WellKnownCACertificates, or the provided value is unsupported,the "
    "BackendTLSPolicy is considered invalid, and the implementation MUST set the `Accepted` Condition to `False`, with a "
    "reason of `Invalid` and a message explaining this.",
    f"{_GEP}, API",
)
SNI: Final = Requirement("Hostname MUST be used as the SNI to connect to the backend (RFC 6066).", f"{_API}hostname")
AUTHENTICATE: Final = Requirement(
    "Hostname MUST be used for authentication and MUST match the certificate served by the matching backend, unless "
    "SubjectAltNames is specified.",
    f"{_API}hostname",
)
NOT_AUTHENTICATE: Final = Requirement(
    "If SubjectAltNames are specified, Hostname can be used for certificate selection but MUST NOT be used for "
    "authentication. If you want to use the value of the Hostname field for authentication, you MUST add it to the "
    "SubjectAltNames list.",
    f"{_API}hostname",
)
SANS: Final = Requirement(
    "When specified the certificate served from the backend MUST have at least one Subject Alternate Name matching one of "
    "the specified SubjectAltNames.",
    f"{_API}subjectAltNames",
)
URI_SAN: Final = Requirement(
    "URI contains Subject Alternative Name specified in a full URI format. It MUST include both a scheme (e.g., “http” or "
    "“ftp”) and a scheme-specific-part.",
    f"{_API}subjectAltNames[].uri",
)
OLDER_WINS: Final = Requirement(
    "When more than one BackendTLSPolicy selects the same target and sectionName, implementations MUST determine precedence "
    "using the following criteria, continuing on ties: The older policy by creation timestamp takes precedence.",
    f"{_API}targetRefs",
)
FIRST_BY_NAME: Final = Requirement(
    "The policy appearing first in alphabetical order by {namespace}/{name}.",
    f"{_API}targetRefs",
)
CONFLICTED: Final = Requirement(
    "For any BackendTLSPolicy that does not take precedence, the implementation MUST ensure the `Accepted` Condition is set "
    "to `status: False`, with Reason `Conflicted`.",
    f"{_API}targetRefs",
)
SECTION: Final = Requirement(
    "TargetRef has been changed to `LocalPolicyTargetReferenceWithSectionName`, wherein the `SectionName` field is "
    "interpreted as a port name for a Service.",
    f"{_GEP}, Answered Questions",
)
SECTION_BESIDE: Final = Requirement(
    "BackendTLSPolicies targeting the same Service with and without a section name […] HTTP request sent to Service using the "
    "BackendTLSPolicy with section name should succeed",
    "the official conformance test BackendTLSPolicyConflictResolution",
)
SECTION_MISSING: Final = Requirement(
    "If a SectionName is specified, but does not exist on the targeted object, the Policy must fail to attach, and the policy "
    "implementation should record a `ResolvedRefs` or similar Condition in the Policy's status.",
    "LocalPolicyTargetReferenceWithSectionName, comment of sectionName",
)
WHOLE_SERVICE: Final = Requirement(
    "Note that this config applies to the entire referenced resource by default", f"{_API}targetRefs"
)
UDP: Final = Requirement(
    "If a policy explicitly attaches to a UDP port of a Service (that is, the `targetRef` has a `sectionName` specifying a "
    "single port or the service has only 1 port), the `Accepted: False` Condition with `Reason: Invalid` MUST be set.",
    f"{_GEP}, API",
)
MIXED_UDP: Final = Requirement(
    "If the policy attaches to a mix of TCP and UDP ports, implementations SHOULD include a warning in the `Accepted` "
    "condition message (`ancestors.conditions`); the policy will only be effective for the TCP ports.",
    f"{_GEP}, API",
)
OWN_STATUS: Final = Requirement(
    "Implementations MUST NOT modify any status other than their own. Ownership of a status is determined by the "
    "`controllerName`, which identifies the responsible controller.",
    f"{_GEP}, API",
)
NO_POLICY: Final = Requirement(
    "| HTTPRoute | No listener tls | No | No |",
    f"{_GEP}, experimental edition, How a client behaves: a table of route type, Gateway config, “Backend is targeted by a "
    "BackendTLSPolicy?” and “Connect to backend with TLS?”",
)
OBSERVED_GENERATION: Final = Requirement(
    "observedGeneration represents the .metadata.generation that the condition was set based upon. For instance, if "
    ".metadata.generation is currently 12, but the .status.conditions[x].observedGeneration is 9, the condition is out of "
    "date with respect to the current state of the instance.",
    "Kubernetes, comment of metav1.Condition",
)
TRANSITION: Final = Requirement(
    "lastTransitionTime is the last time the condition transitioned from one status to another. This should be when the "
    "underlying condition changed.",
    "Kubernetes, comment of metav1.Condition",
)
ACCEPTED: Final = Requirement(
    "PolicyReasonAccepted is used with the “Accepted” condition when the policy has been accepted by the targeted resource.",
    "PolicyReasonAccepted, its comment",
)
RESOLVED: Final = Requirement(
    "This condition indicates whether the controller was able to resolve all object references for the BackendTLSPolicy. "
    "Possible reasons for this condition to be True are: * “ResolvedRefs”",
    f"{_API}ResolvedRefs",
)
ANCESTOR: Final = Requirement(
    "For example, in BackendTLSPolicy, the Policy attaches to a Service that is used as a backend in a HTTPRoute that is "
    "itself attached to a Gateway. In this case, the relevant object for status is the Gateway, and that is the ancestor "
    "object referred to in this status.",
    "PolicyAncestorStatus, its comment",
)
CLIENT_CERTIFICATE: Final = Requirement(
    "ClientCertificateRef references an object that contains a client certificate and its associated private key. It can "
    "reference standard Kubernetes resources, i.e., Secret, or implementation-specific custom resources.",
    "Gateway v1, comment of tls.backend.clientCertificateRef",
)

_UNION: Final = f"{_GEP}, BackendTLSPolicy is a union feature"
GRPC_ROUTE: Final = Requirement(
    "An implementation that claims support for `GRPCRoute` and `BackendTLSPolicy` MUST support the usage of a "
    "`BackendTLSPolicy` on a Backend being used by a `GRPCRoute`.",
    _UNION,
)
MIRROR: Final = Requirement(
    "An implementation that claims support for `HTTPRouteRequestMirror` and `BackendTLSPolicy` MUST support the usage of a "
    "`BackendTLSPolicy` on a Backend being used by a mirror filter.",
    _UNION,
)
TLS_ROUTE: Final = Requirement(
    "Implementations that claim some kind of route with TLS termination (eg.: `HTTPRoute`, `GRPCRoute`, `TLSRoute with "
    "termination` or `TCPRoute with termination`) and the support of `BackendTLSPolicy` MUST support the re-encryption of the "
    "traffic using a `BackendTLSPolicy`.",
    _UNION,
)

# --- GEP-4274 -------------------------------------------------------------------------------------------------------

TLS_ROUTE_CHECKS: Final = Requirement(
    f"{TLS_ROUTE.sentence} […] Ensure that TLSRoute implementations can configure backend TLS connections with: * CA "
    "certificate validation * SNI configuration * Hostname verification",
    f"{TLS_ROUTE.source}, and GEP-4274, Goals",
)
"""GEP-4274 is provisional: the duty is that of GEP-1897."""

# --- GEP-4152 -------------------------------------------------------------------------------------------------------

SKIP: Final = Requirement(
    "Enable connecting to backends over TLS without requiring certificate verification.", "GEP-4152, Goals"
)
SKIP_PER_BACKEND: Final = Requirement(
    "As an application developer, I want the option to disable backend TLS certificate verification on a per-backend basis, "
    "so I can connect to services using dynamically generated or self-signed certificates during development or testing.",
    "GEP-4152, User Stories",
)
PINS: Final = Requirement(
    "instead of bypassing TLS validation, the gateway verifies that the backend’s certificate matches a known fingerprint or "
    "public key hash",
    "GEP-4152, Motivation",
)
SECURE_DEFAULT: Final = Requirement(
    "Maintain a secure-by-default approach, with certificate verification enabled unless explicitly opted out.",
    "GEP-4152, Goals",
)
PERMISSION: Final = Requirement(
    "As a gateway operator, I want to control whether skipping TLS validation is permitted for specific Gateways.",
    "GEP-4152, User Stories",
)
INDICATORS: Final = Requirement(
    "Provide clear runtime indicators that security is degraded when TLS validation is disabled.", "GEP-4152, Goals"
)

# --- RFCs -----------------------------------------------------------------------------------------------------------

LABELS: Final = Requirement(
    "Each label MUST match in order for the names to be considered a match, except as supplemented by the rule about "
    "checking wildcard labels in presented identifiers",
    "RFC 9525, section 6.3",
)
CASE: Final = Requirement(
    "matching of the reference identifier against the presented identifier MUST be performed by comparing the set of domain "
    "name labels using a case-insensitive ASCII comparison",
    "RFC 9525, section 6.3",
)
WILDCARD: Final = Requirement(
    "The wildcard character appears only as the complete content of the left-most label. If the requirements are not met, "
    "the presented identifier is invalid and MUST be ignored.",
    "RFC 9525, section 6.3",
)
ONE_WILDCARD: Final = Requirement("There is only one wildcard character.", "RFC 9525, section 6.3")
ONE_LABEL: Final = Requirement(
    "A wildcard in a presented identifier can only match one label in a reference identifier.", "RFC 9525, section 6.3"
)
IDN: Final = Requirement(
    "A-labels MUST be compared as case-insensitive ASCII. Each label MUST match in order for the domain names to be "
    "considered to match",
    "RFC 9525, section 6.3",
)
NO_CN: Final = Requirement(
    "The Common Name RDN MUST NOT be used to identify a service because it is not strongly typed",
    "RFC 9525, section 2",
)
URI_CASE: Final = Requirement(
    "The other generic syntax components are assumed to be case-sensitive unless specifically defined otherwise by the scheme",
    "RFC 3986, section 6.2.2.1",
)
DATES: Final = Requirement("The certificate validity period includes the current time.", "RFC 5280, section 6.1.3 (a)(2)")
SIGNATURE: Final = Requirement(
    "The signature on the certificate can be verified using working_public_key_algorithm, the working_public_key, and the "
    "working_public_key_parameters.",
    "RFC 5280, section 6.1.3 (a)(1)",
)
NOT_A_CA: Final = Requirement(
    "If the basic constraints extension is not present in a version 3 certificate, or the extension is present but the cA "
    "boolean is not asserted, then the certified public key MUST NOT be used to verify certificate signatures.",
    "RFC 5280, section 4.2.1.9",
)
PATH_LENGTH: Final = Requirement(
    "it gives the maximum number of non-self-issued intermediate certificates that may follow this certificate in a valid "
    "certification path",
    "RFC 5280, section 4.2.1.9",
)
KEY_USAGE: Final = Requirement(
    "If the keyUsage extension is present, then the subject public key MUST NOT be used to verify signatures on certificates "
    "or CRLs unless the corresponding keyCertSign or cRLSign bit is set.",
    "RFC 5280, section 4.2.1.3",
)
EXTENDED_USAGE: Final = Requirement(
    "If the extension is present, then the certificate MUST only be used for one of the purposes indicated.",
    "RFC 5280, section 4.2.1.12",
)
CRITICAL: Final = Requirement(
    "A certificate-using system MUST reject the certificate if it encounters a critical extension it does not recognize or a "
    "critical extension that contains information that it cannot process.",
    "RFC 5280, section 4.2",
)
CONSTRAINTS: Final = Requirement(
    "indicates a name space within which all subject names in subsequent certificates in a certification path MUST be located",
    "RFC 5280, section 4.2.1.10",
)
EXCLUDED: Final = Requirement(
    "Any name matching a restriction in the excludedSubtrees field is invalid regardless of information appearing in the "
    "permittedSubtrees.",
    "RFC 5280, section 4.2.1.10",
)
SIGNATURES_REQUIRED: Final = Requirement(
    "A TLS-compliant application MUST support digital signatures with rsa_pkcs1_sha256 (for certificates), "
    "rsa_pss_rsae_sha256 (for CertificateVerify and certificates), and ecdsa_secp256r1_sha256.",
    "RFC 8446, section 9.1",
)
MD5: Final = Requirement(
    "Any endpoint receiving any certificate which it would need to validate using any signature algorithm using an MD5 hash "
    "MUST abort the handshake with a “bad_certificate” alert.",
    "RFC 8446, section 4.4.2.4",
)
ORDER: Final = Requirement(
    "all implementations SHOULD be prepared to handle potentially extraneous certificates and arbitrary orderings from any "
    "TLS version, with the exception of the end-entity certificate which MUST be first",
    "RFC 8446, section 4.4.2",
)
HTTP2: Final = Requirement("HTTP/2 over TLS uses the “h2” protocol identifier.", "RFC 9113, section 3.2")
TLS_1_1: Final = Requirement("Implementations MUST NOT negotiate TLS version 1.1", "RFC 9325, section 3.1.1")
TLS_1_2: Final = Requirement("Implementations MUST support TLS 1.2", "RFC 9325, section 3.1.1")
TLS_1_3: Final = Requirement("Implementations SHOULD support TLS 1.3", "RFC 9325, section 3.1.1")
