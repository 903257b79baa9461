"""The output of `lasthop run` on a terminal: served URLs, failures, effects of edits, and the drain."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop


class Terminal:
    """Reads a pseudo-terminal that is both outputs of the process."""

    def __init__(self, lasthop: Lasthop, *args: str) -> None:
        self._master, slave = pty.openpty()
        command = [*lasthop.executable, "run", lasthop.folder, "--admin", f"127.0.0.1:{lasthop.admin}", *lasthop.args, *args]
        lasthop.process = subprocess.Popen(command, stdout=slave, stderr=slave, env={**lasthop.env, "NO_COLOR": "1"})
        os.close(slave)
        self._read = bytearray()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while piece := os.read(self._master, 1 << 16):
                self._read += piece
        except OSError:
            pass  # the other end is closed

    @property
    def lines(self) -> list[str]:
        return bytes(self._read).decode(errors="replace").replace("\r", "").splitlines()

    def wait_for(self, pattern: str) -> str:
        def printed() -> str:
            matches = [line for line in self.lines if re.search(pattern, line)]
            assert matches, "\n".join(self.lines)
            return matches[0]

        return until(printed)


@pytest.fixture
def shop(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> Iterator[Lasthop]:
    lasthop, right, wrong = own(), serve(issued()), serve(issued("old.example"))
    lasthop.standard()
    lasthop.write(
        "shop.yaml",
        docs.config_map("ca", CA.pem),
        *docs.hop("right", right.port, docs.policy("right", "api.example", "ca")),
        *docs.hop("wrong", wrong.port, docs.policy("wrong", "api.example", "ca")),
    )
    yield lasthop


def test_a_person_sees_where_it_serves_what_fails_and_what_an_edit_changed(shop: Lasthop) -> None:
    terminal = Terminal(shop)
    ready = terminal.wait_for("ready: ")
    assert f"http://right.test:{shop.port}" in ready and "2 must be verified" in ready
    until(lambda: shop.get("right").status == 200)
    assert [shop.get("wrong").status for _ in range(30)] == [503] * 30
    failed = terminal.wait_for(" 503 ")
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d 503 GET wrong.test/ -> shop/wrong:443 127.0.0.1:\d+  certificate is for old.example, policy "
        r"shop/wrong wants api.example  \(lasthop probe shop/wrong\)",
        failed,
    )
    shop.write("more.yaml", docs.policy("first", "api.example", "ca"))
    changed = terminal.wait_for("must now be")
    assert re.search(r"shop/first:443 must now be verified \(was plaintext\): CA .+, for api.example", changed)
    assert shop.get("first").status == 503
    terminal.wait_for("503 GET first.test/ -> shop/first:443 127.0.0.1:9  connection refused")  # so all before it are read
    assert shop.process
    shop.process.send_signal(signal.SIGINT)
    assert shop.process.wait(30) == 0
    terminal.wait_for("draining: requests in flight have up to 10 s; press Ctrl-C again to stop immediately")
    terminal.wait_for(r"and 29 more in \d+ s: 503 -> shop/wrong:443  certificate is for old.example")
    assert sum(" 503 GET wrong" in line for line in terminal.lines) == 1
    assert not any("\x1b" in line for line in terminal.lines), "NO_COLOR is set"


def test_a_folder_without_a_gateway_has_a_clear_error(own: Callable[..., Lasthop]) -> None:
    terminal = Terminal(own())
    terminal.wait_for("not ready yet: nothing is served: no Gateway has a GatewayClass of this controller")


def test_every_request_can_be_logged(shop: Lasthop) -> None:
    terminal = Terminal(shop, "--access-log", "all", "-v")
    terminal.wait_for("ready: ")
    until(lambda: shop.get("right").status == 200)
    logged = terminal.wait_for("200 GET right.test")
    assert re.search(r"200 GET right.test/ -> shop/right:443 127.0.0.1:\d+  \d+ ms", logged), logged
    assert shop.get("nobody").status == 404
    assert "404 GET nobody.test/ -> no route" in terminal.wait_for("404 GET nobody")
    terminal.wait_for(r"debug +\] acknowledged")


def test_what_is_not_to_be_logged_is_not_and_a_profile_decides(shop: Lasthop) -> None:
    terminal = Terminal(shop, "--access-log", "off", "--log-format", "json")
    terminal.wait_for('"event": ?"ready: ')
    assert shop.get("wrong").status == 503
    profile = docs.obj(docs.OWN_API, "GatewayProfile", "told", spec={"proxy": {"accessLog": "Failures"}})
    shop.standard(**docs.with_profile("told"))
    shop.load("profile.yaml", profile)

    def told() -> bool:
        shop.get("wrong", headers={"x-request-id": "after"})
        return any('"request_id":"after"' in line for line in terminal.lines)

    until(told)
    # The last line may have been read in part; a line that must not appear would stay.
    until(lambda: not any('"authority":"wrong.test"' in line for line in terminal.lines if '"after"' not in line))
