"""Precedence of policies, and every kind of route that leads to a backend with a policy."""

from __future__ import annotations

from typing import Any, Final

from lasthop_judge import demands as d
from lasthop_judge.cases.build import IGNORED, PASSES, PLAINTEXT, REFUSED, REFUSED_5XX, serves
from lasthop_judge.cases.chains import below
from lasthop_judge.certificates import OTHER_CA, Recipe, leaf
from lasthop_judge.model import (
    HOSTNAME,
    At,
    Bundle,
    Case,
    Check,
    Demand,
    Expect,
    Policy,
    Port,
    Ref,
    Says,
    Service,
    Serving,
    Via,
)

OTHER: Final = Bundle("other", (OTHER_CA,))
NAMED: Final = leaf("one.example", "two.example")
ANY: Final = serves(NAMED, both=True)
TWO_PORTS: Final = (Service(ports=(Port("one", 8441, ANY), Port("two", 8442, ANY))),)


def precedence(name: str, title: str, demands: Demand, expect: Expect, *policies: Policy, **settings: Any) -> Case:
    return Case(f"precedence/{name}", title, demands, expect, ANY, policies, **{"bundles": (Bundle(), OTHER), **settings})


def by(ca: str, name: str, hostname: str = "one.example", **settings: Any) -> Policy:
    return Policy((Ref(ca),), hostname, name=name, **settings)


def sections(name: str, title: str, demands: Demand, expect: Expect, port: str, *policies: Policy, **settings: Any) -> Case:
    return precedence(name, title, demands, expect, *policies, services=TWO_PORTS, port=port, **settings)


ONE, TWO, ONE_WRONG, WHOLE, WHOLE_WRONG, ONE_INVALID = (
    by("ca", "one", section="one"),
    by("ca", "two", "two.example", section="two"),
    by("other", "one", section="one"),
    by("ca", "whole", "two.example"),
    by("other", "whole", "two.example"),
    by("not-there", "one", section="one"),
)
OLDER, YOUNGER = by("ca", "z-older"), by("other", "a-younger", "two.example", born=1)
UDP_PORTS: Final = (Service(ports=(Port("https", 443, serves(NAMED)), Port("dns", 53, None, "UDP"))),)
PRECEDENCE: Final = (
    precedence("older", "the older policy has the right CA", d.OLDER_WINS, PASSES, OLDER, YOUNGER, sni="one.example"),
    precedence(
        "older-wrong",
        "the older policy has the wrong CA",
        d.OLDER_WINS,
        REFUSED,
        by("other", "z-older"),
        by("ca", "a-younger", born=1),
    ),
    precedence(
        "older-invalid",
        "the older policy is invalid, the younger valid",
        d.OLDER_WINS,
        REFUSED_5XX,
        by("not-there", "z-older"),
        by("ca", "a-younger", born=1),
    ),
    precedence(
        "name",
        "two policies of one age: the first by name has the right CA",
        d.FIRST_BY_NAME,
        PASSES,
        by("ca", "a"),
        by("other", "b"),
    ),
    precedence(
        "name-wrong",
        "two policies of one age: the first by name has the wrong CA",
        d.FIRST_BY_NAME,
        REFUSED,
        by("other", "a"),
        by("ca", "b"),
    ),
    precedence(
        "conflicted",
        "the younger policy is Conflicted",
        d.CONFLICTED,
        IGNORED,
        OLDER,
        YOUNGER,
        says=(Says("Accepted", "True", of="z-older"), Says("Accepted", "False", ("Conflicted",), "a-younger")),
    ),
    sections(
        "section-first",
        "a policy for one port beats that for the whole Service on its port",
        d.SECTION,
        PASSES,
        "one",
        ONE,
        WHOLE,
        sni="one.example",
    ),
    sections(
        "section-rest",
        "the policy for the whole Service holds on the other port",
        d.WHOLE_SERVICE,
        PASSES,
        "two",
        ONE,
        WHOLE,
        sni="two.example",
    ),
    sections("section-wrong", "the policy for the port has the wrong CA", d.SECTION, REFUSED, "one", ONE_WRONG, WHOLE),
    sections(
        "section-right",
        "the policy for the port has the right CA, that for the Service the wrong one",
        d.SECTION,
        PASSES,
        "one",
        ONE,
        WHOLE_WRONG,
    ),
    sections(
        "section-rest-wrong",
        "the policy for the Service has the wrong CA, and the other port is asked",
        d.WHOLE_SERVICE,
        REFUSED,
        "two",
        ONE,
        WHOLE_WRONG,
    ),
    sections(
        "section-invalid",
        "the policy for the port is invalid, that for the Service valid",
        d.NEVER_PLAINTEXT,
        REFUSED_5XX,
        "one",
        ONE_INVALID,
        WHOLE,
    ),
    sections("section-each", "a policy for each port: the first", d.SECTION, PASSES, "one", ONE, TWO, sni="one.example"),
    sections(
        "section-each-second", "a policy for each port: the second", d.SECTION, PASSES, "two", ONE, TWO, sni="two.example"
    ),
    sections("section-other", "a policy for one port, and the other one is asked", d.SECTION, PLAINTEXT, "two", ONE),
    sections(
        "whole", "a policy for the whole Service holds on each port", d.WHOLE_SERVICE, PASSES, "one", WHOLE, sni="two.example"
    ),
    sections(
        "section-no-conflict",
        "a policy for a port and one for the Service do not conflict",
        d.OLDER_WINS,
        IGNORED,
        "two",
        ONE,
        WHOLE,
        says=(Says("Accepted", "True", of="one"), Says("Accepted", "True", of="whole")),
    ),
    sections(
        "section-missing",
        "a policy for a port that does not exist",
        d.SECTION_MISSING,
        IGNORED,
        "one",
        by("ca", "policy", section="three"),
        checks=(Check.NOT_ACCEPTED,),
    ),
    Case(
        "precedence/udp",
        "a policy for a Service whose only port is UDP",
        d.UDP,
        IGNORED,
        policies=(by("ca", "policy"),),
        services=(Service(ports=(Port("dns", 53, None, "UDP"),)),),
        via=Via.UDP,
        says=(Says("Accepted", "False", ("Invalid",)),),
    ),
    Case(
        "precedence/udp-section",
        "a policy for a UDP port",
        d.UDP,
        IGNORED,
        policies=(by("ca", "policy", section="dns"),),
        services=(Service(ports=(Port("dns", 53, None, "UDP"), Port("https", 443, None))),),
        via=Via.UDP,
        says=(Says("Accepted", "False", ("Invalid",)),),
    ),
    Case(
        "precedence/mixed-udp",
        "a policy for a Service with a UDP port holds on the TCP port",
        d.MIXED_UDP,
        PASSES,
        policies=(by("ca", "policy"),),
        services=UDP_PORTS,
        sni="one.example",
    ),
)


# --- every kind of route ----------------------------------------------------------------------------------------------

VIAS: Final = {
    "https": (Via.HTTPS, d.LISTENERS, serves(leaf(HOSTNAME))),
    "websocket": (Via.WEBSOCKET, d.CONNECT, serves(leaf(HOSTNAME))),
    "mirror": (Via.MIRROR, d.MIRROR, serves(leaf(HOSTNAME))),
    "grpc": (Via.GRPC, d.GRPC_ROUTE, serves(leaf(HOSTNAME), alpn=("h2",), grpc=True)),
    "tls": (Via.TLS, d.TLS_ROUTE, serves(leaf(HOSTNAME))),
    "tcp": (Via.TCP, d.LISTENERS, serves(leaf(HOSTNAME))),
}
FEATURES: Final = {"websocket": ("HTTPRouteBackendProtocolWebSocket",)}


def _showing(serving: Serving, certificate: Recipe, **settings: Any) -> Serving:
    return Serving(certificate, alpn=serving.alpn, grpc=serving.grpc, **settings)


def _routes() -> tuple[Case, ...]:
    found = []
    for name, (via, demands, serving) in VIAS.items():
        more: dict[str, Any] = {"via": via, "features": FEATURES.get(name, ())}
        checks = d.TLS_ROUTE_CHECKS if via is Via.TLS else d.VERIFY
        closed = REFUSED if via in (Via.GRPC, Via.TLS, Via.TCP, Via.MIRROR) else REFUSED_5XX
        found += [
            Case(f"protocols/{name}", f"{via}: a valid certificate", demands, PASSES, serving, sni=HOSTNAME, **more),
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
                d.DATES,
                REFUSED,
                _showing(serving, leaf(HOSTNAME, days=(-9, -1))),
                **more,
            ),
            Case(
                f"protocols/{name}-invalid",
                f"{via}: an invalid policy, and a backend that takes plaintext too",
                d.NEVER_PLAINTEXT,
                closed,
                _showing(serving, leaf(HOSTNAME), both=True),
                (Policy((Ref("not-there"),)),),
                **more,
            ),
            Case(
                f"protocols/{name}-plaintext-backend",
                f"{via}: a backend that speaks plaintext only",
                d.CONNECT,
                REFUSED,
                Serving(None, alpn=(), grpc=serving.grpc),
                **more,
            ),
        ]
    return tuple(found)


MTLS: Final = Recipe("judge client CA", ca=True)
H2: Final = serves(leaf(HOSTNAME), alpn=("h2", "http/1.1"))
PROTOCOLS: Final = (
    Case("protocols/http", "HTTPRoute: a valid certificate", d.LISTENERS, PASSES, sni=HOSTNAME),
    Case(
        "protocols/http-plaintext-backend",
        "HTTPRoute: a backend that speaks plaintext only",
        d.CONNECT,
        REFUSED,
        Serving(None),
    ),
    Case("protocols/http-h2", "HTTPRoute: a backend that offers h2 and http/1.1", d.CONNECT, PASSES, H2, sni=HOSTNAME),
    Case("protocols/no-policy", "no policy: plaintext", d.NO_POLICY, PLAINTEXT, serves(leaf(HOSTNAME), both=True), ()),
    Case("protocols/grpc-alpn", "GRPCRoute: ALPN offers h2", d.HTTP2, PASSES, VIAS["grpc"][2], via=Via.GRPC, alpn="h2"),
    Case(
        "protocols/app-protocol",
        "a port whose appProtocol is HTTPS",
        d.CONNECT,
        PASSES,
        services=(Service(ports=(Port("https", 443, serves(leaf(HOSTNAME)), app_protocol="HTTPS"),)),),
        sni=HOSTNAME,
    ),
    Case(
        "protocols/client-certificate",
        "the Gateway's client certificate is shown to the backend",
        d.CLIENT_CERTIFICATE,
        PASSES,
        serves(leaf(HOSTNAME), client_ca=MTLS),
        at=At.MTLS,
        client=True,
    ),
    Case(
        "protocols/client-certificate-ca",
        "a Gateway with a client certificate still verifies the CA",
        d.VERIFY,
        REFUSED,
        serves(below(OTHER_CA), client_ca=MTLS),
        at=At.MTLS,
    ),
    Case(
        "protocols/client-certificate-name",
        "a Gateway with a client certificate still verifies the name",
        d.AUTHENTICATE,
        REFUSED,
        serves(leaf("old.example"), client_ca=MTLS),
        at=At.MTLS,
    ),
    *_routes(),
)
CASES: Final = (*PRECEDENCE, *PROTOCOLS)
