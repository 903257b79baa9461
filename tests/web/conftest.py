from __future__ import annotations

import pytest

from tests.web import browser


@pytest.fixture
def chromium() -> str:
    found = browser.find()
    if found is None:
        pytest.skip("there is no Chromium on this machine; apt-get install chromium")
    return found
