"""XBackend: a backend that declares its own address and TLS settings.

Like a BackendTLSPolicy, it rejects unknown fields in its spec: a field of a newer bundle might narrow trust. An
XBackend that cannot be completely decoded counts as absent, and references to it are invalid."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.gateway import SecretObjectReference
from lasthop.base.api.meta import Object, StringMap
from lasthop.base.api.policies import BackendTLSPolicyValidation, ForeignPolicyStatus, Strict
from lasthop.base.api.routes import SessionPersistence

GROUP: Final = "gateway.networking.x-k8s.io"
KIND: Final = "XBackend"

EXTERNAL_HOSTNAME: Final = "ExternalHostname"
ENDPOINT_SELECTOR: Final = "EndpointSelector"


class BackendPort(Strict, frozen=True):
    number: int = 0


class ExternalHostname(Strict, frozen=True):
    hostname: str = ""


class EndpointSelector(Strict, frozen=True):
    match_labels: StringMap = StringMap()


class XBackendTLS(Strict, frozen=True):
    mode: str = "None"
    client_certificate_ref: SecretObjectReference | None = None
    validation: BackendTLSPolicyValidation | None = None


class XBackendSpec(Strict, frozen=True):
    type: str = EXTERNAL_HOSTNAME
    port: BackendPort = BackendPort()
    external_hostname: ExternalHostname = ExternalHostname()
    endpoint_selector: EndpointSelector = EndpointSelector()
    session_persistence: SessionPersistence | None = None
    protocol: str = ""
    tls: XBackendTLS = XBackendTLS()


class XBackend(Object, frozen=True):
    spec: XBackendSpec = XBackendSpec()
    status: ForeignPolicyStatus = ForeignPolicyStatus()
    """Only the entries of other controllers matter."""

    @property
    def selects(self) -> bool:
        """Whether it selects its endpoints by labels."""
        return self.spec.type == ENDPOINT_SELECTOR
