"""Selects and describes the hops that the page shows. Pure: reports and observations in, rows out."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.text.printable import some
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.observation import EndpointSeen, Failure, Health, HopSeen, LeafCertificate, Traffic
from lasthop.engine.plan.strength import Strength

SINGLE: Final = 40
"""Lines per page; with more, healthy lines are bundled."""
BUNDLES: Final = 20
NAMED_ENDPOINTS: Final = 3
FAILING_SHARE: Final = 0.01
"""Share of failing requests from which a line's text mentions them."""


class LineState(StrEnum):
    """The state of a hop, the worst first. Plaintext is worse than a waiver, which at least encrypts."""

    FAILING = "failing"
    PARTLY = "partly failing"
    PLAINTEXT = "plaintext"
    WAIVED = "waived"
    UNTRIED = "not tried yet"
    VERIFIED = "verified"
    OUTSIDE = "passthrough or UDP"
    """Policies do not apply."""

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @property
    def slug(self) -> str:
        """Returns the name for CSS classes and addresses."""
        return self.lower().replace(" ", "-")


_RANKS: Final = {state: rank for rank, state in enumerate(LineState)}
BY_SLUG: Final = {state.slug: state for state in LineState}
DEGRADED: Final = frozenset({LineState.FAILING, LineState.PARTLY, LineState.PLAINTEXT, LineState.WAIVED})
"""States whose lines are shown separately as long as there is room."""


class Line(msgspec.Struct, frozen=True):
    """The line to one backend."""

    id: str
    """Contains no user text, so that it can be part of any markup or address."""
    report: HopReport
    """The requirement, with observations."""
    state: LineState
    words: str
    """The observation, or the reason why there is none."""
    endpoints: tuple[EndpointSeen, ...] = ()
    traffic: Traffic = Traffic()
    rate: float = 0.0
    """Requests per second; of a stream, connections."""
    errors: float = 0.0
    """The share of responses with 5xx."""

    @property
    def namespace(self) -> str:
        return self.report.backend.namespace

    @property
    def gateway(self) -> str:
        return self.report.gateway.path

    @property
    def routes(self) -> tuple[str, ...]:
        return tuple(map(str, self.report.routes))

    @property
    def certificate(self) -> LeafCertificate | None:
        """Returns the backend's certificate; of several, the first to expire."""
        return next(iter(self.report.observed.certificates), None) if self.report.observed else None

    @property
    def no_certificate(self) -> str:
        """Returns why there is no certificate. Envoy keeps nothing of a rejected certificate, except the text in `words`."""
        if self.report.refused:
            return "none: no connection is made"
        if self.report.in_effect is Strength.PLAINTEXT:
            return "none: plaintext"
        if self.state is LineState.OUTSIDE:
            return "not visible to the gateway"
        refused = self.report.observed and any(failure.handshake for failure in self.report.observed.failures)
        return "none accepted" if refused else "not seen yet"

    @property
    def order(self) -> tuple[int, float, str, int, str]:
        """The worst first, then the busiest."""
        return (self.state.rank, -self.rate, self.report.backend.path, self.report.port, self.gateway)


def line(report: HopReport, seen: HopSeen | None = None, recent: tuple[float, float] = (0.0, 0.0)) -> Line:
    """Returns the line of a hop. `recent` contains requests and errors per second."""
    state = state_of(report, report.observed.health if report.observed else Health.UNTRIED)
    id, seen = line_id(report.gateway, report.backend, report.port, report.outside or ""), seen or HopSeen()
    requests, errors = recent
    share = errors / requests if requests else 0.0
    words = _words(report, state)
    # The handshake succeeds before a request fails. The state shows the handshake, the text shows both.
    words = f"{words}; {share:.0%} of requests fail" if share >= FAILING_SHARE and state is not LineState.FAILING else words
    return Line(id, report, state, words, seen.endpoints, seen.traffic, requests, share)


def line_id(gateway: Key, backend: Key, port: int, protocol: str = "") -> str:
    """Returns the id of a line. `protocol` is set for hops to which policies do not apply."""
    text = "\n".join((gateway.path, str(backend), str(port), protocol))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def state_of(report: HopReport, health: Health) -> LineState:
    if report.refused or health is Health.FAILING:
        return LineState.FAILING
    if health is Health.PARTLY_FAILING:
        return LineState.PARTLY
    if report.outside:
        return LineState.OUTSIDE
    if report.strength < Strength.PINNED_ONLY:
        return LineState.PLAINTEXT if report.strength is Strength.PLAINTEXT else LineState.WAIVED
    return LineState.UNTRIED if health is Health.UNTRIED else LineState.VERIFIED


def _words(report: HopReport, state: LineState) -> str:
    seen = report.observed
    if seen and seen.health.bad and not report.refused:
        words = "; ".join(_failure(failure, seen.endpoints) for failure in seen.failures) or "connections to it fail"
        return f"{words} (plaintext: {report.detail})" if report.in_effect is Strength.PLAINTEXT else words
    if state is LineState.WAIVED and report.why:
        return f"{report.detail}: {report.why}"
    if state is LineState.UNTRIED:
        return f"to be verified against {report.detail}"
    return report.detail


def _failure(failure: Failure, tried: int) -> str:
    """Formats a failure such as `2 of 3 endpoints: certificate is for old.example (10.0.0.1:8443, 10.0.0.2:8443)`. The part
    that may be truncated comes last."""
    endpoints = [address for address in failure.endpoints if address]
    by = f" from {', '.join(failure.proxies)}" if failure.proxies else ""
    if not endpoints or (len(endpoints) >= tried and not by):
        return failure.words
    named = some(endpoints, NAMED_ENDPOINTS)
    return f"{len(endpoints)} of {max(tried, len(endpoints))} endpoints{by}: {failure.words} ({named})"


class Filter(msgspec.Struct, frozen=True):
    text: str = ""
    namespace: str = ""
    gateway: str = ""
    state: LineState | None = None
    page: int = 0
    """0: many healthy lines are bundled; from 1 on: every line, page by page."""

    @property
    def empty(self) -> bool:
        return self == Filter()


class LineBundle(msgspec.Struct, frozen=True):
    """Lines of a Gateway and a namespace in the same state, drawn as one."""

    gateway: str
    """Empty: several Gateways."""
    namespace: str
    """Empty: several namespaces."""
    state: LineState
    lines: tuple[Line, ...]

    @property
    def rate(self) -> float:
        return sum(line.rate for line in self.lines)

    @property
    def namespaces(self) -> int:
        return len({line.namespace for line in self.lines})

    @property
    def soonest(self) -> Line | None:
        """Returns the line whose certificate expires first."""
        dated = ((line.certificate.not_after, line.id, line) for line in self.lines if line.certificate)
        return min(dated, default=(0.0, "", None))[2]

    @property
    def no_certificate(self) -> str:
        reasons = {line.no_certificate for line in self.lines}
        return reasons.pop() if len(reasons) == 1 else "no certificate accepted or seen"


Row = Line | LineBundle


class Choice(msgspec.Struct, frozen=True):
    """The shown lines, and the counts for the filters."""

    rows: tuple[Row, ...]
    states: tuple[tuple[LineState, int], ...]
    """The number of lines by state, within the current text, namespace and Gateway."""
    namespaces: tuple[tuple[str, int], ...]
    gateways: tuple[tuple[str, int], ...]
    found: int
    total: int
    page: int
    pages: int


def choose(lines: Sequence[Line], filter: Filter) -> Choice:
    """Returns the rows to draw; `lines` are in order."""
    words = filter.text.lower().split()
    within = [line for line in lines if _matches(line, words, filter)]
    states = Counter(line.state for line in within)
    matches = [line for line in within if filter.state in (None, line.state)]
    pages = max(1, -(-len(matches) // SINGLE))
    page = min(filter.page, pages)
    return Choice(
        _rows(matches, page),
        tuple((state, states[state]) for state in LineState),
        _counted(line.namespace for line in lines),
        _counted(line.gateway for line in lines),
        len(matches),
        len(lines),
        page,
        pages,
    )


def _rows(matches: list[Line], page: int) -> tuple[Row, ...]:
    if page or len(matches) <= SINGLE:
        first = max(0, page - 1) * SINGLE
        return tuple(matches[first : first + SINGLE])
    return _bundled(matches)


def _matches(line: Line, words: Iterable[str], filter: Filter) -> bool:
    report = line.report
    if filter.namespace and filter.namespace != line.namespace:
        return False
    if filter.gateway and filter.gateway != line.gateway:
        return False
    objects = (key.path for key in (report.policy, report.waiver) if key)
    texts = (report.address, line.gateway, *objects, line.words, *line.routes)
    return all(any(word in part.lower() for part in texts) for word in words)


def _counted(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(names).items()))


def _bundled(matches: Sequence[Line]) -> tuple[Row, ...]:
    """Returns lines that need attention separately, as far as there is room, and all others in bundles."""
    single = [line for line in matches if line.state in DEGRADED][: SINGLE - BUNDLES]
    shown = {line.id for line in single}
    groups = _gathered(((line.state, line.gateway, line.namespace), [line]) for line in matches if line.id not in shown)
    kept = sorted(groups, key=lambda key: (key[0].rank, -len(groups[key]), key[1:]))
    room = BUNDLES - len(LineState)
    wider = _gathered(((state, gateway, ""), groups[state, gateway, name]) for state, gateway, name in kept[room:])
    if len(wider) > len(LineState):
        wider = _gathered(((state, "", ""), lines) for (state, *_), lines in wider.items())
    bundles = itertools.starmap(_bundle, [*((key, groups[key]) for key in kept[:room]), *wider.items()])
    return (*single, *sorted(bundles, key=lambda bundle: bundle.state.rank))


BundleKey = tuple[LineState, str, str]
"""State, Gateway and namespace of the lines in a bundle; empty: several."""


def _gathered(parts: Iterable[tuple[BundleKey, list[Line]]]) -> dict[BundleKey, list[Line]]:
    gathered: dict[BundleKey, list[Line]] = {}
    for key, lines in parts:
        gathered.setdefault(key, []).extend(lines)
    return gathered


def _bundle(key: BundleKey, lines: list[Line]) -> Row:
    return lines[0] if len(lines) == 1 else LineBundle(key[1], key[2], key[0], tuple(lines))
