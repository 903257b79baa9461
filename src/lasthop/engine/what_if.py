"""Rehearses an edit: computes the findings and the verification of backends as if an object were written or deleted.

A second graph over the same frozen objects keeps the live engine untouched. It has the stages for findings and verification,
but none for Envoy or the API server:

    changes ──> a copy that keeps up ──> + the candidate ──> findings, hops ──> - the candidate ──> hops as they are

All methods are generators that yield often, so that a caller can stop at any point. An edit that affects thousands of hops
still has long steps, because indexes are updated at once: run it in a separate thread."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from lasthop.base.api.meta import Key, Object
from lasthop.engine.dry_run import serve
from lasthop.engine.engine import JUDGED
from lasthop.engine.outputs.audit.hops import HopReport, hop_report, joined
from lasthop.engine.outputs.comparison import Best, ComparedState, Comparison, GatewayPort, HopChange, NotCompared, compare
from lasthop.engine.outputs.envoy.clusters import CLUSTERS
from lasthop.engine.outputs.findings.collection import FindingCollection
from lasthop.engine.outputs.findings.findings import FINDINGS
from lasthop.engine.outputs.findings.root_causes import root_causes
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.profile import Refusal
from lasthop.engine.plan.reasons import entry_of
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Plaintext
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.resolve.backends.reach import PORTS
from lasthop.engine.resolve.gateways.profiles import refused_edits
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.verdict import VERDICTS, port_verification
from lasthop.engine.resolve.settings import CRD_VERSIONS, HELD, POLICIES_UNKNOWN, SETTINGS, SYSTEM_STORE, Settings
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Changes, Gone, Stages
from lasthop.engine.store.store import Store

MEMBERS_PER_STEP: Final = 40
"""Members of each output per step, as in `run/loop.py`."""
STEP_SECONDS: Final = 0.01
"""Seconds per step."""
GATEWAYS_PER_STEP: Final = 20
"""Gateways per step."""
OPERATORS: Final = frozenset(("GatewayClass", "GatewayProfile"))
"""Kinds whose edits are never refused: operators would lock themselves out."""

Steps = Generator[None, None, None]


class Consequences(msgspec.Struct, frozen=True):
    introduced: tuple[Finding, ...]
    """New findings, without those that follow from them."""
    weaker: tuple[HopChange, ...]
    """Hops whose verification would be weaker."""
    refused: tuple[str, ...] = ()
    """Reasons of the operator's rules to refuse the edit, a sentence each."""
    other_trust: tuple[HopChange, ...] = ()
    """Hops that would trust other CAs, names or pins, neither weaker nor stronger."""
    not_judged: tuple[str, ...] = ()
    """Reasons why hops could not be compared, a sentence each; their verification may be weaker."""


NO_CONSEQUENCES: Final = Consequences((), ())


Rules = defaultdict[Key, frozenset[Refusal]]
"""The operator's rules by Gateway, before and after the edit."""


class Rehearsal:
    def __init__(self, settings: Settings, now: float = 0.0) -> None:
        self._graph = Graph(now)
        self._stages = Stages(self._graph, JUDGED)
        self._store = Store(self._stages)
        self._findings = FindingCollection()
        self._hops: dict[Hop, None] = {}
        """Hops whose clusters have changed since the last reset."""
        self._places: dict[GatewayPort, None] = {}
        """Ports whose verification has changed since the last reset, including those that fail closed and have no cluster."""
        self._live: Graph | None = None
        self._waiting: dict[Key, Object | None] = {}
        SETTINGS.set(self._graph, settings)

    def changed(self, changes: Mapping[Key, Object | None]) -> None:
        """Adds changes of the cluster, which the next rehearsal applies. May be called while another thread rehearses."""
        self._waiting.update(changes)

    @property
    def behind(self) -> bool:
        """Whether the cluster has changed since the last rehearsal."""
        return bool(self._waiting)

    def follow(self, live: Graph, now: float) -> None:
        """Copies the inputs that are not objects from the live graph."""
        self._live = live
        self._graph.advance(now)
        SYSTEM_STORE.set(self._graph, SYSTEM_STORE.peek(live))
        CRD_VERSIONS.set(self._graph, CRD_VERSIONS.peek(live))

    def catch_up(self) -> Steps:
        """Brings the copy up to date with the cluster."""
        while self._waiting:
            for _ in range(min(MEMBERS_PER_STEP, len(self._waiting))):
                self._store.put(*self._waiting.popitem())
            self._take(self._stages.settle(0))  # indexes process all changes at once, so apply only a few
            yield
        yield from self._settle()

    def edit(self, key: Key, obj: Object | None) -> Generator[None, None, Consequences]:
        """Rehearses writing an object, or deleting it (None)."""
        yield from self.catch_up()
        self._findings.changes()
        self._hops.clear()
        self._places.clear()
        present, crashed = self._store.get(key), set(self._graph.crashes)
        try:
            self._store.put(key, obj)
            yield from self._settle()
            new = self._findings.changes().new
            hops, places = tuple(self._hops), tuple(self._places)
            rules: Rules = defaultdict(frozenset)
            after = yield from self._compared_state("then", hops, places, rules)
            # A crashed query keeps its entries, so the comparison would show no change.
            crashes = [id for id in self._graph.crashes if id not in crashed or key in id]
        finally:
            # Also after an early stop: the next rehearsal settles the rest.
            self._store.put(key, present)
        yield from self._settle()
        before = yield from self._compared_state("now", hops, places, rules)
        crash = (f"Lasthop failed in {crashes[0][0]}; the log of the controller says why",) if crashes else ()
        return _consequences(key, new, before, after, crash, rules, self._best)

    def _best(self, backend: Key, port: int) -> HopVerification | None:
        """Returns the strongest verification of a port that the live engine remembers."""
        live = self._live
        held = (HELD.peek(live, backend, port, strength) for strength in Strength.PLAINTEXT.stronger) if live else ()
        return next(filter(None, held), None)

    def _unread(self, namespace: str) -> str:
        """Returns why the live engine cannot read the policies of a namespace; empty if it can."""
        live = self._live
        gaps = (POLICIES_UNKNOWN.peek(live, name) for name in ("", namespace)) if live else ()
        return next((gap.why for gap in gaps if gap and not gap.provable), "")

    def _settle(self) -> Steps:
        while self._stages.unsettled:
            self._take(self._stages.settle(MEMBERS_PER_STEP, None, used_up(STEP_SECONDS)))
            yield
            if not self._stages.unsettled:
                yield from self._serve()

    def _serve(self) -> Steps:
        """Assumes healthy proxies for every Gateway, so that the remaining findings are configuration errors."""
        for number, key in enumerate(self._store.keys("Gateway")):
            serve(self._graph, key)
            if number % GATEWAYS_PER_STEP == 0:
                yield

    def _take(self, outputs: Changes) -> None:
        for output in FINDINGS:
            for key, findings in output.of(outputs).items():
                self._findings.replace((output.name, key), () if findings is None or isinstance(findings, Gone) else findings)
        self._hops.update(dict.fromkeys(Hop(*key) for key in CLUSTERS.of(outputs)))
        self._places.update(dict.fromkeys(hop[:3] for hop in VERDICTS.of(outputs)))

    def _compared_state(
        self, where: str, hops: Iterable[Hop], places: Iterable[GatewayPort], rules: Rules
    ) -> Generator[None, None, ComparedState]:
        """Reads every hop that the edit affects, and adds to `rules`. It has no limit, because order would then decide which
        hops are compared."""
        reports: list[HopReport] = []
        verified: dict[GatewayPort, HopVerification] = {}
        unknown: dict[str, None] = {}
        for hop in self._reached(hops, places):
            if self._stages.is_member(CLUSTERS, hop):
                reports += joined((hop_report(self._graph, hop),))
                verification = self._graph.shielded(port_verification, *hop[:3]) if hop.protocol.policed else None
                if isinstance(verification, HopVerification):
                    verified[hop[:3]] = verification
                refused = refused_edits.attempt(self._graph, hop.gateway)
                if isinstance(refused, frozenset):
                    rules[hop.gateway] |= refused
                unknown.update(dict.fromkeys(self._not_known(hop, verification, refused)))
                yield
        return ComparedState(where, (), tuple(reports), verified, tuple(map(NotCompared, unknown)))

    def _reached(self, hops: Iterable[Hop], places: Iterable[GatewayPort]) -> dict[Hop, None]:
        reached = dict.fromkeys(hops)
        for place in places:
            reached.update(dict.fromkeys(Hop(*place, protocol) for protocol in PORTS.of(self._graph, *place)))
        return reached

    def _not_known(self, hop: Hop, *computed: object) -> Iterator[str]:
        """Yields why a hop cannot be compared."""
        tls = hop_tls.attempt(self._graph, *hop) if hop.protocol.policed else None
        if isinstance(tls, Plaintext) and (why := self._unread(hop.backend.namespace)):
            yield f"the BackendTLSPolicies are not known: {why}"
        if any(isinstance(result, Crash) for result in computed):
            yield f"Lasthop failed to compute how {hop.gateway} verifies {hop.backend}:{hop.port}"


def _consequences(
    key: Key,
    new: Iterable[Finding],
    before: ComparedState,
    after: ComparedState,
    crashes: tuple[str, ...],
    rules: Rules,
    best: Best,
) -> Consequences:
    lasting = (finding for finding in new if not entry_of(finding.reason).passes)
    roots = (root for root in root_causes(lasting, {}) if _concerns(key, root.finding))
    compared = compare(before, msgspec.structs.replace(after, root_causes=tuple(roots)), best)
    unknown = (gap.description for gap in (*before.unknown, *after.unknown))
    return Consequences(
        tuple(root.finding for root in compared.introduced),
        tuple(filter(attrgetter("weaker"), compared.hops)),
        () if key.kind in OPERATORS else tuple(dict.fromkeys(_refusals(compared, before, after, rules))),
        tuple(filter(attrgetter("other_trust"), compared.hops)),
        tuple(dict.fromkeys((*crashes, *unknown))),
    )


def _concerns(key: Key, finding: Finding) -> bool:
    """Returns whether the author of an edit sees a finding: those of the same namespace, or all for cluster-scoped objects."""
    return not key.namespace or finding.object is None or finding.object.namespace in ("", key.namespace)


def _refusals(compared: Comparison, before: ComparedState, after: ComparedState, rules: Rules) -> Iterator[str]:
    """Yields the reasons of the operator's rules to refuse the edit."""
    for change in compared.hops:
        if change.weaker and Refusal.WEAKER in rules[change.gateway]:
            yield f"{hop_words(change)}, and {change.gateway} refuses that (GatewayProfile, admission.refuse)"
    yield from _refused_states(before, after, rules)


def _refused_states(before: ComparedState, after: ComparedState, rules: Rules) -> Iterator[str]:
    """Yields hops that the edit would bring into a refused state."""
    existing, forbidden = set(before.hops), {report.place for report in filter(_not_permitted, before.hops)}
    for report in after.hops:
        where = f"{report.gateway} to {report.backend}:{report.port}"
        if Refusal.NOT_PERMITTED in rules[report.gateway] and _not_permitted(report) and report.place not in forbidden:
            yield f"{where}: {report.detail}"
        if Refusal.ENDLESS_WAIVER in rules[report.gateway] and report.endless and report not in existing:
            yield f"{where}: {report.waiver} has no end, but the GatewayProfile requires one; set expires"


def _not_permitted(report: HopReport) -> bool:
    """Returns whether a profile forbids the hop."""
    return entry_of(report.reason).not_permitted


def hop_words(change: HopChange) -> str:
    facts = f" ({'; '.join(change.facts)})" if change.facts else ""
    return f"{change.gateway} to {change.backend}:{change.port} would be {change.after}; now: {change.before}{facts}"


def used_up(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
