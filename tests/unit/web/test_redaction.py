"""Secrets that are removed from shared documents."""

from __future__ import annotations

from typing import Any

import msgspec

from lasthop.web.redaction import REDACTED, redacted, without_secrets
from tests.world import mk_telemetry_policy


def test_private_keys_are_removed_in_both_spellings_and_wherever_they_are() -> None:
    document = {"a": [{"private_key": {"inline_string": "x"}}, {"privateKey": "y"}], "b": "-----BEGIN EC PRIVATE KEY-----\nz"}
    assert redacted(document) == {"a": [{"private_key": REDACTED}, {"privateKey": REDACTED}], "b": REDACTED}


def test_values_of_headers_that_carry_credentials_are_removed_and_others_stay() -> None:
    headers = [{"name": "X-Api-Key", "value": "1"}, {"key": "cookie", "value": "2"}, {"name": "Accept", "value": "3"}]
    assert [header["value"] for header in redacted(headers)] == [REDACTED, REDACTED, "3"]


def test_matches_of_credentials_are_redacted_and_other_matches_stay() -> None:
    def match(name: str, text: str) -> dict[str, Any]:
        return {"name": name, "string_match": {"exact": text}}

    config = redacted({"headers": [match("authorization", "Bearer 1"), match(":authority", "2"), match("x-version", "3")]})
    assert [header["string_match"] for header in config["headers"]] == [REDACTED, {"exact": "2"}, {"exact": "3"}]


def test_every_header_that_envoy_adds_is_removed() -> None:
    sent = {"key": "x-honeycomb-team", "value": "hidden"}
    config = {
        "tracing": {
            "provider": {"typed_config": {"grpc_service": {"initial_metadata": [sent, {**sent, "raw_value": "hidden"}]}}}
        },
        "route": {"request_headers_to_add": [{"header": sent, "keep_empty_value": True}]},
        "http_service": {"authorization_request": {"headersToAdd": [sent]}},
        "response_headers_to_add": [{"header": {"key": "x-version", "value": "shown"}}],
    }
    assert "hidden" not in str(redacted(config))
    assert redacted(config)["response_headers_to_add"] == config["response_headers_to_add"]
    assert redacted(config)["route"]["request_headers_to_add"][0] == {
        "header": {"key": "x-honeycomb-team", "value": REDACTED},
        "keep_empty_value": True,
    }


def test_the_same_headers_are_removed_from_their_objects() -> None:
    sent = {"name": "x-honeycomb-team", "value": "hidden"}
    policy = mk_telemetry_policy("edge/traces", ["web"], {"name": "otel", "port": 4317}, provider={"headers": [sent]})
    rule = {
        "matches": [{"headers": [{"name": "x-version", "value": "shown"}, {"name": "x-api-key", "value": "hidden"}]}],
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [sent], "add": [sent]}}],
        "backendRefs": [{"name": "api", "filters": [{"requestHeaderModifier": {"set": [sent]}}]}],
    }
    for document in (msgspec.to_builtins(policy), {"kind": "HTTPRoute", "spec": {"rules": [rule]}}):
        assert "hidden" in str(document)
        shown = without_secrets(document)
        assert "hidden" not in str(shown)
        assert "x-honeycomb-team" in str(shown)
    assert "shown" in str(shown)


def test_a_shown_secret_has_only_its_keys_and_no_annotation_repeats_it() -> None:
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"tls.key":"c2VjcmV0"}}', "other": "stays"}
    secret = {"kind": "Secret", "metadata": {"annotations": annotation}, "data": {"tls.key": "c2VjcmV0"}}
    shown = without_secrets(secret)
    assert shown["data"] == {"tls.key": REDACTED}
    assert shown["metadata"]["annotations"]["other"] == "stays"
    assert "c2VjcmV0" not in str(shown)
