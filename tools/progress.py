"""Shows the progress of a long task: one changing line on a terminal, and a line each 30 seconds in CI logs."""

from __future__ import annotations

import sys
import time


class Progress:
    def __init__(self, label: str) -> None:
        self.label = label
        self.started = self.last = time.monotonic()
        self.terminal = sys.stdout.isatty()

    def say(self, text: str) -> None:
        elapsed = time.monotonic() - self.started
        clear = "\r\033[K" if self.terminal else ""
        print(f"{clear}{self.label}: {text} ({elapsed:.0f} s)", flush=True)

    def step(self, text: str) -> None:
        now = time.monotonic()
        if self.terminal:
            print(f"\r\033[K{self.label}: {text} ({now - self.started:.0f} s)"[:150], end="", flush=True)
        elif now - self.last >= 30:
            self.last = now
            self.say(text)
