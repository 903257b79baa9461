"""What to do about a finding that has no advice of its own, by its reason."""

from __future__ import annotations

from typing import Final

from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding

REMEDIES: Final = {
    reasons.BACKEND_NOT_FOUND: "Create the Service or XBackend, or correct name, namespace and port of the reference.",
    reasons.REF_NOT_PERMITTED: "Create a ReferenceGrant in the namespace that is referred to, or move the object there.",
    reasons.NO_MATCHING_PARENT: "Correct the parentRef, or create the Gateway and its GatewayClass.",
    reasons.NOT_ALLOWED: "Allow its namespace in spec.allowedListeners of the Gateway, or move the ListenerSet.",
    reasons.NOT_ALLOWED_BY_LISTENERS: "Widen allowedRoutes of the listener, or move the route.",
    reasons.NO_MATCHING_LISTENER_HOSTNAME: "Let the hostnames of route and listener overlap.",
    reasons.INVALID_CERTIFICATE_REF: "Put a PEM certificate chain and its key into the Secret, as tls.crt and tls.key.",
    reasons.INVALID_CLIENT_CERTIFICATE_REF: "Put a PEM certificate chain and its key into the Secret, as tls.crt and tls.key.",
    reasons.INVALID_CA_CERTIFICATE_REF: "Put the CA's PEM certificate under the key ca.crt, or drop the reference.",
    reasons.NO_VALID_CA_CERTIFICATE: "Put the PEM certificate of the backend's CA under the key ca.crt of a ConfigMap.",
    reasons.EXPIRED_CERTIFICATE: "Replace the certificate with a current one.",
    reasons.NOT_YET_VALID_CERTIFICATE: "Use a certificate that is valid now, or wait for its first day.",
    reasons.TARGET_NOT_FOUND: "Correct the targetRef: its name, or its sectionName, which is the name of a port.",
    reasons.CONFLICTED: "Remove one of the policies, or give each a port of its own by sectionName.",
    reasons.HOSTNAME_CONFLICT: "Give each listener of a port its own hostname.",
    reasons.PROTOCOL_CONFLICT: "Give each protocol its own port.",
    reasons.PORT_UNAVAILABLE: "Give the listener another port.",
    reasons.ADDRESS_NOT_USABLE: "Give each Gateway an address or a port of its own.",
    reasons.INVALID_BACKEND_TLS: "Fix the policy or XBackend that is named.",
    "InvalidList": "Write kind List and items, a list of objects.",
    "InvalidYAML": "Fix the text at this line or shortly before it.",
    "NotReached": "Refer to the targets in a route of a Gateway, or remove the policy.",
}


def remedy(finding: Finding) -> str:
    """Returns what to do: what the finding itself advises, or the usual remedy for its reason."""
    return finding.remedy if finding.remedy or finding.advised else REMEDIES.get(finding.reason, "")
