"""Lists the releases of the Gateway API whose own suite can run, each with its CRDs."""

from __future__ import annotations

from dataclasses import dataclass

_ROUTES = {
    # profile: the feature without which nothing of it can pass
    "GATEWAY-HTTP": "HTTPRoute",
    "GATEWAY-TLS": "TLSRoute",
    "GATEWAY-GRPC": "GRPCRoute",
}
_TRANSPORT = {"GATEWAY-TCP": "TCPRoute", "GATEWAY-UDP": "UDPRoute"}
_OLD_ECHO = "sigs.k8s.io/gateway-api/conformance/echo-basic"
_OLD_NOTE = """\
The backends are this release's own `conformance/echo-basic`, whatever tag the suite's manifests name; the DNS server is
CoreDNS v1.12.2, as they say. Both are built from Go modules."""


@dataclass(frozen=True)
class Release:
    version: str
    module: str  # folder under go/
    echo_basic: str  # the Go package of the suite's backend
    profiles: dict[str, str]
    note: str  # for the report: differences from the names in the suite's manifests
    coredns: bool = False  # the suite's UDP backend is a DNS server


CURRENT = Release(
    "v1.7.0",
    "suite",
    "sigs.k8s.io/gateway-api-conformance-images/echo-basic",
    _ROUTES | _TRANSPORT,
    """\
Where the suite's manifests name the backend image v0.2.0 (`udp-echo`) it is v0.1.0: v0.2.0 cannot be had as a Go module.""",
)
RELEASES = {
    release.version: release
    for release in (
        CURRENT,
        Release("v1.6.3", "suite-v1.6.3", _OLD_ECHO, _ROUTES | _TRANSPORT, _OLD_NOTE, coredns=True),
        Release("v1.5.1", "suite-v1.5.1", _OLD_ECHO, _ROUTES, _OLD_NOTE, coredns=True),
        Release("v1.4.1", "suite-v1.4.1", _OLD_ECHO, _ROUTES, _OLD_NOTE, coredns=True),
    )
}
