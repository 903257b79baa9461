"""The access log on standard output: failed requests as JSON, with the reason in words."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from typing import Any

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued, with_alpn
from tests.proxy.lasthop import BACKEND_FAILURE, NO_ANSWER, Lasthop


def entry(gateway: Lasthop, name: str) -> dict[str, Any]:
    """The first line for a host, which comes within a second of its request."""
    (line, *_) = until(lambda: gateway.entries(name), f"a line for {name}")
    return line


def test_a_wrong_name_is_logged_with_both_names_and_hidden_from_the_client(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    served = serve(issued("old.example"))
    ca = docs.config_map("log-name-ca", CA.pem)
    gateway.load(
        "log-name.yaml", ca, *docs.hop("log-name", served.port, docs.policy("log-name", "new.example", "log-name-ca"))
    )
    assert gateway.get("log-name") == (503, BACKEND_FAILURE)
    line = entry(gateway, "log-name")
    assert line["why"] == "certificate is for old.example, policy shop/log-name wants new.example"
    assert (line["status"], line["gateway"], line["route"]) == (503, "shop/web", "HTTPRoute shop/log-name")
    assert line["method"] == "GET" and line["path"] == "/"


def test_an_unknown_ca_is_logged_with_the_policy(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued(issuer=OTHER_CA))
    ca = docs.config_map("log-ca-ca", CA.pem)
    gateway.load("log-ca.yaml", ca, *docs.hop("log-ca", served.port, docs.policy("log-ca", "api.example", "log-ca-ca")))
    assert gateway.get("log-ca").status == 503
    assert entry(gateway, "log-ca")["why"].startswith(
        "certificate is signed by an unknown CA (not by the CA of policy shop/log-ca"
    )


def test_an_invalid_policy_is_logged_with_what_is_wrong_with_it(gateway: Lasthop) -> None:
    gateway.load("log-invalid.yaml", *docs.hop("log-invalid", 9, docs.policy("log-invalid", "api.example", "not-there")))
    assert gateway.get("log-invalid").status == 500
    line = entry(gateway, "log-invalid")
    assert "BackendTLSPolicy shop/log-invalid is invalid" in line["why"]
    assert "ConfigMap shop/not-there does not exist" in line["why"]


def test_a_reference_without_a_grant_is_logged_with_the_remedy(gateway: Lasthop) -> None:
    gateway.load(
        "log-grant.yaml",
        docs.namespace("log-far"),
        docs.service("log-far/x"),
        docs.route("log-grant", docs.to("x", namespace="log-far")),
    )
    assert gateway.get("log-grant").status == 500
    assert "ReferenceGrant" in entry(gateway, "log-grant")["why"]


def test_a_request_without_a_matching_route_gets_a_clear_body(gateway: Lasthop) -> None:
    assert gateway.get("nobody-has-this-name") == (404, "No route of this gateway matches the request.\n")


def test_a_request_that_succeeds_is_not_logged(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    ca = docs.config_map("log-good-ca", CA.pem)
    gateway.load(
        "log-good.yaml", ca, *docs.hop("log-good", served.port, docs.policy("log-good", "api.example", "log-good-ca"))
    )
    assert gateway.get("log-good").status == 200
    gateway.load("log-later.yaml", *docs.hop("log-later", 9, docs.policy("log-later", "api.example", "not-there")))
    assert gateway.get("log-later").status == 500
    entry(gateway, "log-later")
    assert gateway.entries("log-good") == []


def test_texts_of_clients_are_cut_before_they_are_written(gateway: Lasthop) -> None:
    gateway.load("log-long.yaml", *docs.hop("log-long", 9, docs.policy("log-long", "api.example", "not-there")))
    odd = ("\u200b" * 2_000).encode().decode("latin-1")
    assert gateway.get("log-long", headers={"x-request-id": odd}).status == 500
    said = entry(gateway, "log-long")
    assert said["request_id"] and len(json.dumps(said)) < 2_000
    (log,) = (gateway.root / "r").rglob("access.log")
    assert max(len(line) for line in log.read_bytes().splitlines()) < 4_000


def demanding() -> ssl.SSLContext:
    context = issued()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=CA.pem)
    return context


def test_a_silent_backend_gets_a_fixed_sentence_and_a_readable_log_line(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    names = {
        "log-mtls": serve(demanding()).port,
        "log-reset": serve(with_alpn(issued(), "h2"), resets=True).port,
        "log-late": serve(issued(), name="late", delay=30.0).port,
    }
    hops = [
        document
        for name, port in names.items()
        for document in docs.hop(name, port, docs.policy(name, "api.example", "log-ca"))
    ]
    (late,) = (hop for hop in hops if hop["kind"] == "HTTPRoute" and hop["metadata"]["name"] == "log-late")
    late["spec"]["rules"][0]["timeouts"] = {"request": "100ms"}
    nobody = [docs.service("log-nobody"), docs.route("log-nobody", docs.to("log-nobody"))]
    gateway.load("log-silent.yaml", docs.config_map("log-ca", CA.pem), *hops, *nobody)
    assert gateway.get("log-mtls") == (503, NO_ANSWER)
    assert gateway.get("log-reset") == (503, NO_ANSWER)
    assert gateway.get("log-late") == (504, NO_ANSWER)
    assert gateway.get("log-nobody") == (503, BACKEND_FAILURE)
    assert entry(gateway, "log-mtls")["why"].endswith(
        "(with TLS 1.3 a backend does this if it wants a client certificate, or speaks another protocol than ALPN offers)"
    )
    assert entry(gateway, "log-reset")["why"].startswith("backend reset the request before it responded")
    assert entry(gateway, "log-late")["why"] == "backend did not respond in time"
    assert entry(gateway, "log-nobody")["why"] == "backend has no ready endpoint"
