"""Cases about the precedence of policies, and about every kind of route to a backend with a policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lasthop_judge import requirements as r
from lasthop_judge.cases.build import IGNORED, PASSES, PLAINTEXT, REFUSED, REFUSED_5XX, neutral, serves
from lasthop_judge.cases.chains import below
from lasthop_judge.certificates import OTHER_CA, Recipe, leaf
from lasthop_judge.model import (
    HOSTNAME,
    CABundle,
    Case,
    CasePort,
    CaseService,
    Expected,
    ExpectedCondition,
    GatewayRole,
    Policy,
    Ref,
    Requirement,
    RouteType,
    Serving,
    StatusCheck,
)

OTHER: Final = CABundle("other", (OTHER_CA,))
NAMED: Final = leaf("one.example", "two.example")
ANY: Final = serves(NAMED, both=True)
TWO_PORTS: Final = (CaseService(ports=(CasePort("one", 8441, ANY), CasePort("two", 8442, ANY))),)


def precedence(name: str, title: str, requirement: Requirement, expect: Expected, *policies: Policy, **settings: Any) -> Case:
    return Case(
        f"precedence/{name}", title, requirement, expect, ANY, policies, **{"bundles": (CABundle(), OTHER), **settings}
    )


def by(ca: str, name: str, hostname: str = "one.example", **settings: Any) -> Policy:
    return Policy((Ref(ca),), hostname, name=name, **settings)


def sections(
    name: str, title: str, requirement: Requirement, expect: Expected, port: str, *policies: Policy, **settings: Any
) -> Case:
    return precedence(name, title, requirement, expect, *policies, services=TWO_PORTS, port=port, **settings)


ONE, TWO, ONE_WRONG, WHOLE, WHOLE_WRONG, ONE_INVALID = (
    by("ca", "one", section="one"),
    by("ca", "two", "two.example", section="two"),
    by("other", "one", section="one"),
    by("ca", "whole", "two.example"),
    by("other", "whole", "two.example"),
    by("not-there", "one", section="one"),
)
OLDER, YOUNGER = by("ca", "z-older"), by("other", "a-younger", "two.example", born=1)
UDP_PORTS: Final = (CaseService(ports=(CasePort("https", 443, serves(NAMED)), CasePort("dns", 53, None, "UDP"))),)
PRECEDENCE: Final = (
    precedence("older", "the older policy has the right CA", r.OLDER_WINS, PASSES, OLDER, YOUNGER, sni="one.example"),
    precedence(
        "older-wrong",
        "the older policy has the wrong CA",
        r.OLDER_WINS,
        REFUSED,
        by("other", "z-older"),
        by("ca", "a-younger", born=1),
    ),
    precedence(
        "older-invalid",
        "the older policy is invalid, the younger valid",
        r.OLDER_WINS,
        REFUSED_5XX,
        by("not-there", "z-older"),
        by("ca", "a-younger", born=1),
    ),
    precedence(
        "name",
        "two policies of one age: the first by name has the right CA",
        r.FIRST_BY_NAME,
        PASSES,
        by("ca", "a"),
        by("other", "b"),
    ),
    precedence(
        "name-wrong",
        "two policies of one age: the first by name has the wrong CA",
        r.FIRST_BY_NAME,
        REFUSED,
        by("other", "a"),
        by("ca", "b"),
    ),
    precedence(
        "conflicted",
        "the younger policy is Conflicted",
        r.CONFLICTED,
        IGNORED,
        OLDER,
        YOUNGER,
        conditions=(
            ExpectedCondition("Accepted", "True", of="z-older"),
            ExpectedCondition("Accepted", "False", ("Conflicted",), "a-younger"),
        ),
    ),
    sections(
        "section-first",
        "a policy for one port beats that for the whole Service on its port",
        r.SECTION_BESIDE,
        PASSES,
        "one",
        ONE,
        WHOLE,
        sni="one.example",
    ),
    sections(
        "section-rest",
        "the policy for the whole Service holds on the other port",
        r.WHOLE_SERVICE,
        PASSES,
        "two",
        ONE,
        WHOLE,
        sni="two.example",
    ),
    sections("section-wrong", "the policy for the port has the wrong CA", r.SECTION_BESIDE, REFUSED, "one", ONE_WRONG, WHOLE),
    sections(
        "section-right",
        "the policy for the port has the right CA, that for the Service the wrong one",
        r.SECTION_BESIDE,
        PASSES,
        "one",
        ONE,
        WHOLE_WRONG,
    ),
    sections(
        "section-rest-wrong",
        "the policy for the Service has the wrong CA, and the request goes to the other port",
        r.WHOLE_SERVICE,
        REFUSED,
        "two",
        ONE,
        WHOLE_WRONG,
    ),
    sections(
        "section-invalid",
        "the policy for the port is invalid, that for the Service valid",
        r.NEVER_PLAINTEXT,
        REFUSED_5XX,
        "one",
        ONE_INVALID,
        WHOLE,
    ),
    sections("section-each", "a policy for each port: the first", r.SECTION, PASSES, "one", ONE, TWO, sni="one.example"),
    sections(
        "section-each-second", "a policy for each port: the second", r.SECTION, PASSES, "two", ONE, TWO, sni="two.example"
    ),
    sections(
        "section-other", "a policy for one port, and the request goes to the other one", r.SECTION, PLAINTEXT, "two", ONE
    ),
    sections(
        "whole", "a policy for the whole Service holds on each port", r.WHOLE_SERVICE, PASSES, "one", WHOLE, sni="two.example"
    ),
    sections(
        "section-no-conflict",
        "a policy for a port and one for the Service do not conflict",
        r.OLDER_WINS,
        IGNORED,
        "two",
        ONE,
        WHOLE,
        conditions=(ExpectedCondition("Accepted", "True", of="one"), ExpectedCondition("Accepted", "True", of="whole")),
    ),
    sections(
        "section-missing",
        "a policy for a port that does not exist",
        r.SECTION_MISSING,
        IGNORED,
        "one",
        by("ca", "policy", section="three"),
        checks=(StatusCheck.NOT_ACCEPTED,),
    ),
    Case(
        "precedence/udp",
        "a policy for a Service whose only port is UDP",
        r.UDP,
        IGNORED,
        policies=(by("ca", "policy"),),
        services=(CaseService(ports=(CasePort("dns", 53, None, "UDP"),)),),
        via=RouteType.UDP,
        conditions=(ExpectedCondition("Accepted", "False", ("Invalid",)),),
    ),
    Case(
        "precedence/udp-section",
        "a policy for a UDP port",
        r.UDP,
        IGNORED,
        policies=(by("ca", "policy", section="dns"),),
        services=(CaseService(ports=(CasePort("dns", 53, None, "UDP"), CasePort("https", 443, None))),),
        via=RouteType.UDP,
        conditions=(ExpectedCondition("Accepted", "False", ("Invalid",)),),
    ),
    Case(
        "precedence/mixed-udp",
        "a policy for a Service with a UDP port holds on the TCP port",
        r.MIXED_UDP,
        PASSES,
        policies=(by("ca", "policy"),),
        services=UDP_PORTS,
        sni="one.example",
    ),
)


# --- every kind of route ----------------------------------------------------------------------------------------------

ROUTE_TYPES: Final = {
    "https": (RouteType.HTTPS, r.LISTENERS, serves(leaf(HOSTNAME))),
    "websocket": (RouteType.WEBSOCKET, r.CONNECT, serves(leaf(HOSTNAME))),
    "mirror": (RouteType.MIRROR, r.MIRROR, serves(leaf(HOSTNAME))),
    "grpc": (RouteType.GRPC, r.GRPC_ROUTE, serves(leaf(HOSTNAME), alpn=("h2",), grpc=True)),
    "tls": (RouteType.TLS, r.TLS_ROUTE, serves(leaf(HOSTNAME))),
    "tcp": (RouteType.TCP, r.LISTENERS, serves(leaf(HOSTNAME))),
}
FEATURES: Final = {"websocket": ("HTTPRouteBackendProtocolWebSocket",)}


def _showing(serving: Serving, certificate: Recipe, **settings: Any) -> Serving:
    return Serving(certificate, alpn=serving.alpn, grpc=serving.grpc, **settings)


APP_PROTOCOLS: Final = {
    "app-protocol": ("HTTPS", RouteType.HTTP, ()),
    "app-protocol-h2c": ("kubernetes.io/h2c", RouteType.HTTP, ("HTTPRouteBackendProtocolH2C",)),
    "app-protocol-ws": ("kubernetes.io/ws", RouteType.WEBSOCKET, FEATURES["websocket"]),
    "app-protocol-h2c-websocket": ("kubernetes.io/h2c", RouteType.WEBSOCKET, ("HTTPRouteBackendProtocolH2C",)),
}


def _app_protocols() -> Iterator[Case]:
    """Yields cases with an appProtocol: only the policy decides about TLS, also on such a port."""
    for name, (protocol, via, features) in APP_PROTOCOLS.items():
        shown = {
            "": ("a valid certificate", r.CONNECT, PASSES, leaf(HOSTNAME)),
            "-ca": ("another CA", r.VERIFY, REFUSED, below(OTHER_CA)),
            "-name": ("another name", r.AUTHENTICATE, REFUSED, leaf("old.example")),
        }
        for suffix, (title, requirement, expect, certificate) in shown.items():
            serving = serves(certificate, alpn=("h2", "http/1.1"), both=True)
            yield Case(
                f"protocols/{name}{suffix}",
                f"{via}, appProtocol {protocol}: {title}",
                requirement,
                expect,
                services=(CaseService(ports=(CasePort("https", 443, serving, app_protocol=protocol),)),),
                via=via,
                sni="" if expect.refused else HOSTNAME,
                features=features,
                optional=protocol != "HTTPS",
            )


def _routes() -> tuple[Case, ...]:
    cases = []
    for name, (via, requirement, serving) in ROUTE_TYPES.items():
        more: dict[str, Any] = {"via": via, "features": FEATURES.get(name, ())}
        checks = r.TLS_ROUTE_CHECKS if via is RouteType.TLS else r.VERIFY
        closed = REFUSED if via in (RouteType.GRPC, RouteType.TLS, RouteType.TCP, RouteType.MIRROR) else REFUSED_5XX
        cases += [
            Case(f"protocols/{name}", f"{via}: a valid certificate", requirement, PASSES, serving, sni=HOSTNAME, **more),
            Case(f"protocols/{name}-ca", f"{via}: another CA", checks, REFUSED, _showing(serving, below(OTHER_CA)), **more),
            Case(
                f"protocols/{name}-name",
                f"{via}: another name",
                checks,
                REFUSED,
                _showing(serving, leaf("old.example")),
                **more,
            ),
            Case(
                f"protocols/{name}-expired",
                f"{via}: an expired certificate",
                r.DATES,
                REFUSED,
                _showing(serving, leaf(HOSTNAME, days=(-9, -1))),
                **more,
            ),
            Case(
                f"protocols/{name}-invalid",
                f"{via}: an invalid policy, and a backend that takes plaintext too",
                r.NEVER_PLAINTEXT,
                closed,
                _showing(serving, leaf(HOSTNAME), both=True),
                (Policy((Ref("not-there"),)),),
                **more,
            ),
            Case(
                f"protocols/{name}-plaintext-backend",
                f"{via}: a backend that speaks plaintext only",
                r.CONNECT,
                REFUSED,
                Serving(None, alpn=(), grpc=serving.grpc),
                **more,
            ),
        ]
    return tuple(cases)


MTLS: Final = Recipe("judge client CA", ca=True)
H2: Final = serves(leaf(HOSTNAME), alpn=("h2", "http/1.1"))
PROTOCOLS: Final = (
    Case("protocols/http", "HTTPRoute: a valid certificate", r.LISTENERS, PASSES, sni=HOSTNAME),
    Case(
        "protocols/http-plaintext-backend",
        "HTTPRoute: a backend that speaks plaintext only",
        r.CONNECT,
        REFUSED,
        Serving(None),
    ),
    Case("protocols/http-h2", "HTTPRoute: a backend that offers h2 and http/1.1", r.CONNECT, PASSES, H2, sni=HOSTNAME),
    Case(
        "protocols/no-policy",
        "no policy: plaintext",
        r.NO_POLICY,
        PLAINTEXT,
        policies=(),
        **neutral(serves(leaf(HOSTNAME), both=True)),
    ),
    Case(
        "protocols/grpc-alpn",
        "GRPCRoute: ALPN offers h2",
        r.HTTP2,
        PASSES,
        ROUTE_TYPES["grpc"][2],
        via=RouteType.GRPC,
        alpn="h2",
    ),
    Case(
        "protocols/client-certificate",
        "the Gateway's client certificate is shown to the backend",
        r.CLIENT_CERTIFICATE,
        PASSES,
        serves(leaf(HOSTNAME), client_ca=MTLS),
        role=GatewayRole.MTLS,
        client=True,
    ),
    Case(
        "protocols/client-certificate-ca",
        "a Gateway with a client certificate still verifies the CA",
        r.VERIFY,
        REFUSED,
        serves(below(OTHER_CA), client_ca=MTLS),
        role=GatewayRole.MTLS,
    ),
    Case(
        "protocols/client-certificate-name",
        "a Gateway with a client certificate still verifies the name",
        r.AUTHENTICATE,
        REFUSED,
        serves(leaf("old.example"), client_ca=MTLS),
        role=GatewayRole.MTLS,
    ),
    *_app_protocols(),
    *_routes(),
)
CASES: Final = (*PRECEDENCE, *PROTOCOLS)
