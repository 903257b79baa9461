"""Each history of the corpus holds, with a real Envoy; and the oracle forbids what the rule forbids."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hunt.gateway import Site, replay_on, site
from tests.hunt.history import load

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.yaml"))


@pytest.fixture(scope="module")
def shared() -> Iterator[Callable[[bool], Site]]:
    """Gives a gateway that other histories were played on; a new one after a history that failed."""
    with contextlib.ExitStack() as stack:
        made: list[Site] = []

        def give(failed: bool = False) -> Site:
            if failed or not made:
                made[:] = [stack.enter_context(site(linked=True))]
            return made[0]

        yield give


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_history_of_the_corpus_holds(shared: Callable[..., Site], path: Path) -> None:
    history = load(path)
    _, why = replay_on(shared(), history)
    if why:
        shared(failed=True)
    assert not why, history.rule
