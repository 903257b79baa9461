"""`lasthop run --to URL` with a stranger's backends: each gets a verified 200 from one line, or is shown the line for it.

Every command that is shown is run as it is printed, so that no advice is given that does not work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import ipaddress
import os
import shlex
import signal
import socket
import ssl
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.backends import Backend, until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy.certs import LONG
from tests.proxy.lasthop import EXECUTABLE

CA = Certificate("Corp CA", organization="Corp", ca=True, valid=LONG)
FOREIGN = Certificate("Foreign CA", ca=True, valid=LONG)
PUBLIC = Certificate("Public CA", ca=True, valid=LONG)
MIDDLE = Certificate("Middle CA", CA, ca=True, valid=LONG)
CLIENT = Certificate("client", FOREIGN, usage=ExtendedKeyUsageOID.CLIENT_AUTH, valid=LONG)
NAME = dns("api.example")
LOOPBACK: tuple[x509.GeneralName, ...] = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")),)


def issued(
    *sans: x509.GeneralName, by: Certificate | None = CA, chain: tuple[Certificate, ...] = (), **settings: Any
) -> ssl.SSLContext:
    return Certificate("backend", by, sans=sans, **{"valid": LONG, **settings}).server_context(*chain)


def asking(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = issued(*NAME)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version
    context.load_verify_locations(cadata=FOREIGN.pem)
    return context


def p384() -> ssl.SSLContext:
    context = issued(*NAME)
    context.set_ecdh_curve("secp384r1")
    return context


def old() -> ssl.SSLContext:
    context = issued(*NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def h2() -> ssl.SSLContext:
    context = issued(*NAME)
    context.set_alpn_protocols(["h2"])
    return context


class Choosy(Backend):
    """Has a certificate for one name only, and none for clients with another or no SNI."""

    def _hello(self, name: str | None) -> int | None:
        super()._hello(name)
        return None if name == "api.example" else int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)


def choosy() -> Backend:
    return Choosy(issued(*NAME))


@dataclasses.dataclass(frozen=True)
class Row:
    made: Callable[[], Backend]
    says: tuple[str, ...] = ()
    """The output of the commands that do not work yet, in order; empty: the first one works."""
    args: str = "--ca ca.pem"
    url: str = "https://127.0.0.1:{port}"
    fill: str = ""
    """Values for FILE and NAME, which the command cannot know."""


def tls(context: Callable[[], ssl.SSLContext], **settings: Any) -> Callable[[], Backend]:
    return lambda: Backend(context(), **settings)


ROWS = {
    "private-ca": Row(tls(lambda: issued(*NAME))),
    "private-ca-not-given": Row(tls(lambda: issued(*NAME)), ("a CA that this system does not trust",), ""),
    "private-ca-not-here": Row(tls(lambda: issued(*NAME, by=FOREIGN)), ("does not trust",), "", fill="foreign/ca.pem"),
    "another-ca-given": Row(tls(lambda: issued(*NAME, by=FOREIGN)), ("trusted: Corp CA",), fill="foreign/ca.pem"),
    "intermediate": Row(tls(lambda: issued(*NAME, by=MIDDLE, chain=(MIDDLE,)))),
    "public-ca": Row(tls(lambda: issued(*NAME, by=PUBLIC)), (), "--hostname api.example"),
    "public-ca-of-localhost": Row(tls(lambda: issued(*dns("localhost"), by=PUBLIC)), (), "", "https://localhost:{port}"),
    "self-signed": Row(tls(lambda: issued(*NAME, by=None)), ("a self-signed certificate",), ""),
    "self-signed-ca": Row(tls(lambda: issued(*NAME, by=None, ca=True)), ("a self-signed certificate",), ""),
    "expired": Row(tls(lambda: issued(*NAME, valid=(NOW - 9 * DAY, NOW - DAY))), ("expired 1 day ago",)),
    "expired-and-unknown": Row(tls(lambda: issued(*NAME, by=FOREIGN, valid=(NOW - 9 * DAY, NOW - DAY))), ("expired 1",), ""),
    "not-yet-valid": Row(tls(lambda: issued(*NAME, valid=(NOW + DAY, NOW + 9 * DAY))), ("not valid yet",)),
    "wrong-name": Row(
        tls(lambda: issued(*NAME)), ("certificate has DNS api.example; wanted: b.example",), "--ca ca.pem --hostname b.example"
    ),
    "wildcard": Row(tls(lambda: issued(*dns("*.corp.example")))),
    "localhost-in-the-url": Row(tls(lambda: issued(*NAME)), (), "--ca ca.pem", "https://localhost:{port}"),
    "no-scheme": Row(tls(lambda: issued(*NAME)), (), "--ca ca.pem", "127.0.0.1:{port}"),
    "ip-san-alone": Row(tls(lambda: issued(*LOOPBACK)), ("no DNS name to verify",)),
    "ip-san-and-name": Row(tls(lambda: issued(*LOOPBACK, *NAME))),
    "cn-only": Row(tls(lambda: issued()), ("no subjectAltName",)),
    "uri-only": Row(tls(lambda: issued(x509.UniformResourceIdentifier("spiffe://corp/api"))), ("URI spiffe://corp/api",)),
    "mtls-1.2": Row(tls(lambda: asking(ssl.TLSVersion.TLSv1_2)), ("client certificate",), fill="client.pem"),
    "mtls-1.3": Row(tls(lambda: asking(ssl.TLSVersion.TLSv1_3)), ("client certificate",), fill="client.pem"),
    "mtls-and-unknown-ca": Row(tls(lambda: asking(ssl.TLSVersion.TLSv1_3)), ("does not trust",), "", fill="client.pem"),
    "plaintext": Row(Backend, ("does not speak TLS on this port",)),
    "http-url": Row(Backend, ("neither encrypted nor verified",), "", "http://127.0.0.1:{port}"),
    "http-url-of-a-tls-port": Row(
        tls(lambda: issued(*NAME)), ("speaks TLS on this port", "does not trust"), "", "http://127.0.0.1:{port}"
    ),
    "h2-only": Row(tls(h2, h2_only=True)),
    "p-384-only": Row(tls(p384), ("agrees to the curve P-384, and to none that the gateway offers",)),
    "intermediate-missing": Row(
        tls(lambda: issued(*NAME, by=MIDDLE)),
        ("let the backend send the intermediate certificates too",),
        fill="foreign/middle.pem",
    ),
    "tls-1.1": Row(tls(old), ("speaks TLSv1.1",)),
    "ed25519": Row(tls(lambda: issued(*NAME, key=ed25519.Ed25519PrivateKey.generate())), ("its key is Ed25519",)),
    "sni": Row(choosy, ("shows no certificate for a client that sends no name",), fill="api.example"),
    "sni-given": Row(choosy, (), "--ca ca.pem --hostname api.example"),
}


class Runner:
    """Runs command lines in a folder with the files of a user."""

    def __init__(self, root: Path) -> None:
        self.root, self.port = root, free_port()
        self.env = {
            **os.environ,
            "LASTHOP_RUN_DIR": str(root / "r"),
            "LASTHOP_STATE_DIR": str(root / "s"),
            "SSL_CERT_FILE": str(root / "system.crt"),
            "HOME": str(root),
        }
        (root / "system.crt").write_text(PUBLIC.pem)
        self.home = root / "user"
        (self.home / "foreign").mkdir(parents=True)
        (self.home / "ca.pem").write_text(CA.pem)
        (self.home / "foreign" / "ca.pem").write_text(FOREIGN.pem)
        (self.home / "foreign" / "middle.pem").write_text(MIDDLE.pem)
        (self.home / "client.pem").write_text(CLIENT.pem + CLIENT.key_pem)
        self.process: subprocess.Popen[str] | None = None

    def start(self, command: str) -> str:
        """Returns its output until it is ready, or until its end."""
        log = self.root / "log"
        with log.open("w") as out:
            words = [str(EXECUTABLE), *shlex.split(command)[1:]]
            self.process = subprocess.Popen(words, stdout=out, stderr=out, cwd=self.home, env=self.env, text=True)
        until(lambda: self.process.poll() is not None or "ready: http" in log.read_text())  # type: ignore[union-attr]
        return log.read_text()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def get(self, path: str = "/", host: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Host": host} if host else {})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def ask(self, *args: str) -> str:
        result = subprocess.run([EXECUTABLE, *args], cwd=self.home, env=self.env, capture_output=True, text=True, check=False)
        return result.stdout + result.stderr

    def stop(self) -> int:
        assert self.process
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    @property
    def left(self) -> list[Path]:
        """Returns its remaining files, except the lock and its directory."""
        paths = (path for name in ("r", "s") for path in (self.root / name).rglob("*"))
        return [path for path in paths if path.name != "lock" and not (path / "lock").exists()]


@pytest.fixture
def runner() -> Iterator[Runner]:
    with tempfile.TemporaryDirectory(prefix="lh") as folder:  # the paths of sockets are short
        yield from _running(Runner(Path(folder)))


def _running(made: Runner) -> Iterator[Runner]:
    yield made
    if made.process and made.process.poll() is None:
        made.process.send_signal(signal.SIGINT)
        made.process.wait(30)


def proposed(text: str) -> list[str]:
    """Returns the commands to copy, which call the program as it was called."""
    return [line.strip() for line in text.splitlines() if line.startswith(f"  {EXECUTABLE} run ")]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_one_line_is_enough_or_the_next_one_is_shown(runner: Runner, row: Row) -> None:
    backend = row.made()
    with contextlib.closing(backend):
        url = row.url.format(port=backend.port)
        commands = [f"lasthop run --listen 127.0.0.1:{runner.port} --to {url} {row.args}".strip()]
        for says in row.says:
            said = runner.start(commands[0])
            assert not runner.runs, said
            assert runner.process and runner.process.returncode == 1, said
            assert says in said
            commands = proposed(said)
            assert commands, said
        for command in commands:
            filled = command.replace("FILE", row.fill).replace("NAME", row.fill)
            said = runner.start(filled)
            assert runner.runs, f"{filled}\n{said}"
            until(lambda: runner.get()[0] == 200, f"{filled} gives 200")
            assert backend.saw_plaintext is ("--plaintext" in filled)
            assert runner.stop() == 0
            assert runner.left == []


def many_names() -> ssl.SSLContext:
    return issued(*dns(*(f"{number:060}.example" for number in range(2000))))


@pytest.mark.parametrize(
    ("made", "args", "says"),
    [
        (tls(lambda: issued(*NAME, key=rsa.generate_private_key(65537, 2048), pss=True)), "", "its key is RSA-PSS 2048 bits"),
        (tls(many_names), "", "it sends certificates of more than 100 KiB, which Envoy refuses"),
        (
            tls(lambda: issued(*NAME), alert=int(ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE)),
            "",
            "Is api.example one of its names? The backend's log may show the reason.",
        ),
        (
            tls(lambda: asking(ssl.TLSVersion.TLSv1_3)),
            "--client-cert own.pem",
            "Give a certificate that the backend trusts: --client-cert FILE --client-key FILE",
        ),
    ],
    ids=["rsa-pss", "large", "alert", "foreign-client"],
)
def test_where_no_option_helps_the_reason_is_shown_and_no_command(
    runner: Runner, made: Callable[[], Backend], args: str, says: str
) -> None:
    own = Certificate("client", CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH, valid=LONG)
    (runner.home / "own.pem").write_text(own.pem + own.key_pem)
    with contextlib.closing(made()) as backend:
        said = runner.start(f"lasthop run --to https://127.0.0.1:{backend.port} --ca ca.pem --hostname api.example {args}")
    assert not runner.runs
    assert says in said
    assert proposed(said) == []


def test_a_port_that_answers_with_something_like_tls_is_given_no_name(runner: Runner) -> None:
    with talking(bytes.fromhex("16030300050200000100")) as listening:
        said = runner.start(f"lasthop run --to https://127.0.0.1:{listening.getsockname()[1]} --ca ca.pem")
    assert not runner.runs
    assert "Is it the port for https?" in said
    assert proposed(said) == []


def test_nothing_is_trusted_by_itself(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend:
        runner.start(f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port}")
        assert not runner.runs
        assert runner.left == []
        assert not backend.requests


def test_the_certificate_of_a_backend_is_not_proposed_as_its_ca(runner: Runner) -> None:
    own = Certificate("backend", CA, sans=NAME, valid=LONG)
    (runner.home / "api.pem").write_text(own.pem + own.key_pem)
    with contextlib.closing(Backend(own.server_context())) as backend:
        said = runner.start(f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port}")
    assert "--ca ca.pem" in said
    assert "api.pem" not in said


@pytest.mark.parametrize(
    "context",
    [
        lambda: issued(*NAME, usage=ExtendedKeyUsageOID.CLIENT_AUTH),
        lambda: issued(),
        lambda: issued(*NAME, by=FOREIGN, valid=(NOW - 9 * DAY, NOW - DAY)),
    ],
    ids=["for-clients", "without-names", "expired"],
)
def test_another_ca_is_not_proposed_where_no_ca_helps(runner: Runner, context: Callable[[], ssl.SSLContext]) -> None:
    with contextlib.closing(Backend(context())) as backend:
        said = runner.start(f"lasthop run --to https://127.0.0.1:{backend.port} --ca ca.pem")
    assert not runner.runs
    assert "--pin" in said
    assert "--ca FILE" not in said


def test_a_port_that_is_closed_is_named_and_a_backend_may_come_later(runner: Runner) -> None:
    port = free_port()
    said = runner.start(f"lasthop run --to https://127.0.0.1:{port}")
    assert not runner.runs
    assert f"127.0.0.1:{port} refuses the connection: nothing listens on this port" in said
    said = runner.start(
        f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{port} --ca ca.pem --hostname a.example"
    )
    assert runner.runs, said
    assert "Requests get 503 until it is there." in said
    assert runner.get()[0] == 503


def test_a_port_that_another_program_has_is_named_before_anything_runs(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend, socket.create_server(("127.0.0.1", runner.port)):
        said = runner.start(f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port} --ca ca.pem")
        assert not runner.runs
        assert f"127.0.0.1:{runner.port} is in use by " in said
        assert "give the listener another port; for example: --listen 127.0.0.1:80" in said
        assert runner.left == []


def talking(greeting: bytes) -> socket.socket:
    """Listens and greets each client: a protocol in which the server speaks first."""
    import threading

    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                with client:
                    client.sendall(greeting)

    threading.Thread(target=accept, daemon=True).start()
    return listening


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9\r\n", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"])
def test_plaintext_is_proposed_for_http_alone(runner: Runner, greeting: bytes) -> None:
    with talking(greeting) as listening:
        said = runner.start(f"lasthop run --to https://127.0.0.1:{listening.getsockname()[1]} --ca ca.pem")
        assert not runner.runs
        assert "it speaks neither TLS nor HTTP/1.1 on this port" in said
        assert proposed(said) == []


def test_a_backend_that_refuses_requests_without_a_client_certificate_is_warned_of(runner: Runner) -> None:
    context = issued(*NAME)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=FOREIGN.pem)
    with contextlib.closing(Backend(context)) as backend:
        said = runner.start(f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port} --ca ca.pem")
        assert runner.runs
        assert "client certificate: requested" in said
        assert "If requests fail, add: --client-cert FILE --client-key FILE" in said


def test_a_host_that_does_not_resolve_is_named(runner: Runner) -> None:
    said = runner.start("lasthop run --to https://api.invalid")
    assert not runner.runs
    assert "api.invalid is not found in DNS" in said


def test_ipv6(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend, six(backend.port) as port:
        runner.start(f"lasthop run --listen 127.0.0.1:{runner.port} --to https://[::1]:{port} --ca ca.pem")
        assert runner.runs
        until(lambda: runner.get()[0] == 200)


@contextlib.contextmanager
def six(port: int) -> Iterator[int]:
    """Listens on ::1 and passes everything on."""
    import threading

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client = opened.enter_context(listening.accept()[0])
                server = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]


def test_several_backends_have_their_own_requests_and_their_own_trust(runner: Runner) -> None:
    with contextlib.ExitStack() as stack:
        one, two, three, four = (
            stack.enter_context(contextlib.closing(Backend(context, name=name)))
            for name, context in (
                ("one", issued(*NAME)),
                ("two", issued(*NAME, by=FOREIGN)),
                ("three", issued(*NAME)),
                ("four", None),
            )
        )
        said = runner.start(
            f"lasthop run --listen 127.0.0.1:{runner.port} --ca ca.pem --to https://127.0.0.1:{one.port} "
            f"--to https://127.0.0.1:{two.port} --path /api --ca foreign/ca.pem "
            f"--to https://127.0.0.1:{three.port} --host app.example "
            f"--to http://127.0.0.1:{four.port} --path /plain --plaintext"
        )
        assert not runner.runs
        assert "--ca is for https://" in said
        common = said and f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{one.port} --ca ca.pem "
        runner.start(
            common + f"--to https://127.0.0.1:{two.port} --path /api --ca foreign/ca.pem "
            f"--to https://127.0.0.1:{three.port} --host app.example --ca ca.pem "
            f"--to http://127.0.0.1:{four.port} --path /plain --plaintext"
        )
        assert runner.runs
        until(lambda: runner.get()[0] == 200)
        bodies = [runner.get(*request)[1] for request in (("/",), ("/api/x",), ("/", "app.example"), ("/plain",))]
        assert bodies == ["one", "two", "three", "four"]
        assert [server.saw_plaintext for server in (one, two, three, four)] == [False, False, False, True]


def test_the_commands_find_it_and_a_restart_works(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend:
        command = f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port} --ca ca.pem"
        for _ in range(2):
            runner.start(command)
            assert runner.runs
            until(lambda: runner.get()[0] == 200)
            folder = runner.ask("ps", "-o", "name").strip()
            assert folder.endswith("objects")
            assert "httproute/default/backend" in runner.ask("status").lower()
            assert "verified" in runner.ask("explain", "httproute", "backend")
            assert "the gateway would connect" in runner.ask("probe", "--dir", folder)
            again = runner.ask(*shlex.split(command)[1:])
            assert f"a gateway serves 127.0.0.1:{runner.port} already" in again
            assert "run another beside it: add --listen 127.0.0.1:80" in again
            assert "Ending the gateway" in runner.ask("stop", folder)
            assert runner.process and runner.process.wait(30) == 0
            assert runner.left == []


def test_one_that_starts_while_another_ends_runs_or_names_the_other(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend:
        command = f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port} --ca ca.pem"
        runner.start(command)
        first = runner.process
        assert first and runner.runs
        first.send_signal(signal.SIGINT)
        said = runner.start(command)
        while not runner.runs:
            assert " already (pid " in said and "Traceback" not in said
            said = runner.start(command)
        until(lambda: runner.get()[0] == 200)
        assert first.wait(30) == 0 and runner.stop() == 0
        assert runner.left == []


def test_proxies_of_a_killed_gateway_are_taken_over_or_ended(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend:
        command = f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port} --ca ca.pem"
        for following in (command, ""):
            runner.start(command)
            until(lambda: runner.get()[0] == 200)
            assert runner.process
            runner.process.kill()
            runner.process.wait(10)
            if following:
                runner.start(following)
                until(lambda: runner.get()[0] == 200)
                runner.stop()
            else:
                assert "orphaned" in runner.ask("ps")
                runner.ask("stop")
            assert runner.left == []


def test_sighup_starts_anew_without_the_backend(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend:
        runner.start(f"lasthop run --listen 127.0.0.1:{runner.port} --to https://127.0.0.1:{backend.port} --ca ca.pem")
        until(lambda: runner.get()[0] == 200)
        backend.close()
        assert runner.process
        runner.process.send_signal(signal.SIGHUP)
        until(lambda: (runner.root / "log").read_text().count("ready: http") == 2, "it is ready again")
        assert runner.runs


def test_print_shows_the_objects_that_init_writes(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*NAME))) as backend:
        args = ("--to", f"https://127.0.0.1:{backend.port}", "--ca", "ca.pem")
        printed = subprocess.run(
            [EXECUTABLE, "run", *args, "--print"], cwd=runner.home, env=runner.env, capture_output=True, check=True
        )
        assert "wrote demo/policy.yaml" in runner.ask("init", "demo", *args)
        assert "nothing wrong" in runner.ask("check", "demo")
        (runner.home / "all").mkdir()
        (runner.home / "all" / "objects.yaml").write_bytes(printed.stdout)
        assert "nothing wrong" in runner.ask("check", "all")
        folder = [
            document for path in (runner.home / "demo").glob("*.yaml") for document in yaml.safe_load_all(path.read_text())
        ]
        kinds = sorted((obj["kind"], obj["metadata"]["name"]) for obj in folder)
        objects = list(yaml.safe_load_all(printed.stdout))
        assert sorted((obj["kind"], obj["metadata"]["name"]) for obj in objects) == kinds
        policies = [obj for obj in (*folder, *objects) if obj["kind"] in ("BackendTLSPolicy", "GatewayProfile", "HTTPRoute")]
        assert all(policies.count(policy) == 2 for policy in policies)


def test_init_writes_nothing_that_would_fail(runner: Runner) -> None:
    with contextlib.closing(Backend(issued(*dns("localhost")))) as backend:
        said = runner.ask("init", "demo", "--to", f"https://localhost:{backend.port}")
        assert "a CA that this system does not trust" in said
        assert not (runner.home / "demo").exists()
        command = next(line for line in said.splitlines() if line.startswith(f"  {EXECUTABLE} init "))
        assert "wrote demo/gateway.yaml" in runner.ask(*shlex.split(command)[1:])
