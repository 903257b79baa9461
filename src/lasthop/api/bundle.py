"""Which releases of the Gateway API we know, and which of its features we implement."""

from __future__ import annotations

import re
from typing import Final

BUNDLE_VERSION: Final = "gateway.networking.k8s.io/bundle-version"
"""The annotation of every CRD of the Gateway API."""
KNOWN_MINORS: Final = range(4, 8)
KNOWN: Final = f"v1.{KNOWN_MINORS[0]} to v1.{KNOWN_MINORS[-1]}"

SUPPORTED_FEATURES: Final = tuple(
    sorted(
        {
            *("Gateway", "HTTPRoute", "GRPCRoute", "ReferenceGrant"),
            *("BackendTLSPolicy", "BackendTLSPolicySANValidation"),
            "GatewayAddressEmpty",
            "GatewayBackendClientCertificate",
            "GatewayFrontendClientCertificateValidation",
            "GatewayFrontendClientCertificateValidationInsecureFallback",
            "GatewayHTTPListenerIsolation",
            "GatewayHTTPSListenerDetectMisdirectedRequests",
            "GatewayInfrastructure",
            "GatewayPort8080",
            "GatewayRouteHostnameIntersectionPrecedence",
            "GatewayStaticAddresses",
            "GRPCRouteNamedRouteRule",
            "GRPCRouteRequestHeaderModifier",
            "HTTPRoute303RedirectStatusCode",
            "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode",
            "HTTPRouteBackendProtocolH2C",
            "HTTPRouteBackendProtocolWebSocket",
            "HTTPRouteBackendRequestHeaderModification",
            "HTTPRouteBackendTimeout",
            "HTTPRouteBackendURLRewrite",
            "HTTPRouteCORS",
            "HTTPRouteDestinationPortMatching",
            "HTTPRouteHostRewrite",
            "HTTPRouteMethodMatching",
            "HTTPRouteNamedRouteRule",
            "HTTPRouteParentRefPort",
            "HTTPRoutePathRedirect",
            "HTTPRoutePathRewrite",
            "HTTPRoutePortRedirect",
            "HTTPRouteQueryParamMatching",
            "HTTPRouteRequestMirror",
            "HTTPRouteRequestMultipleMirrors",
            "HTTPRouteRequestPercentageMirror",
            "HTTPRouteRequestTimeout",
            "HTTPRouteResponseHeaderModification",
            "HTTPRouteRetryCodes",
            "HTTPRouteRetryConnectionError",
            "HTTPRouteSchemeRedirect",
            "ListenerSet",
            "TCPRoute",
            "TLSRoute",
            "TLSRouteModeMixed",
            "TLSRouteModeTerminate",
            "UDPRoute",
        }
    )
)
"""What a GatewayClass says in `status.supportedFeatures`, by upstream's names. The conformance suite takes its tests from it,
so a feature stands here once its tests pass."""


def known(version: str) -> bool:
    """Whether a bundle version is one that we know; "" is that of a CRD that names none."""
    found = re.match(r"v1\.(\d+)\.\d", version)
    return found is not None and int(found[1]) in KNOWN_MINORS
