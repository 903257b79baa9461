"""Connects to the backends of open questions and proposes answers. It never decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lasthop.base.api.meta import Key
from lasthop.base.pki import parse
from lasthop.base.pki.parse import Unreadable
from lasthop.base.text.printable import printable
from lasthop.edge.probe.certificate_view import describe
from lasthop.edge.probe.checks import holds_name
from lasthop.edge.probe.handshake import Expectation, NoHandshake, fetch, handshake
from lasthop.engine.plan.tls import Anchors, BackendTLS, San, SanType, Trust
from lasthop.engine.plan.upstream import EndpointAddress
from lasthop.engine.resolve.backends import backends
from lasthop.run.infra.system_store import host_store
from lasthop_import.check import engine_of, serving_mode
from lasthop_import.decisions import Question
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.result import ImportResult
from lasthop_import.settings import ImportSettings

TIMEOUT: Final = 5.0
MAX_CONCURRENT_PROBES: Final = 8
MOST_CAS: Final = 8
"""Maximum CAs of the input to try with each backend, besides the system's."""


class ProbedAnswer(NamedTuple):
    answer: str
    """In the syntax of decisions.yaml."""
    trust: Trust


def proposals(result: ImportResult, documents: Sequence[Document], settings: ImportSettings) -> dict[str, tuple[str, ...]]:
    """Connects to one endpoint of each port with an open question. Returns lines with the observations by port."""
    engine = engine_of(result, settings.now, serving_mode(settings))
    inputs = Inputs(documents)
    outside = {
        f"{written.key[0]}/{written.key[2]}": str(written.document["spec"]["externalHostname"]["hostname"])
        for written in result.objects
        if written.kind == "XBackend" and "externalHostname" in written.document["spec"]
    }

    def endpoints_of(question: Question) -> Sequence[EndpointAddress]:
        path, _, number = question.port.rpartition(":")
        if path in outside:
            return (EndpointAddress(outside[path], int(number)),)
        key = Key("Service", *path.split("/"))
        return backends.endpoints(engine.graph, key, int(number), "TCP").endpoints

    def answer(question: Question, endpoints: Sequence[EndpointAddress]) -> tuple[str, ...]:
        if not endpoints:
            return ("not probed: no endpoint is known",)
        namespace = question.port.partition("/")[0]
        return _probed(endpoints[0].address, endpoints[0].port, question.hostname, _candidates(inputs, namespace))

    endpoints = list(map(endpoints_of, result.questions))
    with ThreadPoolExecutor(MAX_CONCURRENT_PROBES) as pool:
        answers = pool.map(answer, result.questions, endpoints)
        return dict(zip((question.port for question in result.questions), answers, strict=True))


def with_probes(result: ImportResult, observations: Mapping[str, tuple[str, ...]]) -> ImportResult:
    """Adds the observations as notes."""
    notes = [
        Note(Category.DECISION, "probed", "; ".join(lines), target=port, severity=NoteSeverity.INFO)
        for port, lines in observations.items()
    ]
    return result.with_notes([*result.notes, *notes])


def _candidates(inputs: Inputs, namespace: str) -> list[ProbedAnswer]:
    store = host_store()
    candidates = [ProbedAnswer("{system: true}", store)] if store else []
    for document in inputs.documents:
        if document.kind in ("ConfigMap", "Secret") and document.namespace == namespace and len(candidates) <= MOST_CAS:
            pem = (inputs.data(document.kind, namespace, document.bare_name) or {}).get("ca.crt", b"")
            if not isinstance(parse.certificates(pem), Unreadable):
                kind = "configMap" if document.kind == "ConfigMap" else "secret"
                candidates.append(ProbedAnswer(f"{{{kind}: {document.bare_name}}}", Anchors(pem)))
    return candidates


def _probed(address: str, port: int, hostname: str, candidates: Iterable[ProbedAnswer]) -> tuple[str, ...]:
    try:
        presented = fetch(address, port, hostname, TIMEOUT)
        leaf = describe(presented.chain[0])
        certificate = parse.certificate(presented.chain[0])
    except (NoHandshake, ValueError) as error:
        return (f"probed {address}:{port}: {printable(str(error))}",)
    issuer = "itself" if leaf.self_signed else leaf.issuer
    lines = [
        f"probed {address}:{port}: {leaf.subject}, issued by {issuer}, until {leaf.not_after[:10]}",
        f"its names: {', '.join(leaf.names) or 'none, so only a pin or a waiver of names can hold'}",
    ]
    name = hostname if holds_name(San(SanType.DNS, hostname), _extensions(certificate)) else _fixed_name(leaf.names)
    holding = next(
        (candidate.answer for candidate in candidates if _holds(address, port, name or hostname, candidate.trust)), ""
    )
    if name and holding:
        lines.append(f"would hold today: ca: {holding}, hostname: {name}")
    elif not holding:
        lines.append(f"no CA of the input or the system holds; a pin would: lasthop pin {address}:{port}")
    return tuple(map(printable, lines))


def _extensions(certificate: parse.Certificate | Unreadable) -> parse.Extensions:
    if isinstance(certificate, Unreadable) or isinstance(certificate.extensions, Unreadable):
        return parse.Extensions()
    return certificate.extensions


def _fixed_name(names: Iterable[str]) -> str:
    """Returns the first DNS name without a wildcard."""
    dns = (name.removeprefix("DNS ") for name in names if name.startswith("DNS "))
    return next((name for name in dns if not name.startswith("*.")), "")


def _holds(address: str, port: int, hostname: str, trust: Trust) -> bool:
    tls = BackendTLS(Key("BackendTLSPolicy", "", "proposal"), hostname, trust, ())
    try:
        result = handshake((address, port), Expectation(tls, ("h2", "http/1.1"), None), TIMEOUT)
    except NoHandshake:
        return False
    return bool(result.chain) and not result.chain_errors
