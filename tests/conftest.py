"""Options and settings of the whole test suite."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.absence import absent
from tools import programs

# The same examples every time, and no deadline on a busy machine: a test that fails by chance is a defect. "full" has more of
# those that take long (tests/examples.py). To look for what these examples do not show: pytest --hypothesis-profile explore.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("full", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("fixed")


# Collection makes thousands of objects that stay: the garbage collector would take a third of its time and find nothing.
gc.disable()


LONGEST = ("properties", "web", "judge", "proxy", "importers", "docs")
"""Rooms whose files take long, in the order in which they begin."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the expected half of tests/cases/*.yaml anew")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts `make test &` with SIGINT ignored, and `nohup` with SIGHUP. Every process that a test starts would inherit
    # this; a handler is not inherited.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "program(name): needs a program of the table in tools/programs.py")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = [programs.named(*marker.args) for marker in item.iter_markers("program")]
    if missing := [program.absence() for program in needed if program.find() is None]:
        absent("; ".join(missing))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the long files: who gets one of them last keeps the other workers waiting."""
    rank = {room: number for number, room in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.split("/")[1], len(rank)))


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """Returns the address of a browser. Each test opens its own page."""
    from tests.web import browser

    with browser.running(programs.path("chromium")) as address:
        yield address


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
