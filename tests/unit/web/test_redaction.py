"""What is removed from documents that people pass on."""

from __future__ import annotations

from lasthop.web.redaction import REDACTED, redacted, without_secrets


def test_private_keys_are_removed_in_both_spellings_and_wherever_they_are() -> None:
    document = {"a": [{"private_key": {"inline_string": "x"}}, {"privateKey": "y"}], "b": "-----BEGIN EC PRIVATE KEY-----\nz"}
    assert redacted(document) == {"a": [{"private_key": REDACTED}, {"privateKey": REDACTED}], "b": REDACTED}


def test_values_of_headers_that_carry_credentials_are_removed_and_others_stay() -> None:
    headers = [{"name": "X-Api-Key", "value": "1"}, {"key": "cookie", "value": "2"}, {"name": "Accept", "value": "3"}]
    assert [each["value"] for each in redacted(headers)] == [REDACTED, REDACTED, "3"]


def test_of_a_secret_only_the_keys_are_left_and_no_annotation_repeats_it() -> None:
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"tls.key":"c2VjcmV0"}}', "other": "stays"}
    secret = {"kind": "Secret", "metadata": {"annotations": annotation}, "data": {"tls.key": "c2VjcmV0"}}
    shown = without_secrets(secret)
    assert shown["data"] == {"tls.key": REDACTED}
    assert shown["metadata"]["annotations"]["other"] == "stays"
    assert "c2VjcmV0" not in str(shown)
