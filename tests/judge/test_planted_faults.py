"""A fault planted in Lasthop is found by the cases that guard it, and by its severity; cases of other things still pass."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from lasthop_judge.cases import ALL
from lasthop_judge.model import Area, CaseVerdict, FaultSeverity, Outcome
from lasthop_judge.trial import Patience
from tests.judge.judged import judged

pytestmark = pytest.mark.timeout(600)
"""The first fault waits for all of them, on whatever machine."""
BRIEF = Patience(first=60, passes=3, refused=1.5, change=3, status=3, pooled=0)
"""A planted fault does not go away by waiting, nor because the judge ends connections."""
CASES = {case.id: case for case in ALL}
AT_ONCE = 4
CONTROL = "names/exact"
"""Passes with any planted fault."""


@dataclasses.dataclass(frozen=True)
class Planted:
    code: str
    """Run before Lasthop starts; `patch(module, name, make)` replaces a function by what `make` makes of it."""
    guards: tuple[str, ...]
    severity: FaultSeverity


OPEN, PLAINTEXT, CLOSED, STATUS = FaultSeverity.OPEN, FaultSeverity.PLAINTEXT, FaultSeverity.CLOSED, FaultSeverity.STATUS
TLS, HOPS, POLICIES = "lasthop.engine.outputs.envoy.tls", "lasthop.engine.resolve.hops.hops", "lasthop.engine.resolve.policies"
AFTER_VALIDATION = f"""
    def make(old):
        def validate(context, tls):
            old(context, tls)
            CHANGE
        return validate
    patch("{TLS}", "_validate", make)
"""


def checks(change: str) -> str:
    """Changes the checks in Envoy's configuration."""
    return AFTER_VALIDATION.replace("CHANGE", change)


def unverified(hops: str) -> str:
    """Checks nothing on the hops for which this expression over `hop` is true."""
    return f"""
        built = []
        def remember(old):
            def build(hop, *rest):
                built[:] = [hop]
                return old(hop, *rest)
            return build
        def skip(old):
            def validate(context, tls):
                hop, = built
                if not ({hops}):
                    old(context, tls)
            return validate
        patch("lasthop.engine.outputs.envoy.clusters", "build", remember)
        patch("{TLS}", "_validate", skip)
    """


FAULTS = {
    "nothing is checked": Planted(
        unverified("hop.backend.name != 'names-exact-backend'"), ("names/other", "chains/other-ca", "dates/expired"), OPEN
    ),
    "GRPCRoutes are not checked": Planted(
        unverified("hop.protocol == 'h2'"), ("protocols/grpc-ca", "protocols/grpc-name"), OPEN
    ),
    "TLSRoutes and TCPRoutes are not checked": Planted(
        unverified("hop.protocol == 'tcp'"), ("protocols/tls-ca", "protocols/tls-name", "protocols/tcp-expired"), OPEN
    ),
    "mirrors are not checked": Planted(unverified("'mirror' in hop.backend.name"), ("protocols/mirror-ca",), OPEN),
    "mirrors are plaintext": Planted(
        f"""
        from lasthop.engine.plan.tls import Plaintext
        def make(old):
            return lambda g, hop: Plaintext() if "mirror" in hop.backend.name else old(g, hop)
        patch("{HOPS}", "_requested_tls", make)
        """,
        ("protocols/mirror", "protocols/mirror-ca"),
        PLAINTEXT,
    ),
    "subjectAltNames are ignored": Planted(
        f"""
        from lasthop.engine.plan.tls import San, SanType
        patch("{POLICIES}.judgement", "_names", lambda old: lambda validation: (San(SanType.DNS, validation.hostname),))
        """,
        ("names/san-hostname-not-listed",),
        OPEN,
    ),
    "the younger policy wins": Planted(
        f"""
        def make(old):
            def winner(g, service, name):
                claims = importlib.import_module("{POLICIES}.targets").claims(g, service)
                named = [claim for claim in claims for section in (name, "") if section in claim.sections]
                return named[-1] if named else None
            return winner
        patch("{POLICIES}.targets", "port_winner", make)
        """,
        ("precedence/older-wrong", "precedence/name-wrong"),
        OPEN,
    ),
    "connections from before an edit stay in use": Planted(
        f"""
        import json, pathlib, tempfile
        from envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
        from google.protobuf import json_format
        folder = pathlib.Path(tempfile.mkdtemp())
        def make(old):
            def by_secret(tls, alpn=()):
                made = old(tls, alpn)
                context = tls_pb2.UpstreamTlsContext.FromString(made.typed_config.value)
                common, name = context.common_tls_context, tls.source.path.replace("/", "-")
                secret = secret_pb2.Secret(name=name, validation_context=common.validation_context)
                resource = json_format.MessageToDict(secret)
                resource["@type"] = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
                new, file = folder / (name + ".new"), folder / (name + ".json")
                new.write_text(json.dumps({{"resources": [resource]}}))
                new.rename(file)
                common.ClearField("validation_context")
                common.validation_context_sds_secret_config.name = name
                common.validation_context_sds_secret_config.sds_config.path_config_source.path = str(file)
                common.validation_context_sds_secret_config.sds_config.resource_api_version = 2
                made.typed_config.value = context.SerializeToString(deterministic=True)
                return made
            return by_secret
        patch("{TLS}", "upstream_transport_socket", make)
        patch("lasthop.engine.plan.cluster_metadata", "identity", lambda old: lambda tls: "same")
        """,
        ("changes/ca-swapped", "changes/ca-swapped-h2"),
        OPEN,
    ),
    "a condition is missing": Planted(
        f"""
        def make(old):
            return lambda g, policy, gateway: tuple(
                condition for condition in old(g, policy, gateway) if condition.type != "ResolvedRefs"
            )
        patch("{POLICIES}.conditions", "conditions", make)
        """,
        ("status/missing-resolved", "status/resolved"),
        STATUS,
    ),
    "names are not checked": Planted(f'patch("{TLS}", "dns_regex", lambda old: lambda name: ".*")', ("names/other",), OPEN),
    "the hostname authenticates beside subjectAltNames": Planted(
        f"""
        from lasthop.engine.plan.tls import San, SanType
        def make(old):
            return lambda validation: (*old(validation), San(SanType.DNS, validation.hostname))
        patch("{POLICIES}.judgement", "_names", make)
        """,
        ("names/san-hostname-not-listed",),
        OPEN,
    ),
    "no SNI is sent": Planted(
        f"""
        import msgspec
        def make(old):
            return lambda tls, alpn=(): old(msgspec.structs.replace(tls, sni=""), alpn)
        patch("{TLS}", "upstream_transport_socket", make)
        """,
        ("names/sni", "protocols/grpc"),
        CLOSED,
    ),
    "dates are not checked": Planted(
        checks("context.validation_context.allow_expired_certificate = True"), ("dates/expired",), OPEN
    ),
    "the chain is not checked": Planted(
        checks("context.validation_context.trust_chain_verification = 1"), ("chains/other-ca", "chains/self-signed"), OPEN
    ),
    "TLS 1.3 is not spoken": Planted(
        f"""
        import msgspec
        def make(old):
            return lambda options, alpn: old(msgspec.structs.replace(options, max_version="1.2"), alpn)
        patch("{TLS}", "_common", make)
        """,
        ("keys/tls13",),
        CLOSED,
    ),
    "only the first certificate of a bundle is an anchor": Planted(
        checks(
            "end = b'-----END CERTIFICATE-----'; ca = context.validation_context.trusted_ca; "
            "ca.inline_bytes = ca.inline_bytes.partition(end)[0] + end"
        ),
        ("trust/bundle-second",),
        CLOSED,
    ),
    "sectionName is ignored": Planted(
        f"""
        def make(old):
            return lambda g, service, port: old(g, service, "")
        patch("{POLICIES}.targets", "port_winner", make)
        """,
        ("precedence/section-wrong",),
        OPEN,
    ),
    "an invalid policy is plaintext": Planted(
        f"""
        from lasthop.engine.plan.tls import Plaintext, Refused
        def make(old):
            def port_tls(*args):
                tls = old(*args)
                return Plaintext() if isinstance(tls, Refused) else tls
            return port_tls
        patch("{HOPS}", "_port_tls", make)
        """,
        ("invalid/missing", "protocols/mirror-invalid", "changes/ca-removed"),
        PLAINTEXT,
    ),
    "TCPRoutes are plaintext": Planted(
        f"""
        from lasthop.engine.plan.tls import Plaintext
        from lasthop.engine.plan.upstream import Protocol
        def make(old):
            def requested_tls(g, hop):
                return Plaintext() if hop.protocol is Protocol.TCP else old(g, hop)
            return requested_tls
        patch("{HOPS}", "_requested_tls", make)
        """,
        ("protocols/tcp", "protocols/tls"),
        PLAINTEXT,
    ),
    "the first CA of a policy is kept": Planted(
        f"""
        import msgspec
        first = {{}}
        def make(old):
            def kept(tls, alpn=()):
                return old(msgspec.structs.replace(tls, trust=first.setdefault(tls.source, tls.trust)), alpn)
            return kept
        patch("{TLS}", "upstream_transport_socket", make)
        """,
        ("changes/ca-swapped",),
        OPEN,
    ),
    "conditions say what is wished": Planted(
        f"""
        import msgspec
        from lasthop.engine.plan import reasons
        def make(old):
            def said(g, policy, gateway):
                return tuple(
                    msgspec.structs.replace(condition, status=True) if condition.type == "Accepted" else condition
                    for condition in old(g, policy, gateway)
                )
            return said
        patch("{POLICIES}.conditions", "conditions", make)
        """,
        ("status/missing-accepted",),
        STATUS,
    ),
    "ancestors are routes": Planted(
        """
        import msgspec
        def of_route(entry):
            return msgspec.structs.replace(entry, ancestor_ref=msgspec.structs.replace(entry.ancestor_ref, kind="HTTPRoute"))
        def make(old):
            def status(entries):
                reported = old(entries)
                return reported and msgspec.structs.replace(reported, ancestors=tuple(map(of_route, reported.ancestors)))
            return status
        patch("lasthop.engine.outputs.status.policies", "_status", make)
        """,
        ("status/ancestor",),
        STATUS,
    ),
    "observedGeneration is that of the first text": Planted(
        """
        import msgspec
        first = {}
        def make(old):
            def stated(conditions, obj):
                generation = first.setdefault((type(obj), obj.metadata.name), obj.metadata.generation)
                return tuple(
                    msgspec.structs.replace(condition, observed_generation=generation) for condition in old(conditions, obj)
                )
            return stated
        patch("lasthop.engine.outputs.status.conditions", "stated", make)
        """,
        ("status/generation",),
        STATUS,
    ),
    "an unknown kind beside a CA is ignored": Planted(
        f"""
        def make(old):
            def read(*args):
                refs, fatal = old(*args)
                return refs, [] if refs.cas else fatal
            return read
        patch("{POLICIES}.references", "_read", make)
        """,
        ("status/one-of-two-kind",),
        STATUS,
    ),
    "TLS 1.1 is spoken": Planted(
        f"""
        import {TLS} as tls
        tls.VERSIONS["1.2"] = tls.VERSIONS["1.0"]
        def make(old):
            def common(options, alpn):
                context = old(options, alpn)
                context.common_tls_context.tls_params.cipher_suites[:] = ["ECDHE-ECDSA-AES128-SHA"]
                return context
            return common
        patch("{TLS}", "_common", make)
        """,
        ("keys/tls11",),
        OPEN,
    ),
    "an appProtocol of TLS replaces the policy": Planted(
        unverified("'app-protocol' in hop.backend.name"), ("protocols/app-protocol-ca", "protocols/app-protocol-name"), OPEN
    ),
    "waivers need no permission": Planted(
        f'patch("{POLICIES}.permissions", "_waiver_problem", lambda old: lambda *args: None)', ("gep4152/skip-denied",), OPEN
    ),
    "pins are not checked": Planted(
        checks("del context.validation_context.verify_certificate_spki[:]"), ("gep4152/pin-key-other",), OPEN
    ),
}


HEAD = """
import importlib, sys

def patch(module, name, make):
    patched = importlib.import_module(module)
    old = getattr(patched, name)
    new = make(old)
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "__name__", "").startswith("lasthop") and getattr(loaded, name, None) is old:
            setattr(loaded, name, new)
"""
TAIL = """
from lasthop.cli.main import run
run()
"""


@pytest.fixture(scope="module")
def verdicts_by_fault(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, CaseVerdict]]:
    """By fault and case; several faulty gateways at once, because each mostly waits."""

    folder = tmp_path_factory.mktemp("planted")

    def tried(number: int, planted: Planted) -> dict[str, CaseVerdict]:
        script = folder / f"faulty{number}.py"
        script.write_text(HEAD + textwrap.dedent(planted.code) + TAIL)
        cases = [CASES[id] for id in (*planted.guards, CONTROL)]
        return {verdict.case.id: verdict for verdict in judged(cases, BRIEF, (sys.executable, script))}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(FAULTS, pool.map(tried, itertools.count(), FAULTS.values()), strict=False))


def test_faults_are_planted_in_every_area() -> None:
    assert {CASES[id].area for planted in FAULTS.values() for id in planted.guards} == {*Area}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_the_case_that_guards_it(
    verdicts_by_fault: dict[str, dict[str, CaseVerdict]], name: str
) -> None:
    planted, verdicts = FAULTS[name], verdicts_by_fault[name]
    assert verdicts[CONTROL].outcome is Outcome.PASS, verdicts[CONTROL].faults
    for id in planted.guards:
        assert (verdicts[id].outcome, verdicts[id].severity) == (Outcome.FAIL, planted.severity), (id, verdicts[id].faults)
