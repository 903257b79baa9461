from __future__ import annotations

import pytest

from tools import programs


@pytest.fixture
def chromium() -> str:
    return programs.path("chromium")
