"""A gateway for many tests at once, each with hosts of its own; and gateways of their own for tests that break things."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends import Backend, backend
from tests.proxy import certs
from tests.proxy.lasthop import Lasthop


@contextlib.contextmanager
def _root() -> Iterator[Path]:
    """Short, because unix sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as name:
        yield Path(name)


def _makers() -> Iterator[Callable[..., Lasthop]]:
    with contextlib.ExitStack() as stack:

        def make(*args: str, **settings: Any) -> Lasthop:
            return stack.enter_context(contextlib.closing(Lasthop(stack.enter_context(_root()), *args, **settings)))

        yield make


@pytest.fixture(scope="package")
def gateway() -> Iterator[Lasthop]:
    """Shared: each test writes files with its own names and leaves other tests' hosts alone. It ends with the last of them."""
    with _root() as root:
        bundle = root / "system-store.pem"
        bundle.write_text(certs.CA.pem)
        lasthop = Lasthop(root, env={"SSL_CERT_FILE": str(bundle), "LASTHOP_ALLOW_FILES": str(root)})
        lasthop.standard()
        with contextlib.closing(lasthop):
            lasthop.start()
            yield lasthop


@pytest.fixture
def own() -> Iterator[Callable[..., Lasthop]]:
    """Makes a gateway of the test's own; it is not started yet."""
    yield from _makers()


@pytest.fixture(scope="module")
def module_own() -> Iterator[Callable[..., Lasthop]]:
    """The same for all tests of a module."""
    yield from _makers()


@pytest.fixture
def serve() -> Iterator[Callable[..., Backend]]:
    """Makes a backend. Backends that accept only TLS must never receive anything but TLS, in any test."""
    made: list[Backend] = []
    with contextlib.ExitStack() as stack:

        def make(*args: Any, **settings: Any) -> Backend:
            made.append(stack.enter_context(backend(*args, **settings)))
            return made[-1]

        yield make
    assert not [b.name for b in made if b.saw_plaintext and b.context and not b.plaintext_too]
