"""Earlier findings of the fuzzer stay fixed, with a real Envoy; and the fuzzer finds planted faults."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.engine.resolve.routing import http_syntax
from tests.fuzz.__main__ import corpus, world
from tests.fuzz.harness import Failed, harness


async def test_every_world_of_the_corpus_passes() -> None:
    assert corpus()
    async with harness() as fuzzed:
        for name, documents in corpus().items():
            try:
                await fuzzed.show(documents)
            except Failed as failed:
                pytest.fail(f"{name}: {failed}")


def test_a_world_is_the_same_whenever_it_is_made() -> None:
    assert [world(3, number) for number in range(20)] == [world(3, number) for number in range(20)]
    assert world(3, 0) != world(4, 0)


def route(**rule: Any) -> dict[str, Any]:
    metadata = {"name": "odd", "namespace": "team"}
    spec = {"parentRefs": [{"name": "web", "namespace": "edge"}], "hostnames": ["shared.example"], "rules": [rule]}
    return {"kind": "HTTPRoute", "metadata": metadata, "spec": spec}


async def test_unchecked_configuration_that_envoy_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_syntax, "PATH", http_syntax.HEADER_VALUE)
    async with harness() as fuzzed:
        with pytest.raises(Failed, match="refused by Envoy"):
            await fuzzed.show([route(matches=[{"path": {"value": "/a?b"}}], backendRefs=[{"name": "a", "port": 443}])])


async def test_an_exception_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_syntax, "MAX_WEIGHT", 1 << 40)
    monkeypatch.setattr(http_syntax, "MAX_WEIGHTS", 1 << 50)
    refs = [{"name": "a", "port": 443, "weight": 1 << 35}, {"name": "b", "port": 443}]
    async with harness() as fuzzed:
        with pytest.raises(Failed, match=r"raised|found"):
            await fuzzed.show([route(backendRefs=refs)])
