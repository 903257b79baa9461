"""Connections go to the sockets of the new process alone, on a real kernel, also while those of the old one are closed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lasthop.edge.proxy import steering
from tests.ports import free_port

CLIENTS = 60
SERVER = """
import socket, sys
port, count = map(int, sys.argv[1:])
def listen():
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    made.listen(1000)
    made.setblocking(False)
    return made
sockets = [listen() for _ in range(count)]
print(count, flush=True)
for line in sys.stdin:
    if line == "close\\n":
        sockets.pop(0).close()
        print(len(sockets), flush=True)
    else:
        found = 0
        for each in sockets:
            try:
                while each.accept():
                    found += 1
            except BlockingIOError:
                pass
        print(found, flush=True)
"""


class Server:
    """A process that listens with several sockets on one port, as an Envoy with several workers does."""

    def __init__(self, port: int, count: int) -> None:
        command = [sys.executable, "-c", SERVER, str(port), str(count)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read()

    def read(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def tell(self, word: str) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.read()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def servers(port: int) -> Iterator[tuple[Server, Server]]:
    made = [Server(port, count) for count in (3, 3)]
    yield made[0], made[1]
    for server in made:
        server.process.kill()
        server.process.communicate()


def connect(port: int, stack: contextlib.ExitStack) -> None:
    for _ in range(CLIENTS):
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))


def test_no_connection_goes_to_the_old_process_while_it_closes_one_socket_after_the_other(
    servers: tuple[Server, Server], port: int
) -> None:
    old, new = servers
    with contextlib.ExitStack() as stack:
        assert steering.steer(new.process.pid, old.process.pid)
        connect(port, stack)
        assert (old.tell("accept"), new.tell("accept")) == (0, CLIENTS)
        assert steering.steer(new.process.pid, old.process.pid, to_one=True)
        for left in (2, 1, 0):
            connect(port, stack)
            assert old.tell("close") == left
            connect(port, stack)
            assert (old.tell("accept"), new.tell("accept")) == (0, 2 * CLIENTS)


def test_afterwards_the_kernel_deals_them_out_again(servers: tuple[Server, Server], port: int) -> None:
    old, new = servers
    assert steering.steer(new.process.pid, old.process.pid, to_one=True)
    steering.release(new.process.pid)
    with contextlib.ExitStack() as stack:
        connect(port, stack)
        assert old.tell("accept") > 0


def test_there_is_nothing_to_steer_from_a_process_that_is_gone(servers: tuple[Server, Server]) -> None:
    old, new = servers
    old.process.kill()
    old.process.wait()
    assert not steering.steer(new.process.pid, old.process.pid)
