"""A proxy, its backends and the controller that receives its reports, as a dialogue over a clock that the test moves."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe.evidence import ConnectionOutcome, EndpointCounts, HopCounts
from lasthop.edge.observe.observations import Observations
from lasthop.edge.observe.tally import Tally
from lasthop.engine.plan.cluster_metadata import identity
from lasthop.engine.plan.observation import HopSeen, HopState, LeafCertificate
from lasthop.engine.plan.tls import Refused
from lasthop.engine.plan.upstream import Connection, Hop, Protocol
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.store.graph import Graph

WEB = Key("Gateway", "shop", "web")
HOP = Hop(WEB, Key("Service", "shop", "api"), 443, Protocol.AUTO)
A, B, C = "10.0.0.1:8443", "10.0.0.2:8443", "10.0.0.3:8443"
WRONG_NAME = "certificate is for old.example, policy shop/api wants api.example"
LEAF = LeafCertificate("CN=api", "CN=ca", ("api.example",), 0.0, 2_000_000_000.0)


def of_now(g: Graph, hop: Hop, seen: HopSeen) -> HopSeen:
    """Returns the figures as seen under the present configuration of the hop."""
    tls = hop_tls(g, *hop)
    config = "" if isinstance(tls, Refused) else identity(tls)
    return msgspec.structs.replace(
        seen, endpoints=tuple(msgspec.structs.replace(endpoint, config=config) for endpoint in seen.endpoints)
    )


class World:
    def __init__(self, *proxies: str) -> None:
        self.now = 1_000_000.0
        self.observations = Observations()
        self.tallies = {name: Tally(WEB, name, now=self.now) for name in proxies or ("",)}
        self.config = "first"
        """The current connection of the hop."""
        self.connections: dict[tuple[str, str, str], list[int]] = {}
        """By configuration, proxy and address: how many were made, how many failed."""
        self.active = 0
        self.ejected: set[str] = set()
        self.states: list[HopState] = []
        """Events of the hop, in order."""

    def tally(self, proxy: str = "") -> Tally:
        return self.tallies[proxy or next(iter(self.tallies))]

    def succeeds(
        self, address: str = A, proxy: str = "", *, sampled: bool = True, leaf: LeafCertificate | None = LEAF
    ) -> None:
        self._counts(address, proxy)[0] += 1
        if sampled:
            self.tally(proxy).take(
                ConnectionOutcome(HOP, address, self.now, certificate=leaf, tls_version="TLSv1.3", config=self.config)
            )

    def fails(self, address: str = A, words: str = WRONG_NAME, proxy: str = "", *, logged: bool = True) -> None:
        self._counts(address, proxy)[1] += 1
        if logged:
            outcome = ConnectionOutcome(HOP, address, self.now, words, handshake=words == WRONG_NAME, config=self.config)
            self.tally(proxy).take(outcome)

    def _counts(self, address: str, proxy: str) -> list[int]:
        return self.connections.setdefault((self.config, proxy or next(iter(self.tallies)), address), [0, 0])

    def wait(self, seconds: float = 1.0) -> World:
        """Lets time pass, a second at a time and later ten, in which the counters are read and the proxies report."""
        begin, end = self.now, self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + (1.0 if self.now - begin < 60 else 10.0))
            self.look()
        return self

    def look(self) -> None:
        for name, tally in self.tallies.items():
            counted = {config: self._counted(config, name) for config in {self.config, *(key[0] for key in self.connections)}}
            tally.count({Connection(HOP, config): counts for config, (counts, _) in counted.items()}, self.now)
            if HOP in tally.watched():
                # Of a cluster that was replaced Envoy lists no endpoints.
                tally.count_endpoints({Connection(HOP, self.config): counted[self.config][1]}, self.now)
            self.observations.heard(tally.report(self.now), self.now)
        self.step()

    def _counted(self, config: str, proxy: str) -> tuple[HopCounts, dict[str, EndpointCounts]]:
        mine = {key[2]: counts for key, counts in self.connections.items() if key[:2] == (config, proxy)}
        good, bad = (sum(counts[n] for counts in mine.values()) for n in (0, 1))
        ejected = self.ejected if config == self.config else set()
        endpoints = {
            address: EndpointCounts(sum(counts), counts[1], counts[0], address in ejected) for address, counts in mine.items()
        }
        active = self.active if config == self.config else 0
        counts = HopCounts(good + bad, bad, good, {"fail_verify_san": bad}, active, good, ejected=len(ejected))
        return counts, endpoints

    def step(self) -> None:
        for state in self.observations.step(self.now).values():
            self.states.append(state or HopState())

    @property
    def state(self) -> HopState:
        """The state of the hop under its current configuration."""
        return self.observations.state(HOP, self.config)

    @property
    def health(self) -> str:
        return str(self.state.health)

    @property
    def healths(self) -> list[str]:
        """The health of the hop over time, each change once."""
        healths = ["untried", *(str(state.health) for state in self.states)]
        return [health for health, before in zip(healths, ["", *healths], strict=False) if health != before]
