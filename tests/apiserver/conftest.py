from __future__ import annotations

import pytest

from tests.absence import absent
from tests.apiserver.server import BUILT


@pytest.fixture(autouse=True)
def built() -> None:
    if not BUILT:
        absent("kube-apiserver and etcd are not built: python -m conformance build")
