"""`lasthop init`: its output passes `check` and matches the arguments."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes

from lasthop.cli.args.backends import is_path
from lasthop.cli.args.values import program
from lasthop.edge.admission.chain import admit
from tests.backends import Backend
from tests.certificates import Certificate, dns
from tests.folders import CA, lasthop
from tests.ports import free_port


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    (tmp_path / "corp.pem").write_text(CA.pem)
    return tmp_path / "corp.pem"


def _init(folder: Path, *args: str | Path) -> str:
    result = lasthop("init", folder, *args)
    assert result.exit_code == 0, result.output
    assert f"lasthop check {folder}" in result.stdout
    checked = lasthop("check", folder)
    assert checked.stdout.startswith("nothing wrong"), checked.stdout
    return lasthop("explain", "httproute", "backend", "--dir", folder).stdout


@pytest.fixture(autouse=True)
def _system_store(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))


def test_a_name_is_verified_against_the_system_store_by_default(tmp_path: Path) -> None:
    output = _init(tmp_path / "demo", "--to", "https://api.invalid:8443", "--ca", "system")
    assert "verified against the system store" in output
    assert "the certificate must be for api.invalid" in output
    assert "sent to api.invalid:8443" in output


def test_an_address_with_a_name_and_a_ca(tmp_path: Path, ca: Path) -> None:
    to = f"https://127.0.0.1:{free_port()}"
    output = _init(tmp_path / "demo", "--to", to, "--hostname", "api.internal", "--ca", ca, "--listen", "127.0.0.1:8088")
    assert "verified against the bundle of ConfigMap default/backend-ca" in output
    assert "CA corp CA" in output
    assert "listener http (port 8088)" in output
    assert f"sent to {to.removeprefix('https://')}" in output


def test_ipv6_and_plaintext(tmp_path: Path) -> None:
    output = _init(tmp_path / "demo", "--to", f"[::1]:{(port := free_port())}", "--plaintext")
    assert "plaintext: no BackendTLSPolicy targets this port" in output
    assert f"sent to ::1:{port}" in output
    assert not (tmp_path / "demo" / "policy.yaml").exists()


def test_a_name_that_yaml_would_take_for_something_else_stays_a_name(tmp_path: Path) -> None:
    assert "sent to on:443" in _init(tmp_path / "demo", "--to", "on:443", "--ca", "system")
    assert "sent to 1e3:443" in _init(tmp_path / "demo2", "--to", "1e3:443", "--ca", "system")


def test_localhost_is_loopback_and_still_a_name_to_verify(tmp_path: Path, ca: Path) -> None:
    port = free_port()
    output = _init(tmp_path / "demo", "--backend", f"localhost:{port}", "--ca", ca)
    assert f"sent to 127.0.0.1:{port}" in output
    assert "the certificate must be for localhost" in output


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("name: backend, sectionName", "name: backed, sectionName"),
        ("sectionName: https", "sectionName: htps"),
    ],
)
def test_a_typo_in_the_target_never_leads_to_plaintext(tmp_path: Path, ca: Path, written: str, instead: str) -> None:
    _init(tmp_path / "demo", "--backend", f"localhost:{free_port()}", "--ca", ca)
    policy = tmp_path / "demo" / "policy.yaml"
    policy.write_text(policy.read_text().replace(written, instead))
    document = json.loads(lasthop("check", tmp_path / "demo", "-o", "json").stdout)
    assert "TargetNotFound" in [finding["reason"] for finding in document["findings"]]
    hops = json.loads(lasthop("audit", tmp_path / "demo", "-o", "json").stdout)["hops"]
    assert [hop["manner"] for hop in hops] == ["failing closed"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--to", "api_example"), "is not a URL of a backend"),
        (("--to", "ftp://api.example:443"), "ftp:// is not known"),
        (("--to", "https://api.example:99999"), "is not a URL of a backend"),
        (("--to", "https://api.example/v1"), "add --path /v1"),
        (("--to", "https://api.example?x=1"), "write --to https://api.example\n"),
        (
            ("--to", "https://api.example/v1?x=1#y"),
            "write --to https://api.example; to choose requests by their path, add --path /v1\n",
        ),
        (("--to", "https://tom:secret@api.example:8443/v1"), "a user name; write --to https://api.example:8443: clients"),
        (("--to", "8443"), "write --to https://127.0.0.1:8443"),
        (("--to", "http://:3000"), "write --to http://127.0.0.1:3000"),
        (("--to", "https:/127.0.0.1:8443"), "write --to https://127.0.0.1:8443\n"),
        (("--to", "HTTP:///a.example"), "write --to http://a.example\n"),
        (("--to", "//127.0.0.1:8443"), "write --to https://127.0.0.1:8443\n"),
        (("--to", "https://tom:secret@[::1]:8443"), "write --to https://[::1]:8443: clients"),
        (("--to", "https:/tom:secret@api.example"), "a user name"),
        (("--to", "https://::1:8443"), "write an IPv6 address in brackets, as https://[::1]:8443"),
        (("--to", "https://[fe80::1%eth0]:8443"), "is not a URL of a backend"),
        (("--to", "https://b\u00fccher.example"), "begin with xn--"),
        (("--to", "https://api.example.:8443"), "without the last dot: api.example\n"),
        (("--to", f"https://{'a' * 64}.example"), "at most 63 characters"),
        *((("--to", f"https://{host}:443"), "is not a URL of a backend") for host in ("127.1", "0x7f.1", "a.0x", "1.2.3.4.5")),
        (("--to", "https://api.example:443", "--plaintext"), "uses TLS"),
        (("--to", "http://api.example", "--plaintext", "--hostname", "x.example"), "--hostname is for https://"),
        (("--to", "api.example:443", "--hostname", "10.0.0.1"), "is an address"),
        (("--to", "api example:443"), "is not a URL of a backend"),
        (("--to", "api.example:443", "--hostname", "*.example"), "not a DNS name"),
        (("--to", "api.example:443", "--ca", "missing.pem"), "missing.pem cannot be read"),
        (("--to", "api.example:443", "--pin", "00:11"), "00:11 is neither a SHA-256 (64 hexadecimal digits"),
        (("--to", ""), "Invalid value for --to: the value is empty; is a variable of your shell not set?"),
        (("--to", "api.example:443", "--ca="), "Invalid value for --ca: the value is empty"),
        (("--to", "api.example:443", "--hostname", ""), "Invalid value for --hostname: the value is empty"),
        (("--to", "api.example:443", "--insecure"), "no option skips the verification"),
        (("--to", "api.example:443", "-k"), "no option skips the verification"),
        (("--to", "api.example:443", "--cacert", "ca.pem"), "there is no option --cacert; use --ca FILE for the CA"),
        (("--to", "api.example:443", "--ca", "a.pem", "--pin", "b.yaml"), "has --ca and --pin"),
        (("--to", "api.example:443", "--path", "api"), "does not begin with /"),
        (
            ("--to", "http://127.0.0.1:9", "--plaintext", "--path", "/x\n---\nkind: Secret"),
            "/x\\n---\\nkind: Secret is not a path",
        ),
        (("--to", "api.example:443", "--host", "1.2.3.4"), "is not a DNS name"),
        (("--to", "api.example:443", "--option", "fast"), "is not NAME=VALUE"),
        (("--to", "api.example:443", "--client-key", "k.pem"), "--client-cert FILE"),
        (("--to", "api.example:443", "--listen", "api.example:80"), "is not IP:PORT"),
        (("--ca", "a.pem"), "--ca belongs to a backend"),
        ((), "--to https://"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    result = lasthop("init", tmp_path / "demo", *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "secret" not in result.stderr
    assert not (tmp_path / "demo").exists()


def test_a_pin_of_one_backend_replaces_the_ca_of_all(tmp_path: Path, ca: Path) -> None:
    ports = [f"https://127.0.0.1:{free_port()}" for _ in range(3)]
    common = ("--ca", ca, "--hostname", "api.internal")
    own = (
        "--to",
        ports[0],
        "--to",
        ports[1],
        "--path",
        "/b",
        "--pin",
        "ab" * 32,
        "--to",
        ports[2],
        "--path",
        "/c",
        "--ca",
        ca,
    )
    assert lasthop("init", tmp_path / "demo", *common, *own).exit_code == 0
    policies = {path.name: path.read_text() for path in (tmp_path / "demo").glob("*policy.yaml")}
    assert len(policies) == 3
    assert [name for name, text in policies.items() if "kind: PinSet" in text] == ["b-policy.yaml"]


def test_http_alone_is_no_permission_for_plaintext(tmp_path: Path) -> None:
    to = ("--to", f"http://127.0.0.1:{free_port()}")
    refused = lasthop("init", tmp_path / "demo", *to)
    assert (refused.exit_code, (tmp_path / "demo").exists()) == (1, False)
    assert "plaintext: neither encrypted nor verified" in refused.stderr and "--plaintext" in refused.stderr
    assert lasthop("init", tmp_path / "demo", *to, "--plaintext").exit_code == 0


@pytest.mark.parametrize(
    ("schemes", "value"), [("s", "Deny"), ("ss", "Deny"), ("sp", "Declared"), ("ps", "Declared"), ("p", "")]
)
def test_only_ports_that_are_declared_so_may_be_plaintext(tmp_path: Path, ca: Path, schemes: str, value: str) -> None:
    options = {"s": ("--ca", str(ca), "--hostname", "api.internal"), "p": ("--plaintext",)}
    to = [
        word
        for number, scheme in enumerate(schemes)
        for word in ("--to", f"127.0.0.1:{free_port()}", "--path", f"/{number}", *options[scheme])
    ]
    assert lasthop("init", tmp_path / "demo", *to).exit_code == 0
    text = (tmp_path / "demo" / "gateway.yaml").read_text()
    assert re.findall("^    plaintextBackends: (.*)$", text, re.MULTILINE) == [value] * bool(value)


def test_names_may_be_in_capitals(tmp_path: Path, ca: Path) -> None:
    names = ("--hostname", "API.Internal", "--host", "*.App.example")
    output = _init(tmp_path / "demo", "--to", f"https://127.0.0.1:{free_port()}", "--ca", ca, *names)
    assert "the certificate must be for api.internal" in output


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a",
        "/a/",
        "/a.b/..c",
        "/%20",
        "/~!$&'()*+,;=:@",
        "",
        "a",
        "//",
        "/a//b",
        "/./a",
        "/a/.",
        "/a/..",
        "/../a",
        "/.",
        "/..",
        "/a/...",
        "/%2f",
        "/%2F",
        "/%",
        "/%2",
        "/%zz",
        "/a b",
        "/a?b",
        "/a#b",
        "/é",
        '/"',
        "/\\",
        "/a\n",
        "/\n---\n",
        "/\0",
        "/{x}",
        "/" + 1023 * "a",
        "/" + 1024 * "a",
    ],
)
def test_a_path_is_accepted_if_an_httproute_may_have_it(path: str) -> None:
    rules = [{"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [{"name": "b", "port": 80}]}]
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "r"},
        "spec": {"rules": rules},
    }
    assert is_path(path) == (not admit(route)[1])


def test_a_ca_as_der_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "ca.der").write_bytes(ssl.PEM_cert_to_DER_cert(CA.pem))
    result = lasthop("init", tmp_path / "demo", "--to", "a.invalid:443", "--ca", tmp_path / "ca.der")
    assert result.exit_code == 2
    assert f"it is DER; make it PEM: openssl x509 -inform DER -in {tmp_path / 'ca.der'} -out" in result.stderr


def test_commands_to_copy_call_the_program_as_it_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lasthop").touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "lasthop")])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(tmp_path / "lasthop")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == "lasthop"
    monkeypatch.setattr("sys.argv", ["/usr/bin/pytest"])
    assert program() == "lasthop"


def test_a_file_without_a_ca_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(CA.key_pem)
    result = lasthop("init", tmp_path / "demo", "--to", "a.invalid:443", "--ca", tmp_path / "key.pem")
    assert result.exit_code == 2
    assert "holds no PEM certificate but a private key" in result.stderr
    assert not (tmp_path / "demo").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    result = lasthop("init", tmp_path, "--to", "a.invalid:443")
    assert result.exit_code == 1
    assert "is not empty" in result.stderr
    assert sorted(path.name for path in tmp_path.glob("*.yaml")) == ["mine.yaml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("run", "https://127.0.0.1:8443"),
            "https://127.0.0.1:8443 is a backend, not a folder; write: lasthop run --to https://127",
        ),
        (("run", "api.example:8443"), "write: lasthop run --to https://api.example:8443\n"),
        (("run", "https://tom:secret@127.0.0.1:8443"), "write --to https://127.0.0.1:8443"),
        (
            ("run", "127.0.0.1:8443", "--ca", "ca.pem"),
            "--ca belongs to a backend; give that with --to https://127.0.0.1:8443\n",
        ),
        (("run", "no:folder"), "folder no:folder does not exist"),
        (("init", "https://127.0.0.1:8443"), "write: lasthop init DIR --to https://127.0.0.1:8443\n"),
    ],
)
def test_a_backend_in_the_place_of_a_folder_is_recognised(words: tuple[str, ...], message: str) -> None:
    result = lasthop(*words)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "secret" not in result.stderr


def test_a_name_needs_one_address_that_answers_and_none_with_another_certificate(
    tmp_path: Path, ca: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Certificate("backend", CA, sans=dns("api.example")).server_context()
    with contextlib.closing(Backend(good)) as backend:
        places = [("127.0.0.9", backend.port), ("127.0.0.1", backend.port)]
        resolved = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        real = socket.getaddrinfo

        def resolve(host: str, *args: Any, **rest: Any) -> list[Any]:
            return resolved if host == "api.example" else real(host, *args, **rest)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        args = ("--to", f"https://api.example:{backend.port}", "--ca", ca)
        warned = lasthop("init", tmp_path / "demo", *args)
        assert warned.exit_code == 0
        assert f"! https://api.example:{backend.port}: 127.0.0.9:{backend.port} refuses the connection" in warned.stderr
        assert "Requests go to its other addresses" in warned.stderr
        with contextlib.closing(Backend(Certificate("other").server_context(), at=places[0])):
            refused = lasthop("init", tmp_path / "other", *args)
        assert refused.exit_code == 1
        assert "CN=other" in refused.stderr
        assert not (tmp_path / "other").exists()


def test_a_pin_alone_verifies_no_name(tmp_path: Path) -> None:
    own = Certificate("backend")
    with contextlib.closing(Backend(own.server_context())) as backend:
        pin = own.certificate.fingerprint(hashes.SHA256()).hex()
        result = lasthop("init", tmp_path / "demo", "--to", f"https://127.0.0.1:{backend.port}", "--pin", pin)
    assert result.exit_code == 0
    assert "  backend is sent as SNI, and no name is verified.\n" in result.stderr
    assert "in its certificate" not in result.stderr
