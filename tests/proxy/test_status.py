"""Output for users and programs: `lasthop status`, the admin address, and the secrets that neither may show."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator

import pytest
import yaml
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.backends import backend, until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued
from tests.proxy.lasthop import Lasthop

CLIENT = Certificate("the Gateway", OTHER_CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
SERVER = Certificate("the listener", CA, sans=dns("api.test"))
MISFIT = Certificate("somebody else", CA, sans=dns("api.test"))


@pytest.fixture(scope="module")
def shown(module_own: Callable[..., Lasthop]) -> Iterator[Lasthop]:
    """A gateway with private keys in every place where they may be, one good route and one broken one."""
    lasthop = module_own("--concurrency", "1", "--verbose")
    with backend(issued()) as served, backend(issued("old.example")) as wrong:
        tls = {"backend": {"clientCertificateRef": {"name": "client"}}}
        lasthop.write(
            "gateway.yaml",
            docs.gateway_class(),
            docs.namespace("shop"),
            docs.gateway("web", docs.http(lasthop.port), docs.https(free_port(), "server"), tls=tls),
            docs.key_pair("client", CLIENT),
            docs.key_pair("server", SERVER),
            docs.secret("misfit", tls_crt=SERVER.pem, tls_key=MISFIT.key_pem),
            docs.secret("ca-with-key", ca_crt=CA.pem, tls_key=CA.key_pem),
            docs.config_map("pasted-key", CA.key_pem),
        )
        lasthop.write(
            "hops.yaml",
            *docs.hop("good", served.port, docs.policy("good", "api.example", docs.ref("ca-with-key", "Secret"))),
            *docs.hop("wrong", wrong.port, docs.policy("wrong", "api.example", docs.ref("ca-with-key", "Secret"))),
            *docs.hop("broken", served.port, docs.policy("broken", "api.example", "pasted-key")),
        )
        lasthop.start()
        for name in ("good", "wrong", "broken"):
            lasthop.get(name)
        # And one that Envoy must not be given at all.
        lasthop.write("misfit.yaml", docs.gateway("misfit", docs.https(free_port(), "misfit")))
        until(lambda: lasthop.conditions("Gateway", "misfit")["Accepted"][0] == "False")
        until(lasthop.settled)
        yield lasthop


def test_the_table_has_a_line_for_each_object_with_the_first_bad_news(shown: Lasthop) -> None:
    table = shown.command("status")
    assert table.returncode == 0, table.stderr
    head, *lines = table.stdout.splitlines()
    assert re.split(r"\s+", head) == ["NAME", "READY", "WHY"]
    rows = {name: (ready, " ".join(why)) for name, ready, *why in map(str.split, lines)}
    assert rows["gatewayclass/lasthop"] == ("True", "")
    assert rows["gateway/shop/web"] == ("True", "")
    assert rows["httproute/shop/good"] == ("True", "")
    assert rows["backendtlspolicy/shop/good"] == ("True", "")
    ready, why = rows["backendtlspolicy/shop/broken"]
    assert ready == "False" and why.startswith("shop/web: NoValidCACertificate:")
    assert "private key" in why
    assert rows["httproute/shop/broken"][0] == "False"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_one_object_is_shown_as_a_cluster_would(shown: Lasthop, form: str) -> None:
    said = shown.command("status", "backendtlspolicies", "broken", "-n", "shop", "-o", form)
    assert said.returncode == 0, said.stderr
    documents = json.loads(said.stdout) if form == "json" else list(yaml.safe_load_all(said.stdout))
    (policy,) = documents
    assert policy["kind"] == "BackendTLSPolicy"
    assert policy["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert policy["spec"]["validation"]["hostname"] == "api.example"
    (ancestor,) = policy["status"]["ancestors"]
    assert ancestor["controllerName"] == "lasthop.dev/gateway-controller"
    assert ancestor["ancestorRef"]["name"] == "web"
    for condition in ancestor["conditions"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", condition["lastTransitionTime"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("backendtlspolicy", "not-there"), "there is no BackendTLSPolicy not-there"),
        (("teapot",), "unknown kind teapot"),
        (("--dir", "/not/there"), "no gateway runs on /not/there"),
    ],
)
def test_a_question_that_has_no_answer_gets_a_sentence(shown: Lasthop, args: tuple[str, ...], words: str) -> None:
    said = shown.command("status", *args)
    assert said.returncode != 0
    assert words in said.stderr
    assert "Traceback" not in said.stderr


def test_status_reports_that_nothing_runs(own: Callable[..., Lasthop]) -> None:
    said = own(env={"HOME": "/nowhere", "KUBECONFIG": ""}).command("status")
    assert said.returncode == 1
    assert "no gateway runs on this machine" in said.stderr
    assert "start a gateway with: lasthop run DIR" in said.stderr


def test_private_keys_are_shown_nowhere(shown: Lasthop) -> None:
    """In no output, no log and no file of the running gateway."""
    questions = (("status",), ("status", "secret", "-o", "yaml"), ("status", "-o", "json"))
    said = {" ".join(question): shown.command(*question).stdout for question in questions}
    paths = ("/", "/api/objects", "/api/objects?kind=Secret", "/api/findings", "/metrics")
    said |= {path: shown.ask(path)[1].decode() for path in paths}
    said |= {"log": shown.log, "access log": (shown.root / "out").read_text()}
    said |= {str(f): f.read_bytes().decode(errors="replace") for f in (shown.root / "r").rglob("*") if f.is_file()}
    assert said["status secret -o yaml"].count("kind: Secret") == 4
    for place, text in said.items():
        text = re.sub(r"\s|\\n", "", text)
        for name, certificate in {"client": CLIENT, "server": SERVER, "misfit": MISFIT, "ca": CA}.items():
            encoded = base64.b64encode(certificate.key_pem.encode()).decode()
            # Not from the start: there every key of one kind is alike.
            for secret in ("".join(certificate.key_pem.splitlines()[1:-1])[60:100], encoded[120:160]):
                assert secret not in text, f"the key of {name} is in {place}"


def test_files_on_disk_are_readable_by_the_user_alone(shown: Lasthop) -> None:
    """Last good contents hold Secrets, and whoever may write to the sockets is the control plane."""
    for place in (*(shown.root / "r").iterdir(), *(shown.root / "s" / "lasthop").iterdir()):
        assert place.stat().st_mode & 0o077 == 0, place


def test_health_and_metrics_answer(shown: Lasthop) -> None:
    assert shown.ask("/healthz") == (200, b"ok\n")
    status, metrics = shown.ask("/metrics")
    assert status == 200
    text = metrics.decode()
    assert 'lasthop_objects{kind="BackendTLSPolicy"} 3.0' in text
    assert re.search(r'lasthop_findings\{reason="NoValidCACertificate",severity="error"\} 1', text)
    assert re.search(r'lasthop_xds_acks_total\{type="Cluster"\} [1-9]', text)
    failed = r'lasthop_backend_tls_handshakes_total\{[^}]*outcome="wrong_name"[^}]*service="wrong"\} [1-9]'
    until(lambda: re.search(failed, shown.ask("/metrics")[1].decode()))


def test_the_admin_address_does_not_answer_to_other_names(shown: Lasthop) -> None:
    """Or a web page could read it through a name of its own that resolves to loopback."""
    assert shown.ask("/api/objects", host="evil.example")[0] == 421
