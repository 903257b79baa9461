"""Lists the kinds that GKE reads."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.kinds import KINDS, Kind
from lasthop.base.api.meta import Object
from lasthop_import.documents import Document
from lasthop_import.notes import Category, Note, SourceRef

GROUP: Final = "networking.gke.io"
CLOUD_GROUP: Final = "cloud.google.com"
MULTI_CLUSTER: Final = (
    Kind("MultiClusterIngress", GROUP, ("v1",), "multiclusteringresses", Object),
    Kind("MultiClusterService", GROUP, ("v1",), "multiclusterservices", Object),
    Kind("ServiceImport", "net.gke.io", ("v1",), "serviceimports", Object),
)
BACKEND_CONFIG: Final = Kind("BackendConfig", CLOUD_GROUP, ("v1", "v1beta1"), "backendconfigs", Object)
FRONTEND_CONFIG: Final = Kind("FrontendConfig", GROUP, ("v1beta1",), "frontendconfigs", Object)
MANAGED_CERTIFICATE: Final = Kind("ManagedCertificate", GROUP, ("v1", "v1beta2", "v1beta1"), "managedcertificates", Object)
CLIENT_TLS: Final = Kind("GCPClientTLSPolicy", GROUP, ("v1", "v1alpha1"), "gcpclienttlspolicies", Object)
BACKEND_POLICY: Final = Kind("GCPBackendPolicy", GROUP, ("v1",), "gcpbackendpolicies", Object)
RESTRICTING: Final = tuple(
    Kind(name, GROUP, ("v1", "v1alpha1"), plural, Object)
    for name, plural in (
        ("GCPAuthzPolicy", "gcpauthzpolicies"),
        ("GCPServerTLSPolicy", "gcpservertlspolicies"),
        ("GCPRoutingExtension", "gcproutingextensions"),
        ("GCPTrafficExtension", "gcptrafficextensions"),
        ("GCPEdgeExtension", "gcpedgeextensions"),
    )
)
"""Policies that may refuse requests or clients. Extensions call a server for each request."""
OTHER_POLICIES: Final = tuple(
    Kind(name, GROUP, ("v1", "v1alpha1"), f"{name.lower()}s", Object)
    for name in ("GCPGatewayPolicy", "HealthCheckPolicy", "GCPSessionAffinityPolicy", "GCPTrafficDistributionPolicy")
)
"""Policies without an equivalent."""
GATEWAY: Final = KINDS["Gateway"]
ROUTES: Final = tuple(KINDS[name] for name in ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"))
TLS_POLICY: Final = KINDS["BackendTLSPolicy"]
GRANT: Final = KINDS["ReferenceGrant"]
OWN_KINDS: Final = (
    *MULTI_CLUSTER,
    *(BACKEND_CONFIG, FRONTEND_CONFIG, MANAGED_CERTIFICATE, CLIENT_TLS, BACKEND_POLICY, *RESTRICTING),
    *OTHER_POLICIES,
)
GATEWAY_KINDS: Final = (GATEWAY, *ROUTES, TLS_POLICY, GRANT)


def internal_note(document: Document) -> Note:
    text = "its load balancer was internal: only clients of its networks reached it"
    remedy = "Give the new Gateway an internal address, then accept this."
    return Note(Category.LOOSENED, "internal-load-balancer", text, SourceRef(document), remedy=remedy)
