"""Watches some hosts while the CA of all is rotated."""

from __future__ import annotations

import threading
import time
from collections import Counter

from bench.probe import Probe

SERVED_WITHIN = 180.0


class Sampler(threading.Thread):
    """Requests all its hosts until each is served over a new connection: a changed cluster never uses an old one."""

    def __init__(self, probe: Probe, hosts: list[str]) -> None:
        super().__init__(daemon=True)
        self._probe = probe
        self._connections = {host: probe.ask(host).connection for host in hosts}
        self.last = 0.0
        self.error: Exception | None = None

    @property
    def seen(self) -> Counter[int]:
        return self._probe.seen

    def run(self) -> None:
        end = time.perf_counter() + SERVED_WITHIN
        waiting = dict(self._connections)
        try:
            while waiting:
                for host, connection in list(waiting.items()):
                    answer = self._probe.ask(host)
                    if answer.status == 200 and answer.connection != connection:
                        self.last = answer.at
                        del waiting[host]
                if time.perf_counter() > end:
                    raise RuntimeError(f"the shared CA is not effective after {SERVED_WITHIN:.0f} s for {', '.join(waiting)}")
                time.sleep(0.002)
        except Exception as error:
            self.error = error
        finally:
            self._probe.close()
