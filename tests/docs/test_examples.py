"""Every folder of examples/ matches its README.md: the output of the commands, and the responses of a real gateway."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from examples.stories import HERE, STORIES, Story, prepare, serving
from lasthop.cli.main import main
from tests.backends import until
from tests.ports import free_port
from tests.proxy.conftest import own
from tests.proxy.lasthop import Answer, Lasthop
from tests.proxy.streams import datagram

__all__ = ["own"]
FOLDERS = sorted(path.name for path in HERE.iterdir() if path.is_dir() and not path.name.startswith("_"))
MADE = shutil.ignore_patterns("certs", "pins.yaml")
OUTPUT = re.compile(r"^    lasthop ((?:check|audit) [^\n]+)\n\n```\n(.+?)^```$", re.DOTALL | re.MULTILINE)

VARYING = re.compile(r"\d+(?= days left)|(?<=SHA-256 )[0-9a-f…]+|(?<=^Made: ).+|(?<=^By: ).+|(?<=^Of: ).+", re.MULTILINE)


def put(name: str, folder: Path) -> Path:
    """Copies an example, with its certificates."""
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True, ignore=MADE)
    if name in STORIES:
        prepare(folder, STORIES[name])
    return folder


def lasthop(*args: str) -> str:
    return CliRunner().invoke(main, args, prog_name="lasthop").stdout


def test_every_folder_has_a_readme_and_is_listed() -> None:
    listed = set(re.findall(r"^\| \[([\w-]+)\]\(", (HERE / "README.md").read_text(), re.MULTILINE))
    assert listed == set(FOLDERS)
    assert {*STORIES, "quickstart", "import"} == listed
    assert [name for name in listed - {"quickstart"} if not (HERE / name / "README.md").exists()] == []


@pytest.mark.parametrize("name", sorted(STORIES))
def test_commands_print_what_the_readme_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(name, tmp_path / "examples" / name)
    monkeypatch.chdir(tmp_path)
    shown = OUTPUT.findall((HERE / name / "README.md").read_text())
    assert shown
    for line, output in shown:
        assert VARYING.sub("…", lasthop(*shlex.split(line, comments=True))) == VARYING.sub("…", output)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_the_yaml_has_the_ports_of_the_backends_and_of_the_gateway(name: str) -> None:
    documents = [d for file in (HERE / name).glob("*.yaml") for d in yaml.safe_load_all(file.read_text()) if d]
    slices = {p["port"] for d in documents if d["kind"] == "EndpointSlice" for p in d["ports"]}
    gateways = {each["port"] for d in documents if d["kind"] == "Gateway" for each in d["spec"]["listeners"]}
    assert {server.port for server in STORIES[name].servers} <= slices
    assert gateways == set(STORIES[name].ports)


def test_the_import_says_that_nothing_was_verified_and_fails_closed(tmp_path: Path) -> None:
    put("import", tmp_path)
    found = CliRunner().invoke(main, ["import", "ingress-nginx", str(tmp_path / "manifests"), "--to", str(tmp_path / "to")])
    assert found.exit_code == 3
    assert "obs/grafana:443" in (tmp_path / "to" / "decisions.yaml").read_text()
    policies = [
        document
        for file in (tmp_path / "to" / "objects").glob("*.yaml")
        for document in yaml.safe_load_all(file.read_text())
        if document["kind"] == "BackendTLSPolicy"
    ]
    assert len(policies) == 1
    assert "BackendTLSPolicy obs/" in lasthop("check", str(tmp_path / "to" / "objects"))


# --- with a real gateway ---------------------------------------------------------------------------------------------


class Running:
    def __init__(self, gateway: Lasthop, ports: dict[int, int]) -> None:
        self.gateway, self.ports = gateway, ports

    def get(self, path: str) -> Answer:
        with socket.create_connection(("127.0.0.1", self.ports[8080]), timeout=15) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x.test\r\nconnection: close\r\n\r\n".encode())
            head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).decode().partition("\r\n\r\n")
        return Answer(int(head.split()[1]), body)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.gateway.folder / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def becomes(self, path: str, status: int) -> Answer:
        return until(lambda: found if (found := self.get(path)).status == status else None, f"{path} gets {status}")


@contextmanager
def backends(folder: Path, story: Story, ports: dict[int, int]) -> Iterator[None]:
    """Runs them on a thread, because the test itself blocks."""
    loop, ready, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(folder, story, ports):
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


@pytest.fixture
def run(own: Callable[..., Lasthop], request: pytest.FixtureRequest) -> Callable[[str], Running]:
    def start(name: str) -> Running:
        gateway, story = own(), STORIES[name]
        put(name, gateway.folder)
        ports = {port: free_port() for port in (*story.ports, *(server.port for server in story.servers))}
        for file in gateway.folder.glob("*.yaml"):
            file.write_text(
                re.sub(r"\b(\d{4,5})\b(?=[,}]|$)", lambda n: str(ports.get(int(n[1]), n[1])), file.read_text(), flags=re.M)
            )
        running = backends(gateway.folder, story, ports)
        running.__enter__()
        request.addfinalizer(lambda: running.__exit__(None, None, None))
        request.addfinalizer(gateway.close)  # before the backends, whose connections end with it
        gateway.start(ready=False)
        until(gateway.ready, "lasthop is ready")
        return Running(gateway, ports)

    return start


def test_the_failing_policy_is_corrected_step_by_step(run: Callable[[str], Running]) -> None:
    example = run("failing-policy")
    example.becomes("/", 500)
    example.edit("policy.yaml", "shop-cas", "shop-ca")
    example.becomes("/", 503)
    wanted = "certificate has DNS api.internal.example; wanted: api.shop.example"
    probe = CliRunner().invoke(main, ["probe", "api", "--dir", str(example.gateway.folder)], env=dict(example.gateway.env))
    assert wanted in probe.stdout
    example.edit("policy.yaml", "api.shop.example", "api.internal.example")
    assert example.becomes("/", 200).body == "Hello from api\n"


def test_each_backend_sees_the_certificate_that_is_meant_for_it(run: Callable[[str], Running]) -> None:
    example = run("backend-mtls")
    assert example.becomes("/", 200).body == "Hello from orders, the-gateway\n"
    assert example.becomes("/erp", 200).body == "Hello from erp, the-erp-team\n"
    example.edit("gateway.yaml", "  tls: {backend: {clientCertificateRef: {name: gateway-identity}}}\n", "")
    example.becomes("/", 503)
    assert example.get("/erp").status == 200


def test_guardrails_refuse_forbidden_connections(run: Callable[[str], Running]) -> None:
    example = run("guardrails")
    assert example.becomes("/", 200).body == "Hello from shop\n"
    assert (example.get("/wiki").status, example.get("/erp").status) == (500, 500)


def test_a_pinned_and_a_waived_backend_are_reached(run: Callable[[str], Running]) -> None:
    example = run("pinning-and-waivers")
    assert example.becomes("/erp", 200).body == "Hello from erp\n"
    assert example.becomes("/printer", 200).body == "Hello from printer\n"


def test_a_tls_route_ends_tls_and_opens_it_again(run: Callable[[str], Running]) -> None:
    example = run("tls-terminate")
    trusting = ssl.create_default_context(cafile=example.gateway.folder / "certs" / "ca.crt")

    def asked(name: str) -> str:
        plain = socket.create_connection(("127.0.0.1", example.ports[6432]), timeout=15)
        with plain, trusting.wrap_socket(plain, server_hostname=name) as connection:
            connection.sendall(b"hello\n")
            return connection.recv(100).decode()

    def answered() -> bool:
        try:
            return asked("orders.db.example") == "you said: hello\n"
        except OSError:
            return False

    until(answered, "the backend answers")
    with pytest.raises(OSError):
        asked("other.db.example")


def test_connections_and_datagrams_reach_their_backends(run: Callable[[str], Running]) -> None:
    example = run("tcp-udp")

    def answered() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", example.ports[5353]), timeout=15) as connection:
                connection.sendall(b"hello\n")
                return connection.recv(100) == b"you said: hello\n"
        except OSError:
            return False

    until(answered, "the TCP backend answers")
    until(lambda: datagram(example.ports[5353]) == "you said: hello", "the UDP backend answers")


def documents_in_order() -> dict[str, list[str]]:
    """The kinds of every YAML text that a reader may apply, in its order."""
    root = HERE.parent
    texts = {str(path.relative_to(root)): path.read_text() for path in sorted(HERE.rglob("*.yaml"))}
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL)
        texts |= {f"{page.name}, block {number}": block for number, block in enumerate(blocks, 1)}
    return {place: re.findall(r"^kind: (\w+)", text, flags=re.MULTILINE) for place, text in texts.items()}


def test_a_policy_comes_before_the_routes_of_its_text() -> None:
    """`kubectl apply` creates objects in the order of the text, and between the two a backend would be plaintext."""
    wrong = []
    for place, kinds in documents_in_order().items():
        routes = [number for number, kind in enumerate(kinds) if kind.endswith("Route")]
        policies = [number for number, kind in enumerate(kinds) if kind == "BackendTLSPolicy"]
        if routes and policies and min(routes) < max(policies):
            wrong.append(place)
    assert wrong == []
