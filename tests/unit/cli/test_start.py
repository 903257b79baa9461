"""Starting: quick, by importing little; help that teaches; completion; no stack traces for bad input."""

from __future__ import annotations

import http.server
import os
import socketserver
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lasthop.cli.args import local
from lasthop.cli.main import COMMANDS
from tests.folders import CA, lasthop

HEAVY = (
    "OpenSSL",
    "aiohttp",
    "asyncio",
    "cryptography",
    "difflib",
    "envoy",
    "grpc",
    "jsonschema_rs",
    "msgspec",
    "rich",
    "watchfiles",
    "yaml",
)


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("status",),
        ("status", "--help"),
        ("check", "--help"),
        ("explain", "--help"),
        ("audit", "--help"),
        ("probe", "--help"),
    ],
)
def test_a_command_imports_nothing_heavy_before_it_works(args: tuple[str, ...], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom lasthop.cli.main import main\n"
        f"try:\n    main({list(args)!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    env = {"LASTHOP_RUN_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


SERVING = ("OpenSSL", "aiohttp", "grpc", "jinja2", "prometheus_client", "rich", "watchfiles")


@pytest.mark.parametrize(
    ("args", "most"),
    [
        (("--help",), 100),
        (("status", "--help"), 150),
        (("check", "FOLDER"), 830),
        (("explain", "httproute", "backend", "--dir", "FOLDER"), 830),
        (("audit", "FOLDER"), 850),
    ],
)
def test_a_command_that_asks_once_imports_nothing_that_serves(args: tuple[str, ...], most: int, tmp_path: Path) -> None:
    """Imports are most of what such a command costs, and their number is the same on every machine."""
    folder = tmp_path / "folder"
    (tmp_path / "ca.pem").write_text(CA.pem)
    backend = ("--to", "https://127.0.0.1:9", "--hostname", "api.example", "--ca", tmp_path / "ca.pem")
    assert lasthop("init", folder, *backend).exit_code == 0
    words = [str(folder) if arg == "FOLDER" else arg for arg in args]
    code = (
        "import sys\nbefore = len(sys.modules)\nfrom lasthop.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {SERVING!r} if name in sys.modules], len(sys.modules) - before)"
    )
    env = {"LASTHOP_RUN_DIR": str(tmp_path), "LASTHOP_STATE_DIR": str(tmp_path / "s"), "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    heavy, _, count = result.stdout.splitlines()[-1].rpartition(" ")
    assert heavy == "[]"
    assert int(count) <= most


@pytest.mark.parametrize("own", ["", "/own/ca.pem"])
@pytest.mark.parametrize("command", ["controller", "run"])
def test_cas_of_the_system_are_read_for_no_import_and_for_every_connection(command: str, own: str) -> None:
    code = (
        "import os, ssl\nfrom lasthop.cli.main import main\n"
        f"main.get_command(None, {command!r})\n"
        "from aiohttp import connector\n"
        "print(len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()), os.environ.get('SSL_CERT_FILE', ''))\n"
        "print(len(ssl.create_default_context().get_ca_certs()) > 0)"
    )
    env = {"PYTHONPATH": ":".join(sys.path), **({"SSL_CERT_FILE": own} if own else {})}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    of_import, later = result.stdout.splitlines()
    assert of_import.split() == ["0", *filter(None, [own])]
    assert later == str(not own and len(ssl.create_default_context().get_ca_certs()) > 0)


def test_only_a_probe_loads_the_bindings_of_openssl() -> None:
    code = "import sys, lasthop.run.cluster_host, lasthop.run.host, lasthop.cli.views.folder\nprint('OpenSSL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_an_example(name: str) -> None:
    result = lasthop(name, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"lasthop {name} " in result.stdout


def test_the_list_of_commands_is_in_the_help() -> None:
    result = lasthop("--help")
    assert all(f"  {name} " in result.stdout for name in COMMANDS)


def test_a_misspelt_command_is_answered_with_a_suggestion() -> None:
    result = lasthop("sttus")
    assert (result.exit_code, "did you mean status?" in result.stderr) == (2, True)


def test_version() -> None:
    assert lasthop("--version").stdout.startswith("lasthop, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_for_lasthop(shell: str) -> None:
    result = lasthop("completion", shell)
    assert result.exit_code == 0
    assert "_LASTHOP_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("lasthop ex", "explain"),
        ("lasthop explain backendt", "backendtlspolicy"),
        ("lasthop status -", "--watch"),
        ("lasthop audit --fail-on waived,pl", "waived,plaintext"),
    ],
)
def test_commands_kinds_and_options_complete(typed: str, completed: str, tmp_path: Path) -> None:
    words = typed.split(" ")
    result = subprocess.run(
        [sys.executable, "-c", "from lasthop.cli.main import main; main(prog_name='lasthop')"],
        env={
            "_LASTHOP_COMPLETE": "bash_complete",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(words) - 1),
            "PYTHONPATH": ":".join(sys.path),
            "LASTHOP_RUN_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"plain,{completed}" in result.stdout.splitlines()


def test_names_complete_to_nothing_where_no_gateway_runs(tmp_path: Path) -> None:
    assert lasthop("status", "gateway", "x", env={"LASTHOP_RUN_DIR": str(tmp_path)}).exit_code == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("status",), "no gateway runs on this machine"),
        (("config", "clusters"), "in a cluster, Envoy's admin API is a socket inside the proxy's Pod"),
        (("check",), "check DIR, start a gateway"),
        (("probe", "api"), "read a folder with --dir DIR, start a gateway"),
        (("run", "/tmp", "--address", "localhost"), "localhost is not an IP address"),
        (("status", "gatway"), "did you mean gateway?"),
        (("status", "--dir", "/nowhere"), "no gateway runs on /nowhere"),
        (("run", "/nowhere"), "folder /nowhere does not exist"),
        (("run", "/tmp", "--admin", "x"), "is not HOST:PORT"),
        (("status", "--admin", ":19101"), "write for example 127.0.0.1:19101"),
        (("run", "/tmp", "--admin", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("init", "demo"), "lasthop init demo --to https://api.example.com:443"),
        (("stop", "--admin", "127.0.0.1:1"), "no gateway of this machine has the admin address 127.0.0.1:1"),
        (("import", "auto", "/nowhere"), "nothing to import: /nowhere does not exist"),
        (("stop", "--dir", "/a", "--all"), "more than one of a folder, --admin and --all"),
        (("doctor", "/a", "--dir", "/b"), "two folders: /a and /b"),
    ],
)
def test_bad_input_gives_a_readable_error(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    env = {"LASTHOP_RUN_DIR": str(tmp_path / "r"), "LASTHOP_STATE_DIR": str(tmp_path / "s")}
    result = lasthop(*args, env=env)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_stop_with_several_gateways_lists_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [local.LocalGateway(Path(f"/run/{name}"), os.geteuid(), {"folder": f"/{name}"}) for name in "ab"]
    monkeypatch.setattr(local, "gateways", lambda: running)
    monkeypatch.setattr(local, "state", lambda gateway: "running")
    result = lasthop("stop")
    assert (result.exit_code, "\\n" in result.stderr) == (1, False)
    assert "lasthop stop /a, or lasthop stop /b; or all: lasthop stop --all" in result.stderr


def test_a_folder_whose_path_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    env = {"LASTHOP_RUN_DIR": str(tmp_path / "r"), "LASTHOP_STATE_DIR": str(tmp_path / "s")}
    result = lasthop("run", folder, env=env)
    assert (result.exit_code, "is not UTF-8; rename it" in result.stderr) == (1, True)
    assert lasthop("stop", folder, env=env).exit_code == 0
    assert "no gateway runs on" in lasthop("status", "--dir", folder, env=env).stderr


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """Some other server, as at the port of a listener."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"{}", b"[]", b'"text"', b"\xff"])
def test_another_server_at_an_address_is_not_taken_for_a_gateway(body: bytes) -> None:
    handler = type("Handler", (_Elsewhere,), {"body": body})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        commands = (("status",), ("check",), ("audit",), ("explain", "hr", "a"), ("config", "clusters"), ("probe", "a"))
        for args in (*commands, ("top",), ("dashboard", "--no-open"), ("status", "-w")):
            result = lasthop(*args, "--admin", address)
            assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
            assert (result.exit_code, "is not the admin address of a gateway" in result.stderr) == (1, True), args
        server.shutdown()
