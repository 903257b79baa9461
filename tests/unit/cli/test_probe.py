"""`lasthop probe`: the tried backends, the required verification, and the output. tests/proxy compares its verdicts with
Envoy's."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.cli.main import main
from tests.backends import Backend, backend, until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.folders import lasthop
from tests.odd_certificates import odd_ders, valid
from tests.ports import free_port
from tests.proxy import documents as docs

LONG = (NOW - DAY, NOW + 365 * DAY)
CA = Certificate("corp CA", ca=True, valid=LONG)
GOOD = Certificate("good", CA, sans=dns("api.example"), valid=LONG)
WRONG = Certificate("wrong", CA, sans=dns("other.example"), valid=(NOW - 9 * DAY, NOW - 3 * DAY))
CLIENT = Certificate("the gateway", CA, valid=LONG, usage=ExtendedKeyUsageOID.CLIENT_AUTH)


@pytest.fixture
def serve() -> Iterator[Callable[..., Backend]]:
    with ExitStack() as stack:
        yield lambda context, **settings: stack.enter_context(backend(context, **settings))


def write(folder: Path, *documents: dict[str, Any], **gateway: Any) -> Path:
    folder.mkdir(exist_ok=True)
    common = (docs.gateway_class(), docs.gateway("web", docs.http(80), **gateway), docs.config_map("ca", CA.pem))
    (folder / "objects.yaml").write_text(yaml.safe_dump_all([*common, *documents], sort_keys=False))
    return folder


def probed(folder: Path, *args: str, code: int = 0) -> dict[str, Any]:
    result = lasthop("probe", *(args or ("api",)), "--dir", folder, "-o", "json")
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["passes"] is (code == 0)
    return document


def checks(endpoint: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in endpoint["checks"]}


POLICY = docs.policy("api", "api.example", "ca")


def test_each_endpoint_is_tried_and_nothing_is_sent(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    good, wrong = serve(GOOD.server_context()), serve(WRONG.server_context())
    hop = [docs.service("api"), *docs.endpoints("api", good.port, wrong.port), docs.route("api", docs.to("api")), POLICY]
    report = probed(write(tmp_path, *hop), code=1)
    (target,) = report["targets"]
    assert (target["gateway"], target["service"], target["port"]) == ("shop/web", "Service shop/api", 443)
    by_address = {endpoint["address"]: endpoint for endpoint in target["endpoints"]}
    assert by_address[f"127.0.0.1:{good.port}"]["passes"]
    bad = by_address[f"127.0.0.1:{wrong.port}"]
    assert {name for name, state in checks(bad).items() if state == "fail"} == {"dates", "names"}
    assert bad["certificate"]["names"] == ["DNS other.example"]
    last = lasthop("probe", "shop/api", "--dir", tmp_path).stdout.splitlines()[-1]
    assert last == "the gateway would connect, but 1 of 2 tried endpoints fails"
    assert not good.requests and not wrong.requests
    assert {connection.sni for connection in good.connections} == {"api.example"}


def test_the_text_says_what_is_held_what_is_wanted_and_what_to_change(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    hop = docs.hop("api", serve(WRONG.server_context()).port, POLICY)
    text = lasthop("probe", "shop/api", "--dir", write(tmp_path, *hop)).stdout
    assert "✓ chain" in text and "CN=wrong, issued by CN=corp CA; trusted: corp CA" in text
    assert "✗ dates" in text and "expired 3 days ago" in text and "Renew the backend's certificate" in text
    assert "certificate has DNS other.example; wanted: api.example" in text and "subjectAltNames of the policy" in text
    assert text.splitlines()[-1] == "the gateway would fail; 0 of 1 tried endpoints pass"


def test_another_address_is_tried_with_the_policy(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    folder = write(tmp_path, *docs.hop("api", serve(WRONG.server_context()).port, POLICY))
    good = serve(GOOD.server_context())
    (target,) = probed(folder, "api", f"localhost:{good.port}")["targets"]
    assert [endpoint["address"] for endpoint in target["endpoints"]] == [f"127.0.0.1:{good.port}"]
    probed(folder, "api", code=1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("trusted", [True, False])
def test_the_gateways_client_certificate_is_presented_and_its_key_never_shown(
    tmp_path: Path, serve: Callable[..., Backend], version: ssl.TLSVersion, trusted: bool
) -> None:
    context = GOOD.server_context()
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=(CA if trusted else Certificate("stranger", ca=True)).pem)
    running = serve(context)
    secret = docs.secret("own", tls_crt=CLIENT.pem, tls_key=CLIENT.key_pem)
    folder = write(
        tmp_path,
        *docs.hop("api", running.port, POLICY),
        secret,
        tls={"backend": {"clientCertificateRef": {"name": "own"}}},
    )
    result = lasthop("probe", "api", "--dir", folder, "-o", "json")
    assert result.exit_code == (0 if trusted else 1)
    (endpoint,) = json.loads(result.stdout)["targets"][0]["endpoints"]
    assert checks(endpoint)["client certificate"] == ("pass" if trusted else "fail")
    assert "Secret shop/own" in result.stdout
    assert all(text not in result.output for text in ("PRIVATE", secret["data"]["tls.key"][:40]))
    if trusted:
        until(lambda: running.last.client == "the gateway")  # the client's end of the handshake may be the first


def test_a_policy_that_no_route_reaches_is_tried_as_it_stands(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    running = serve(GOOD.server_context())
    folder = write(tmp_path, docs.service("api"), *docs.endpoints("api", running.port), POLICY)
    assert probed(folder)["targets"][0]["gateway"] == ""
    assert "no route leads there" in lasthop("probe", "api", "--dir", folder).stdout


def test_each_gateway_has_its_own_wish(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    """One whose operator allows the waiver connects, the other does not even try."""
    running = serve(Certificate("itself", valid=LONG).server_context())
    waived = docs.policy("api", "api.example", docs.own("w", "VerificationWaiver"))
    strict = docs.gateway("strict", docs.http(81))
    folder = write(
        tmp_path,
        *docs.hop("api", running.port, waived),
        docs.route("too", docs.to("api"), gateway="strict"),
        strict,
        docs.waiver("w", "All"),
        docs.profile("lenient", waivers="Allow"),
        **docs.with_profile("lenient"),
    )
    by_gateway = {target["gateway"]: target for target in probed(folder, code=1)["targets"]}
    text = lasthop("probe", "api", "--dir", folder).stdout
    assert (
        text.splitlines()[-1] == "Gateway shop/web would connect, Gateway shop/strict would fail; 1 of 1 tried endpoints pass"
    )
    assert by_gateway["shop/web"]["passes"]
    assert "waived by VerificationWaiver shop/w" in json.dumps(by_gateway["shop/web"])
    assert by_gateway["shop/strict"]["endpoints"] == []
    assert "no GatewayProfile allows waivers" in by_gateway["shop/strict"]["refused"]
    assert len(running.connections) == 2, "one for each probe"


def last_line(folder: Path, *args: str) -> str:
    result = lasthop("probe", *args, "--dir", folder)
    assert "Traceback" not in result.output
    return str(result.stdout.splitlines()[-1])


def test_a_policy_whose_ports_all_have_policies_of_their_own_is_not_used(
    tmp_path: Path, serve: Callable[..., Backend]
) -> None:
    section = docs.policy("section", "api.example", "ca", service="api")
    section["spec"]["targetRefs"][0]["sectionName"] = "https"
    folder = write(tmp_path, *docs.hop("api", serve(GOOD.server_context()).port, POLICY, section))
    (target,) = probed(folder, code=1)["targets"]
    assert target["unused"] == "each of its ports has a BackendTLSPolicy of its own: https (shop/section)"
    assert last_line(folder, "api") == "no gateway uses it for a TLS connection"
    assert last_line(folder, "section") == "the gateway would connect; 1 of 1 tried endpoints pass"


def test_a_policy_of_a_service_that_only_passthrough_reaches_is_not_used(
    tmp_path: Path, serve: Callable[..., Backend]
) -> None:
    passing = docs.listener("tls", "TLS", 443)
    folder = write(
        tmp_path,
        docs.service("api"),
        *docs.endpoints("api", serve(GOOD.server_context()).port),
        docs.gateway("through", passing),
        docs.stream_route("TLSRoute", "api", docs.to("api"), gateway="through", hosts=("api.example",)),
        POLICY,
    )
    (target,) = probed(folder, code=1)["targets"]
    assert "TLS is end to end from the client" in target["unused"]
    assert last_line(folder, "api") == "no gateway uses it for a TLS connection; 1 of 1 tried endpoints pass"


def test_a_gateway_that_is_not_accepted_connects_to_nothing(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    running = serve(GOOD.server_context())
    folder = write(tmp_path, *docs.hop("api", running.port, POLICY), **docs.with_profile("nowhere"))
    (target,) = probed(folder, code=1)["targets"]
    assert "Gateway shop/web is not accepted" in target["refused"]
    assert not running.connections


SPELLINGS = (
    *("api", "shop/api", "backendtlspolicy/shop/api", "BackendTLSPolicy/api", "btlspolicy/shop/api"),
    *("svc/api", "service/shop/api", "httproute/shop/api"),
)


@pytest.mark.parametrize("spelling", [*([kind] for kind in SPELLINGS), ["backendtlspolicy", "api"], ["svc", "shop/api"]])
def test_names_from_status_can_be_probed(tmp_path: Path, serve: Callable[..., Backend], spelling: list[str]) -> None:
    other = docs.hop("other", 9, docs.policy("other", "api.example", "ca"))
    folder = write(tmp_path, *docs.hop("api", serve(GOOD.server_context()).port, POLICY), *other)
    (target,) = probed(folder, *spelling)["targets"]
    assert (target["service"], target["policy"]) == ("Service shop/api", "BackendTLSPolicy shop/api")


def test_without_an_object_all_policies_are_tried(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    good, other = serve(GOOD.server_context()), docs.policy("far/api", "api.example", "ca")
    shadowed = docs.policy("late", "api.example", "ca", service="api")
    folder = write(tmp_path, *docs.hop("api", good.port, POLICY), shadowed, docs.namespace("far"), other)
    first, second = (lasthop("probe", "--dir", folder, *more, "-o", "json") for more in ((), ("-n", "shop")))
    assert [report["object"] for report in json.loads(second.stdout)] == [
        "BackendTLSPolicy shop/api",
        "BackendTLSPolicy shop/late",
    ]
    assert [report["passes"] for report in json.loads(second.stdout)] == [True, False]
    assert second.exit_code == 0, "the other one is not used, so nothing fails because of it"
    assert (first.exit_code, len(json.loads(first.stdout))) == (1, 3), "the Service of far/api does not exist"
    assert "no BackendTLSPolicies" in lasthop("probe", "--dir", write(tmp_path / "none")).stdout


def test_an_xbackend_is_tried_with_its_own_tls(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    group, running = "gateway.networking.x-k8s.io", serve(GOOD.server_context())
    spec = {
        "type": "ExternalHostname",
        "externalHostname": {"hostname": "localhost"},
        "port": {"number": running.port},
        "tls": {
            "mode": "ServerOnly",
            "validation": {"hostname": "api.example", "caCertificateRefs": [docs.ref("ca")]},
        },
    }
    folder = write(
        tmp_path,
        docs.obj(f"{group}/v1alpha1", "XBackend", "far", spec=spec),
        docs.route("far", {"group": group, "kind": "XBackend", "name": "far"}),
    )
    for spelling in ("xbackend/shop/far", "httproute/far"):
        (target,) = probed(folder, spelling)["targets"]
        assert (target["service"], target["policy"]) == ("XBackend shop/far", "XBackend shop/far")


def test_a_backend_without_required_tls_has_nothing_to_try(tmp_path: Path) -> None:
    folder = write(tmp_path, *docs.hop("api", 9))
    (target,) = probed(folder, "svc/api", code=1)["targets"]
    assert "plaintext" in target["unused"]


def _targets(folder: Path, *documents: dict[str, Any]) -> str:
    return json.dumps(probed(write(folder, *documents), code=1)["targets"])


def test_a_refused_hop_is_reported_without_a_connection(tmp_path: Path) -> None:
    hop = [docs.service("api"), docs.route("api", docs.to("api"))]
    assert "ConfigMap shop/nowhere does not exist" in _targets(
        tmp_path / "a", *hop, docs.policy("api", "api.example", "nowhere")
    )
    assert "no endpoint is ready" in _targets(tmp_path / "b", *hop, POLICY)
    astray = docs.policy("api", "api.example", "ca")
    astray["spec"]["targetRefs"][0]["sectionName"] = "htps"
    assert "has no port named htps" in _targets(tmp_path / "c", *hop, astray)
    older = docs.policy("older", "api.example", "ca", service="api", created="2020-01-01T00:00:00Z")
    newer = docs.policy("api", "api.example", "ca", created="2021-01-01T00:00:00Z")
    assert "already targeted by BackendTLSPolicy shop/older, which is older" in _targets(tmp_path / "d", *hop, older, newer)


def test_a_silent_replica_is_distinct(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    port, plaintext = free_port(), serve(None)
    hop = [docs.service("api"), *docs.endpoints("api", port, plaintext.port), docs.route("api", docs.to("api")), POLICY]
    endpoints = probed(write(tmp_path, *hop), code=1)["targets"][0]["endpoints"]
    failed = {e["address"]: [(c["name"], c["found"]) for c in e["checks"] if c["state"] == "fail"] for e in endpoints}
    assert "nothing listens" in failed[f"127.0.0.1:{port}"][0][1]
    ((name, finding),) = failed[f"127.0.0.1:{plaintext.port}"]
    assert (name, finding.startswith("it does not speak TLS on this port")) == ("tls", True)
    assert not plaintext.saw_plaintext


def test_many_endpoints_are_not_all_tried(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    running = serve(GOOD.server_context())
    slice = docs.endpoints("api", running.port)[0]
    slice["endpoints"] = [{"addresses": [f"127.0.0.{number}"]} for number in range(1, 14)]
    slice["endpoints"].append({"addresses": ["127.0.0.99"], "conditions": {"ready": False}})
    folder = write(tmp_path, docs.service("api"), slice, docs.route("api", docs.to("api")), POLICY)
    result: Result = lasthop("probe", "api", "--dir", folder)
    assert "and 3 more, not tried" in result.stdout


def test_a_hostile_subject_does_not_reach_the_terminal(tmp_path: Path, serve: Callable[..., Backend]) -> None:
    hostile = Certificate("a\x1b[2Jb\n", sans=dns("api.example"), valid=LONG)
    folder = write(tmp_path, *docs.hop("api", serve(hostile.server_context()).port, POLICY))
    result = CliRunner().invoke(main, ["probe", "api", "--dir", str(folder)], color=True)
    assert "\x1b[2J" not in result.output
    assert "a\\x1b[2Jb\\n" in result.output


@pytest.mark.parametrize("odd", ["version-7", "subject-malformed"])
def test_an_unreadable_certificate_is_reported(tmp_path: Path, serve: Callable[..., Backend], odd: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem = tmp_path / "odd.pem"
    pem.write_text(ssl.DER_cert_to_PEM_cert(odd_ders()[odd]) + valid().key_pem)
    context.load_cert_chain(pem)
    result = lasthop("probe", "api", "--dir", write(tmp_path / "objects", *docs.hop("api", serve(context).port, POLICY)))
    assert (result.exit_code, "✗ chain" in result.stdout, "its certificate" in result.stdout) == (1, True, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("apo",), "did you mean shop/api?"),
        (("shop/api", "-n", "blog"), "two namespaces"),
        (("127.0.0.1:443",), "which object?"),
        (("gateway/shop/web",), "KIND is one of backendtlspolicy, service"),
        (("api", "nonsense"), "is not HOST:PORT"),
    ],
)
def test_bad_input_gives_a_readable_error(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    folder = write(tmp_path, *docs.hop("api", 9, POLICY))
    result = lasthop("probe", *args, "--dir", folder)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
