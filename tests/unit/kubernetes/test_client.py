"""The client's verbs, errors and credentials."""

from __future__ import annotations

import contextlib
import ssl

import pytest

from lasthop.cli.views.cluster import explained
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import UNTRUSTED, ApiError, from_status
from tests.api_objects import mk_config_map
from tests.backends import Backend
from tests.fake_api import FakeApi, Refusal, client_of
from tests.proxy.certs import issued

MAPS = path_of("", "v1", "configmaps", "shop")
CA = path_of("", "v1", "configmaps", "shop", "ca")


def test_paths() -> None:
    assert path_of("", "v1", "namespaces", name="shop") == "/api/v1/namespaces/shop"
    expected = "/apis/g.io/v1/namespaces/ns/things/x/status"
    assert path_of("g.io", "v1", "things", "ns", "x", "status") == expected
    assert path_of("g.io", "v1", "things") == "/apis/g.io/v1/things"


async def test_create_read_replace_apply_and_delete(api: FakeApi) -> None:
    async with client_of(api) as client:
        made = await client.create(MAPS, mk_config_map("ca", a="1"))
        assert (await client.get(CA))["data"] == {"a": "1"}
        changed = await client.put(CA, {**made, "data": {"a": "2"}})
        with pytest.raises(ApiError) as stale:
            await client.put(CA, {**made, "data": {"a": "3"}})
        assert stale.value.conflict and stale.value.reason == "Conflict"
        assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        await client.apply(CA, {"apiVersion": "v1", "kind": "ConfigMap", **mk_config_map("ca", b="1")})
        assert (await client.get(CA))["data"] == {"b": "1"}
        await client.delete(CA)
        await client.delete(CA)  # gone already is gone
        with pytest.raises(ApiError) as missing:
            await client.get(CA)
        assert missing.value.not_found
    [query] = api.asked("patch", "configmaps")
    assert query == {"fieldManager": "lasthop", "force": "true"}


async def test_an_error_has_status_reason_and_message(api: FakeApi) -> None:
    api.fail("get", "configmaps", Refusal(403, "Forbidden", "no"), Refusal(429, "TooManyRequests"))
    async with client_of(api) as client:
        with pytest.raises(ApiError) as forbidden:
            await client.get(CA)
        assert str(forbidden.value) == "403 Forbidden: no" and forbidden.value.denied
        with pytest.raises(ApiError) as busy:
            await client.get(CA)
        assert busy.value.transient and busy.value.retry_after == 1.0


async def test_an_untrusted_server_differs_from_an_absent_one(api: FakeApi) -> None:
    backend = Backend(issued("localhost"))
    with contextlib.closing(backend):
        async with client_of(api) as client:
            client.access.url, client.access.ssl = f"https://localhost:{backend.port}", ssl.create_default_context()
            with pytest.raises(ApiError) as untrusted:
                await client.get(CA)
    assert (untrusted.value.status, untrusted.value.reason) == (0, UNTRUSTED)
    message, question = explained(untrusted.value, "prod")
    assert "certificate of the API server of prod is not trusted" in message and "certificate-authority" in question


async def test_no_listener_and_a_blackhole_have_different_messages(api: FakeApi) -> None:
    api.fail("get", "configmaps", "*", "reset")  # once is not enough: aiohttp itself tries a GET twice
    async with client_of(api) as client:
        with pytest.raises(ApiError) as cut:
            await client.get(CA)
        client.access.url = "http://127.0.0.1:9"
        with pytest.raises(ApiError) as refused:
            await client.get(CA)
    assert (cut.value.reason, refused.value.reason) == ("Reset", "Unreachable")
    assert cut.value.transient and refused.value.transient


async def test_401_renews_the_credentials_once_and_tries_again(api: FakeApi) -> None:
    api.put("configmaps", mk_config_map("ca"))
    api.token = "new"
    access = api.access
    access.token, access.next_token = "old", "new"
    async with Client(access) as client:  # type: ignore[arg-type]
        assert (await client.get(CA))["metadata"]["name"] == "ca"
        assert access.renewed == 1
        access.token, access.next_token = "wrong", "wrong"
        with pytest.raises(ApiError) as refused:
            await client.get(CA)
        assert refused.value.status == 401 and access.renewed == 2


def test_an_invalid_status_object_gives_one_line() -> None:
    assert str(from_status(404, b"404 page not found\n")) == "404: 404 page not found"
