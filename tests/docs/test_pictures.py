"""The pictures of the documentation are current, and can be read in light and dark, on a wide page and on a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import pictures
from docs.drawing import BODY, DARK, LIGHT
from tests.web import browser

SMALLEST = 11
"""Pixels of a letter on a phone."""
PHONE = 358
"""The width that a phone of 390 px has for a picture."""
FAULTS = """
(() => {
  const box = each => { const r = each.getBoundingClientRect(); return {l: r.left, t: r.top, r: r.right, b: r.bottom} }
  const texts = [...document.querySelectorAll('text')].map(each => ({words: each.textContent, ...box(each)}))
  const areas = [...document.querySelectorAll('rect')].map(box)
  const faults = []
  for (const text of texts) {
    const middle = (text.t + text.b) / 2
    // The smallest area in which a text begins is its own.
    const around = areas.filter(a => a.l <= text.l + 1 && text.l < a.r && a.t <= middle && middle <= a.b)
      .sort((a, b) => (a.r - a.l) * (a.b - a.t) - (b.r - b.l) * (b.b - b.t))[0]
    if (!around || text.r > around.r - 4 || text.b > around.b) faults.push(`sticks out: ${text.words}`)
    for (const other of texts)
      if (other !== text && text.l < other.r && other.l < text.r && text.t + 2 < other.b && other.t + 2 < text.b)
        faults.push(`overlaps: ${text.words} and ${other.words}`)
  }
  return faults
})()
"""


def test_pictures_are_current() -> None:
    assert [path.name for path, text in pictures.drawn().items() if not path.exists() or path.read_text() != text] == [], (
        "run: make docs"
    )


@pytest.mark.program("chromium")
async def test_no_text_sticks_out_of_its_card_or_overlaps_another(chromium: str) -> None:
    async with browser.opened(chromium, "about:blank") as page:
        for path in pictures.drawn():
            await page.open(f"file://{path}")
            assert await page.evaluate(FAULTS) == [], path.name


def test_letters_on_a_phone_are_large_enough() -> None:
    widths = [float(found[1]) for text in pictures.drawn().values() if (found := re.search(r'viewBox="0 0 ([\d.]+)', text))]
    narrow = [width for width in widths if width < 500]
    assert len(narrow) == len(pictures.PICTURES)
    assert [width for width in narrow if BODY * PHONE / width < SMALLEST] == []


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(colours: dict[str, str]) -> None:
    """By WCAG AA: 4.5 to 1."""
    tones = [colours[tone].split() for tone in ("plain", "accent", "ok", "bad", "warn")]
    pairs = [(strong, ground) for strong, faint in tones for ground in (faint, colours["ground"])]
    pairs += [(colours[ink], faint) for ink in ("ink", "soft") for _, faint in tones]
    assert [(word, ground) for word, ground in pairs if contrast(word, ground) < 4.5] == []


def test_every_picture_is_on_a_page(root: Path = Path(__file__).parents[2]) -> None:
    pages = [path.read_text() for path in (*root.glob("*.md"), *root.glob("docs/*.md"))]
    assert [path.name for path in pictures.drawn() if not any(f"images/{path.name}" in page for page in pages)] == []
