"""SVG from cards, lines and words: enough for docs/pictures.py. Colours follow the reader's light or dark scheme."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from html import escape
from typing import Final, Literal, NamedTuple

Tone = Literal["plain", "accent", "ok", "bad", "warn"]

LIGHT: Final = {
    "ground": "#ffffff",
    "edge": "#d0d7de",
    "ink": "#1f2328",
    "soft": "#57606a",
    "plain": "#57606a #f6f8fa",
    "accent": "#3b4cb8 #eef0fc",
    "ok": "#1a7f37 #e6f6ea",
    "bad": "#c9252d #fdeceb",
    "warn": "#8a5d00 #fdf5d6",
}
DARK: Final = {
    "ground": "#12161c",
    "edge": "#363d47",
    "ink": "#e8edf3",
    "soft": "#a1a9b3",
    "plain": "#a1a9b3 #1c222a",
    "accent": "#9aa8ff #1e2443",
    "ok": "#4cc465 #14291d",
    "bad": "#ff7168 #331a1b",
    "warn": "#e0ac35 #2d2512",
}
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
TITLE: Final = 15
BODY: Final = 13
EM: Final = 0.57
"""Width of a character beside its height, on the safe side: readers have different fonts."""
PAD: Final = 14


def _rules(colours: dict[str, str]) -> str:
    rules = [f".ground{{fill:{colours['ground']};stroke:{colours['edge']}}}"]
    rules += [f".{name}{{fill:{colours[name]}}}" for name in ("ink", "soft")]
    for tone in ("plain", "accent", "ok", "bad", "warn"):
        strong, faint = colours[tone].split()
        rules += [f".{tone}-line{{stroke:{strong}}}", f".{tone}-word{{fill:{strong}}}"]
        rules += [f".{tone}-card{{fill:{faint};stroke:{strong}}}"]
    return "".join(rules)


STYLE: Final = (
    f"text{{font-family:{FONT}}}.title{{font-size:{TITLE}px;font-weight:600}}.body{{font-size:{BODY}px}}"
    f"path,line,polyline{{fill:none}}{_rules(LIGHT)}@media(prefers-color-scheme:dark){{{_rules(DARK)}}}"
)


class Card(NamedTuple):
    title: str
    body: str = ""
    """Words to be wrapped; a newline begins another line."""
    tone: Tone = "plain"

    def lines(self, width: float) -> list[str]:
        return wrapped(self.body, width - 2 * PAD)

    def height(self, width: float) -> float:
        lines = len(self.lines(width))
        return 2 * PAD + TITLE - 2 + (lines * (BODY + 5) + 5 if lines else 0)


def wrapped(words: str, width: float) -> list[str]:
    return [line for part in words.splitlines() for line in textwrap.wrap(part, int(width / (BODY * EM)))]


class Picture:
    def __init__(self, width: float, title: str) -> None:
        self.width, self.title = width, title
        self._parts: list[str] = []
        self._bottom = 0.0

    def card(self, x: float, y: float, width: float, card: Card, height: float = 0) -> float:
        """Draws a card and returns its lower edge."""
        height = height or card.height(width)
        self._area(x, y, width, height, card.tone)
        self.words(x + PAD, y + PAD + TITLE - 3, card.title, f"title {card.tone if card.tone != 'plain' else 'ink'}")
        for number, line in enumerate(card.lines(width)):
            self.words(x + PAD, y + PAD + TITLE + 4 + (number + 0.75) * (BODY + 5), line)
        return y + height

    def words(self, x: float, y: float, text: str, style: str = "body soft", anchor: str = "start") -> None:
        size, _, tone = style.partition(" ")
        word = tone if tone in ("ink", "soft") else f"{tone}-word"
        self._parts.append(f'<text class="{size} {word}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')
        self._reach(y + 4)

    def point(self, x: float, y: float, title: str, body: str) -> None:
        """Writes a line of a list whose points all hold."""
        parts = (("title ok-word", "✓"), ("title ink", title), ("body soft", body))
        words = " ".join(f'<tspan class="{style}">{escape(text)}</tspan>' for style, text in parts)
        self._parts.append(f'<text x="{x:g}" y="{y:g}">{words}</text>')
        self._reach(y + 4)

    def line(self, points: Iterable[tuple[float, float]], tone: Tone = "plain", *, width: float = 2) -> None:
        """Draws a line with an arrow at its end."""
        path = list(points)
        (x0, y0), (x1, y1) = path[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        ux, uy, size = (x1 - x0) / length, (y1 - y0) / length, 5 + width
        along = " ".join(f"{x:g},{y:g}" for x, y in (*path[:-1], (x1 - ux * size, y1 - uy * size)))
        self._parts.append(
            f'<polyline class="{tone}-line" points="{along}" stroke-width="{width:g}" stroke-linejoin="round"/>'
        )
        sides = ((x1 - ux * size * 1.6 + sign * uy * size, y1 - uy * size * 1.6 - sign * ux * size) for sign in (1, -1))
        tip = " ".join(f"{x:.4g},{y:.4g}" for x, y in ((x1, y1), *sides))
        self._parts.append(f'<polygon class="{tone}-word" points="{tip}"/>')
        self._reach(max(y for _, y in path))

    def bar(self, x: float, y: float, width: float, height: float, tone: Tone, text: str) -> None:
        """Draws a stretch of time with its name in it."""
        self._area(x, y, width, height, tone)
        self.words(x + width / 2, y + height / 2 + BODY / 2 - 2, text, f"body {tone}", "middle")

    def dot(self, x: float, y: float, tone: Tone) -> None:
        self._parts.append(f'<circle class="{tone}-word" cx="{x:g}" cy="{y:g}" r="3.5"/>')

    def disc(self, x: float, y: float, radius: float, tone: Tone) -> None:
        self._parts.append(f'<circle class="{tone}-card" cx="{x:g}" cy="{y:g}" r="{radius:g}" stroke-width="2.5"/>')

    def padlock(self, x: float, y: float, tone: Tone) -> None:
        """Draws a padlock around a point."""
        self._parts.append(f'<path class="{tone}-line" d="M{x - 6:g} {y - 3:g}v-5a6 6 0 0 1 12 0v5" stroke-width="2.5"/>')
        self._parts.append(f'<rect class="{tone}-word" x="{x - 10:g}" y="{y - 4:g}" width="20" height="15" rx="3"/>')

    def svg(self) -> str:
        width, height = self.width, self._bottom + 20
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}"'
            f' viewBox="0 0 {width:g} {height:g}">\n<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n'
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="12"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )

    def _area(self, x: float, y: float, width: float, height: float, tone: Tone) -> None:
        size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect class="{tone}-card" {size} rx="8" stroke-width="1.5"/>')
        self._reach(y + height)

    def _reach(self, y: float) -> None:
        self._bottom = max(self._bottom, y)
