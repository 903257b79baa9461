"""Built-in kinds of Kubernetes: the API server's checks, defaults and rejections."""

from __future__ import annotations

import base64

import pytest

from lasthop.base.api.core import Secret
from lasthop.edge.admission.chain import admitted
from tests.file_texts import refused, service, stored


def slice_of(kind: str, address: str) -> str:
    return f"""\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web}}
addressType: {kind}
endpoints:
- addresses: ['{address}']
ports:
- port: 8443
"""


def secret(more: str) -> str:
    return f"apiVersion: v1\nkind: Secret\nmetadata: {{name: tls}}\n{more}"


def config(data: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca}}\n{data}"


def test_a_service_gets_its_defaults() -> None:
    spec = stored(service())["spec"]
    assert spec["type"] == "ClusterIP"
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]


@pytest.mark.parametrize(
    ("ports", "where"),
    [
        ("[{port: 0}]", "spec.ports[0].port"),
        ("[{port: 65536}]", "spec.ports[0].port"),
        ("[{port: '80'}]", "spec.ports[0].port"),
        ("[{port: 80, targetPort: 70000}]", "spec.ports[0].targetPort"),
        ("[{port: 80, protocol: HTTP}]", "spec.ports[0].protocol"),
        ("[{port: 80, name: Web}]", "spec.ports[0].name"),
        ("[{port: 80, prot: TCP}]", "spec.ports[0].prot"),
        ("[]", "spec.ports"),
    ],
)
def test_a_bad_service_port_is_refused(ports: str, where: str) -> None:
    assert [place for place, _ in refused(service().replace("\n  - port: 80", f" {ports}"))] == [where]


def test_several_ports_need_unique_names() -> None:
    two = service().replace("- port: 80", "- {port: 80, name: a}\n  - {port: 81}")
    assert refused(two) == [("spec.ports[1].name", "required when there are several ports")]
    same = two.replace("port: 81", "port: 81, name: a")
    assert [where for where, _ in refused(same)] == ["spec.ports[1].name"]


def test_the_same_port_is_fine_for_tcp_and_udp_only() -> None:
    both = service().replace("- port: 80", "- {port: 80, name: a}\n  - {port: 80, name: b, protocol: UDP}")
    assert refused(both) == []
    assert [where for where, _ in refused(both.replace("UDP", "TCP"))] == ["spec.ports[1]"]


def test_an_external_name_service_needs_a_host_name_and_no_ports() -> None:
    text = service().replace("\n  ports:\n  - port: 80", "\n  type: ExternalName\n  externalName: NAME")
    assert stored(text.replace("NAME", "api.example"))["spec"]["externalName"] == "api.example"
    assert [where for where, _ in refused(text.replace("NAME", "a b"))] == ["spec.externalName"]
    assert [where for where, _ in refused(text.replace("NAME", "null"))] == ["spec.externalName"]


@pytest.mark.parametrize(
    ("kind", "address"), [("IPv4", "127.0.0.1"), ("IPv6", "::1"), ("FQDN", "localhost"), ("FQDN", "api.example.")]
)
def test_an_address_of_its_type_is_accepted_loopback_too(kind: str, address: str) -> None:
    assert stored(slice_of(kind, address))["ports"] == [{"port": 8443, "protocol": "TCP", "name": ""}]


@pytest.mark.parametrize(
    ("kind", "address"), [("IPv4", "::1"), ("IPv6", "10.0.0.1"), ("IPv4", "a.example"), ("FQDN", "10.0.0.1"), ("FQDN", "-")]
)
def test_an_address_of_another_type_is_refused(kind: str, address: str) -> None:
    assert refused(slice_of(kind, address)) == [("endpoints[0].addresses[0]", f'"{address}" is not an address of type {kind}')]


def test_a_config_map_of_two_mebibytes_is_refused() -> None:
    assert refused(config(f"data: {{a: {'x' * 2**20}}}")) == []
    assert refused(config(f"data: {{a: {'x' * (2**20 + 1)}}}")) == [("data", "holds 1048577 bytes; the limit is 1048576")]


def test_keys_and_base64_are_checked() -> None:
    assert [where for where, _ in refused(config("data: {'a/b': x}"))] == ["data[a/b]"]
    assert refused(config("binaryData: {a: '!'}")) == [("binaryData.a", "is not base64")]
    assert [where for where, _ in refused(config("data: {a: x}\nbinaryData: {a: eA==}"))] == ["binaryData.a"]


def test_string_data_of_a_secret_becomes_data() -> None:
    obj = admitted(stored(secret("data: {a: eA==, b: eA==}\nstringData: {b: plain}\n"))).object
    assert isinstance(obj, Secret)
    assert dict(obj.data) == {"a": b"x", "b": b"plain"}
    assert obj.type == "Opaque"


def test_wrapped_base64_is_read_as_the_api_server_reads_it() -> None:
    wrapped = base64.encodebytes(b"x" * 100).decode().replace("\n", "\n    ")
    obj = admitted(stored(secret(f"data:\n  a: |\n    {wrapped}\n"))).object
    assert isinstance(obj, Secret)
    assert obj.data.get("a") == b"x" * 100


def test_problems_of_a_secret_never_show_its_values() -> None:
    for text in ("data: {a: hunter2!}", "stringData: {a: [hunter2]}", "data: hunter2", "type: [hunter2]"):
        problems = refused(secret(text))
        assert problems
        assert "hunter2" not in str(problems)


def test_a_tls_secret_needs_both_halves() -> None:
    text = secret("type: kubernetes.io/tls\ndata: {tls.crt: eA==}\n")
    assert [where for where, _ in refused(text)] == ["data[tls.key]"]


def test_a_trust_bundle_is_named_after_its_signer() -> None:
    text = "apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {{name: '{}'}}\nspec: {}\n"
    assert refused(text.format("corp", "{trustBundle: x}")) == []
    signed = "{trustBundle: x, signerName: a.example/ca}"
    assert refused(text.format("a.example:ca:v1", signed)) == []
    assert [where for where, _ in refused(text.format("corp", signed))] == ["metadata.name"]
    assert refused(text.format("corp", "{}")) == [("spec.trustBundle", "required field is missing")]
