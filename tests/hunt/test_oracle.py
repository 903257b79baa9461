"""The oracle forbids what the rule forbids, and nothing else; a history is the same whenever it is made."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.hunt.base import BASE
from tests.hunt.generator import Generator
from tests.hunt.history import ALL, Edit, History, Step, dump, load
from tests.hunt.oracle import Oracle, forbidden_in_the_end
from tests.hunt.texts import Policy

B = "shop/bravo"
HOP = Edit("hop.yaml", hops=(f"{B}:443",), text="")
GOOD = Edit("p.yaml", names=(B,), text="")
OPAQUE = Edit("q.yaml", unknown=ALL, text="")
NARROW = Edit("q.yaml", unknown=("shop/alpha",), text="")
START = Step((*BASE, HOP), process="term")
RULE = {
    "no policy": ((START,), False),
    "a good policy": ((START, Step((GOOD,))), True),
    "a good policy that goes": ((START, Step((GOOD,)), Step((Edit("p.yaml"),))), False),
    "plaintext before the unknown": ((START, Step((OPAQUE,))), False),
    "plaintext before it, and a route that goes and comes": (
        (START, Step((OPAQUE,)), Step((Edit("hop.yaml"),)), Step((HOP,))),
        True,
    ),
    "plaintext before it, and a Gateway that goes and comes": (
        (START, Step((OPAQUE,)), Step((Edit("gateway.yaml"),)), Step((BASE[0],))),
        True,
    ),
    "plaintext before it, and another port": (
        (START, Step((OPAQUE,)), Step((Edit("hop.yaml", hops=(f"{B}:8443",), text=""),))),
        True,
    ),
    "plaintext before it, and a policy that comes and goes": (
        (START, Step((OPAQUE,)), Step((GOOD,)), Step((Edit("p.yaml"),))),
        True,
    ),
    "plaintext before it, and a kill that leaves Envoy running": ((START, Step((OPAQUE,)), Step(process="kill")), False),
    "plaintext before it, and a stop that ends Envoy": ((START, Step((OPAQUE,)), Step(process="term")), True),
    "a second unknown, and the first one goes": (
        (START, Step((OPAQUE,)), Step((Edit("r.yaml", unknown=ALL, text=""),)), Step((Edit("q.yaml"),))),
        False,
    ),
    "a policy that moves into the unknown": ((START, Step((GOOD,)), Step((OPAQUE, Edit("p.yaml")))), True),
    "a policy that is gone for a moment before": ((START, Step((GOOD,)), Step((Edit("p.yaml"), OPAQUE))), False),
    "a policy that is gone at once": ((START, Step((GOOD,)), Step((Edit("p.yaml"), OPAQUE), via="release")), True),
    "a start with the unknown": ((Step((*BASE, HOP, OPAQUE), process="term"),), True),
    "a start with the unknown that is mended": (
        (Step((*BASE, HOP, OPAQUE), process="term"), Step((Edit("q.yaml"),))),
        False,
    ),
    "a start with what cannot name it": ((Step((*BASE, HOP, NARROW), process="term"),), False),
    "a folder that is away": ((START, Step(folder="away")), False),
    "a policy in a folder that is away": ((START, Step((GOOD,)), Step(folder="away")), True),
    "a name that is not read": ((START, Step((GOOD,)), Step((Edit("p.yaml", to="p.YAML", unknown=(B,)),))), True),
    "another name": ((START, Step((GOOD,)), Step((Edit("p.yaml", to="r.yaml"),))), True),
}


@pytest.mark.parametrize("case", RULE)
def test_the_oracle_forbids_what_the_rule_forbids(case: str) -> None:
    steps, forbidden = RULE[case]
    assert (B in forbidden_in_the_end(History(steps))) == forbidden


def test_a_text_that_mentions_a_policy_and_claims_nothing_may_name_its_services() -> None:
    text = Policy("p", "shop", ("bravo",)).text
    oracle = Oracle()
    oracle.take(Step((*BASE, HOP, Edit("x.yaml", text)), process="term"))
    assert oracle.forbidden == {B}
    oracle.take(Step((Edit("x.yaml", "".join(f"# {line}\n" for line in text.splitlines())),)))
    assert oracle.forbidden == set()


def test_plaintext_during_a_step_is_excused_only_where_it_was_or_becomes_allowed() -> None:
    oracle = Oracle()
    oracle.take(START)
    oracle.take(Step((GOOD,)))
    assert B not in oracle.meanwhile, "the policy takes a moment"
    oracle.take(Step((OPAQUE, Edit("p.yaml"))))
    assert B in oracle.meanwhile
    oracle.take(Step((Edit("q.yaml"),)))
    assert B not in oracle.meanwhile


def test_a_history_is_the_same_whenever_it_is_made_and_survives_a_file(tmp_path: Path) -> None:
    histories = [Generator(Random("hunt 3")).history(120) for _ in range(2)]
    assert histories[0] == histories[1] != Generator(Random("hunt 4")).history(120)
    (tmp_path / "history.yaml").write_text(dump(histories[0]))
    assert load(tmp_path / "history.yaml") == histories[0]
