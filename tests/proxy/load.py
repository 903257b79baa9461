"""Clients that send requests continuously, and their responses with times."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.backends import until
from tests.proxy.lasthop import Lasthop

WORKERS_AGREE = 0.3
"""Seconds that the last of Envoy's workers may need after the first to take over a change, on a busy machine."""


class Taken(NamedTuple):
    start: float
    end: float
    what: tuple[int, str] | str
    """(status, body), or the error."""


class Load:
    """Two clients that send requests for the host NAME.test continuously, on a keep-alive connection or on new ones."""

    def __init__(self, gateway: Lasthop, name: str, clients: int = 2, *, keep_alive: bool = True) -> None:
        self._gateway, self._name, self._keep_alive = gateway, name, keep_alive
        self._stop = threading.Event()
        self.taken: list[Taken] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _ask(self) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._gateway.port, timeout=10)) as connection:
            while not self._stop.is_set():
                start = time.monotonic()
                try:
                    connection.request("GET", "/", headers={"Host": f"{self._name}.test"})
                    response = connection.getresponse()
                    what: tuple[int, str] | str = (response.status, response.read().decode())
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    what = repr(error)
                self.taken.append(Taken(start, time.monotonic(), what))
                if not self._keep_alive:
                    connection.close()
                time.sleep(0.002)  # the point is to meet every moment of a change, not to fill the machine

    def more(self, count: int = 20) -> None:
        """Waits for requests that start from now on."""
        now = time.monotonic()
        until(lambda: sum(taken.start > now for taken in list(self.taken)) >= count, "requests go on")

    def seen(self, since: float = 0.0) -> set[tuple[int, str] | str]:
        """Answers to requests that started after a moment."""
        return {taken.what for taken in list(self.taken) if taken.start >= since}

    def now(self) -> set[tuple[int, str] | str]:
        """Answers to the next requests: enough of them to have one of each endpoint, if there are two."""
        began = time.monotonic()
        self.more()
        return self.seen(since=began)

    def change(self, edit: Callable[[], object], after: tuple[int, str]) -> float:
        """Makes an edit that turns every answer into `after`, and nothing else on the way. Returns the seconds it took.

        Before the effect is first seen, responses are the earlier ones or the effect. Afterwards, only the effect.
        """
        before = self.now()
        began = time.monotonic()
        edit()
        first: Taken = until(
            lambda: next((t for t in list(self.taken) if t.start > began and t.what == after), None), f"{after}"
        )
        self.more()
        assert self.seen(since=began) <= before | {after}
        late = self.seen(since=first.end + WORKERS_AGREE)
        assert late <= {after}, f"{late - {after}} after {after} was seen"
        time.sleep(WORKERS_AGREE)
        self.more()
        return first.end - began

    def no_change(self, edit: Callable[[], object]) -> None:
        before = self.now()
        began = time.monotonic()
        edit()
        self.more(50)
        assert self.seen(since=began) == before
