"""For any edits in any order: a backend that was verified and is now plaintext is an error of every route to it; one that was
always plaintext is not."""

from __future__ import annotations

from hypothesis import given

from lasthop.base.api.core import Service
from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.strength import Strength
from lasthop.engine.resolve.backends.app_protocols import is_plaintext
from tests.examples import slow
from tests.properties.promises import PREPARED
from tests.random_world import EDITS, Edit
from tests.snapshot import settle
from tests.world import key

Address = tuple[Key, int]


def address(hop: HopReport) -> Address:
    return hop.backend, hop.port


class History:
    """Records from the audit only how each backend was verified since routes refer to it."""

    def __init__(self) -> None:
        self.verified: set[Address] = set()
        self.asked: set[Address] = set()
        """It had a policy at some time, or was refused for an unknown reason."""

    def look(self, engine: Engine) -> None:
        hops = [hop for hop in engine.hops() if not hop.outside]
        addresses = {address(hop) for hop in hops}
        self.verified = (self.verified & addresses) | {
            address(hop) for hop in hops if hop.in_effect not in (None, Strength.PLAINTEXT)
        }
        self.asked = (self.asked & addresses) | {address(hop) for hop in hops if hop.in_effect is not Strength.PLAINTEXT}
        errors = {(f.object, f.message) for f in engine.findings() if f.reason == "NoLongerVerified"}
        for hop in hops:
            if hop.in_effect is Strength.PLAINTEXT and address(hop) in self.verified and not acknowledged(engine, hop):
                for route in hop.routes:
                    prefix = f"backend {hop.address} is plaintext now, because "
                    assert any(obj == route and message.startswith(prefix) for obj, message in errors), hop
        for _, message in errors:
            about = message.removeprefix("backend ").partition(" is ")[0]
            assert about in {hop.address for hop in hops if address(hop) in self.asked}, message


def acknowledged(engine: Engine, hop: HopReport) -> bool:
    service = engine.store.get(hop.backend)
    port = service.port(hop.port) if isinstance(service, Service) else None
    return bool(port and is_plaintext(port.app_protocol))


@slow(120)
@given(EDITS)
def test_a_backend_that_was_verified_and_is_plaintext_is_an_error_of_its_routes(edits: list[Edit]) -> None:
    engine, snapshot = PREPARED()
    history = History()
    history.look(engine)
    for obj, delete, _ in edits:
        engine.apply({key(obj): None if delete else obj})
        settle(engine, snapshot)
        history.look(engine)
    assert engine.graph.crashes == {}
