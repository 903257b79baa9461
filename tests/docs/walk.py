"""Runs the commands of pages as a reader would, in a network of its own, so that ports are those of the pages.

    echo README.md | unshare --user --map-root-user --net python -m tests.docs.walk FOLDER

Reads the names of pages and prints for each a line of JSON. A page that runs no gateway itself finds one running, with the
objects of the how-to's base and of tests/docs/stage.yaml.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from click.testing import CliRunner

from lasthop.cli.main import main as lasthop
from tests.certificates import DAY, NOW, Certificate, dns
from tests.docs.commands import Command, commands
from tests.docs.pages import DOCS, ROOT, blocks

BIN = Path(sys.executable).parent
YEAR = (NOW - DAY, NOW + 365 * DAY)
STAGE = (ROOT / "tests" / "docs" / "stage.yaml").read_text()
OUTSIDE = ("10.0.0.7", "10.0.0.8")
"""Addresses of backends that pages name."""
BACKENDS = {8443: ("http/1.1",), 9443: ("h2",)}
GATEWAY = re.compile(r"^(\.venv/bin/)?lasthop run |^python -m examples \S+( +#.*)?$")
ENDLESS = re.compile(r"^lasthop tap|^lasthop .* -w\b|^while |^lasthop dashboard")
PATIENCE = 90.0
SHELL = re.compile(r"[|>&;$*]|^[A-Z]+=")
BACKEND = """
import http.server, ssl, sys
class Hello(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "6"); self.end_headers(); self.wfile.write(b"hello\\n")
    def log_message(self, *_): pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("backend.pem", "backend.key")
context.set_alpn_protocols(sys.argv[2:])
server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Hello)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"""


def bring_up() -> None:
    """Brings up the loopback interface, with the addresses of pages."""
    with socket.socket() as asking:
        for number, address in enumerate(("127.0.0.1", *OUTSIDE)):
            name = f"lo:{number}".encode() if number else b"lo"
            if number:
                fcntl.ioctl(asking, 0x8916, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address)))
            fcntl.ioctl(asking, 0x8914, struct.pack("16sh14x", name, 0x1 | 0x40))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _undated(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d(T[\d:.]+Z)?|\d+ days left", "DATE", text)


class Forked:
    """A command of Lasthop, run without loading it again."""

    def __init__(self, args: list[str], cwd: Path, output: Path) -> None:
        self._code: int | None = None
        if pid := os.fork():
            self._pid = pid
            return
        with output.open("wb") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(cwd)
        code = 1
        try:
            lasthop(args, prog_name="lasthop")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def wait(self, timeout: float = PATIENCE) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("lasthop", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._pid, number)


Started = subprocess.Popen[bytes] | Forked


class Walk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work, self.repository = folder / "work", folder / "repository"
        self.cwd = self.work
        self.gateways: list[Started] = []
        self.others: list[Started] = []
        self.staged = False
        self._prepare()

    def _prepare(self) -> None:
        ignored = shutil.ignore_patterns("certs", "pins.yaml", "__pycache__")
        shutil.copytree(ROOT / "examples", self.repository / "examples", ignore=ignored)
        (self.repository / ".venv").symlink_to(BIN.parent)
        for name in ("work/gateway", "work/stage", "tmp", "srv"):
            (self.folder / name).mkdir(parents=True)
        ca = Certificate("docs CA", ca=True, valid=YEAR)
        server = Certificate("api", ca, sans=dns("api.example"), valid=YEAR)
        site = Certificate("www", ca, sans=dns("www.example"), valid=YEAR)
        base = next(blocks(DOCS / "how-to.md")).text
        files = {
            "ca.pem": ca.pem,
            **{name: server.pem for name in ("backend.pem", "next.pem")},
            "backend.key": server.key_pem,
            **{"me.pem": server.pem, "me.key": server.key_pem},
            **{
                f"{folder}/{name}": text
                for folder in ("gateway", "stage")
                for name, text in (("ca.pem", ca.pem), ("base.yaml", base))
            },
            **{"stage/www.pem": site.pem, "stage/www.key": site.key_pem, "stage/stage.yaml": STAGE},
        }
        for name, text in files.items():
            (self.work / name).write_text(text)
        shutil.copy(self.work / "ca.pem", self.repository)
        for name, port in (("shop", 8080), ("erp", 8081)):
            (self.folder / "srv" / name).mkdir()
            text = base.replace("8080", str(port)).replace("  addresses: [{value: 127.0.0.1}]\n", "")
            (self.folder / "srv" / name / "all.yaml").write_text(text)
            shutil.copy(self.work / "ca.pem", self.folder / "srv" / name)

    def backends(self) -> None:
        for port, protocols in BACKENDS.items():
            command = [sys.executable, "-c", BACKEND, str(port), *protocols]
            self.others.append(subprocess.Popen(command, cwd=self.work, stdin=subprocess.DEVNULL))
            deadline = time.monotonic() + PATIENCE
            while not _listens(port) and time.monotonic() < deadline:
                time.sleep(0.05)

    def end(self, processes: list[Started]) -> None:
        for process in reversed(processes):
            if processes is self.gateways:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
            if process.poll() is None:  # the second one ends a gateway without draining
                process.send_signal(signal.SIGINT if processes is self.gateways else signal.SIGKILL)
            process.wait(60)
        processes.clear()

    def page(self, page: Path) -> list[dict[str, object]]:
        listed = [each for each in commands(page) if not each.skipped]
        own = any(GATEWAY.match(each.text) for each in listed)
        in_repository = not page.is_relative_to(DOCS)
        self.cwd = self.repository if in_repository else self.work
        if self.staged == own:
            self.end(self.gateways)
            self.staged = not own
            if not own:
                self._start("lasthop run stage")
        own_backend = any(each.text.endswith("&") and not GATEWAY.match(each.text) for each in listed)
        if own_backend:
            self.end(self.others)
        elif not self.others:
            self.backends()
        text, results, done = page.read_text(), [], dict[str, dict[str, object]]()
        for each in listed:
            self._write_files(text, each.line)
            if each.text in done and not each.shown:
                continue
            done[each.text] = self._run(each)
            results.append(done[each.text])
        if own:
            self.end(self.gateways)
        if own_backend:
            self.end(self.others)
        return results

    def _write_files(self, text: str, line: int) -> None:
        """Writes what the page has its readers write above this line."""
        above = "\n".join(text.splitlines()[:line])
        for name, content in re.findall(r"[Ww]rite this as `([^`]+)`:\n\n```\w*\n(.*?)^```", above, re.DOTALL | re.MULTILINE):
            (self.cwd / name).write_text(content)

    def _run(self, command: Command) -> dict[str, object]:
        text = re.sub(r"(?<=[ =])/(tmp|srv)/", rf"{self.folder}/\1/", command.text)
        if GATEWAY.match(text) or text.endswith("&"):
            code, output = self._start(text)
        elif ENDLESS.match(text):
            code, output = self._watched(text)
        else:
            typed, _, comment = text.partition("  # ")
            code, output = self._until(typed.rstrip(), command, comment)
        return {**command._asdict(), "code": code, "output": output}

    def _start(self, text: str) -> tuple[int, str]:
        """Starts what stays, as in another terminal. A gateway has to become ready; it takes the place of the one before."""
        text = text.partition("  # ")[0].rstrip(" &")
        gateway = GATEWAY.match(text) is not None
        admin = int(found[1]) if (found := re.search(r"--admin \S+:(\d+)", text)) else 19000
        if gateway and admin == 19000:
            self.end(self.gateways)
        log = self.folder / "started.log"
        log.write_bytes(b"")  # a fork may not have opened it yet when it is read
        words = shlex.split(text)
        if Path(words[0]).name == "lasthop":
            process: Started = Forked(words[1:], self.cwd, log)
        else:
            with log.open("wb") as out:
                process = subprocess.Popen(words, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        (self.gateways if gateway else self.others).append(process)
        deadline = time.monotonic() + PATIENCE
        while gateway and process.poll() is None and time.monotonic() < deadline:
            address = f"http://127.0.0.1:{admin}/readyz"
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
                if answer.status == 200:
                    return 0, log.read_text()
            time.sleep(0.1)
        return (process.poll() or (1 if gateway else 0)), log.read_text()

    def _watched(self, text: str) -> tuple[int, str]:
        """Lets a command that ends only by Ctrl-C run for a moment."""
        ran = subprocess.run(
            ["timeout", "--signal=INT", "2", "bash", "-c", text],
            cwd=self.cwd,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        return (0 if ran.returncode in (124, 130) else ran.returncode), ran.stdout + ran.stderr

    def _until(self, text: str, command: Command, comment: str) -> tuple[int, str]:
        """Repeats a request until an edit before it is in force."""
        wanted = [line for line in command.shown if "…" not in line]
        if text.startswith("curl") and comment:
            status = re.match(r"\d{3}\b", comment)
            wanted = [f" {status[0]} " if status else comment]
        deadline = time.monotonic() + (PATIENCE if wanted else 0)
        while True:
            code, output = self._once(text)
            missing = [line for line in wanted if _undated(line.strip()) not in _undated(output)]
            if not missing or time.monotonic() > deadline:
                return code, output + "".join(f"\nMISSING: {line}" for line in missing)
            time.sleep(0.2)

    def _once(self, text: str) -> tuple[int, str]:
        if text.startswith("lasthop ") and not SHELL.search(text):
            return self._forked(shlex.split(text)[1:])
        place = self.folder / "cwd"
        script = f"{text.replace('curl ', 'curl -s ', 1)}\ncode=$?\npwd > {place}\nexit $code"
        ran = subprocess.run(["bash", "-c", script], cwd=self.cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.cwd = Path(place.read_text().strip())
        return ran.returncode, ran.stdout + ran.stderr

    def _forked(self, args: list[str]) -> tuple[int, str]:
        out = self.folder / "out"
        process = Forked(args, self.cwd, out)
        try:
            code = process.wait()
        except subprocess.TimeoutExpired as late:
            process.send_signal(signal.SIGKILL)
            return process.wait(), f"{out.read_text()}\n{late}"
        return code, out.read_text()


def main(folder: Path) -> None:
    bring_up()
    os.environ |= {"PATH": f"{BIN}:{os.environ['PATH']}", "LASTHOP_RUN_DIR": f"{folder}/r", "LASTHOP_STATE_DIR": f"{folder}/s"}
    os.environ |= {"NO_COLOR": "1", "BROWSER": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    walk = Walk(folder)
    for name in ("check", "audit", "run"):  # loads once what the forks would load each
        CliRunner().invoke(lasthop, [name, str(walk.work / "gateway"), *(["--help"] if name == "run" else [])])
    try:
        for page in sys.stdin:
            print(json.dumps(walk.page(ROOT / page.strip())), flush=True)
    finally:
        walk.end(walk.gateways)
        walk.end(walk.others)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
