from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web import browser
from tools import programs


@pytest.fixture(scope="package")
def chromium() -> Iterator[str]:
    """The address of a browser; each test opens a page of its own."""
    with browser.running(programs.path("chromium")) as address:
        yield address
