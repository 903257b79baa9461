"""The site's first screen shows the hop and the one-line start whole, in a browser as wide as a phone and a desktop.

`make site` runs this; without MkDocs, which only that target installs, it is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import site
from tests.web import browser

pytest.importorskip("mkdocs")
pytestmark = pytest.mark.program("chromium")

START = "lasthop run --to"
MEASURED = f"""
(() => {{
  const box = each => {{ const r = each.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom] }}
  const picture = document.querySelector('picture img')
  const code = [...document.querySelectorAll('pre code')].find(each => each.textContent.includes({START!r}))
  const shown = document.scrollingElement
  return {{
    scheme: document.body.dataset.mdColorScheme,
    picture: box(picture), drawn: picture.complete && picture.naturalWidth > 0, start: box(code),
    cut: code.scrollWidth - code.clientWidth, overflow: shown.scrollWidth - shown.clientWidth,
  }}
}})()
"""


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("site")
    site.build(target)
    (page,) = target.glob("*/index.html")
    return page.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1400, 900)], ids=["phone", "desktop"])
async def test_the_hop_and_the_one_line_start_are_whole_in_the_first_screen(
    front: str, width: int, height: int, dark: bool, chromium: str, tmp_path: Path
) -> None:
    async with browser.opened(chromium, "about:blank") as page:
        await page.resize(width, height, dark=dark, mobile=width < 600)
        await page.open(front)
        await page.evaluate("localStorage.clear()")  # the theme keeps the scheme of its first visit
        await page.open(front)
        await page.until("document.querySelector('picture img').naturalWidth > 0")
        found = await page.evaluate(MEASURED)
        (tmp_path / "first-screen.png").write_bytes(await page.screenshot())
    assert found["scheme"] == ("slate" if dark else "default")
    assert found["drawn"]
    assert (found["overflow"], found["cut"]) == (0, 0)
    for part in ("picture", "start"):
        left, top, right, bottom = found[part]
        assert 0 <= left < right <= width and 0 <= top < bottom <= height, f"{part}: {found[part]}"
        assert right - left > width * 0.5, f"{part} is smaller than half of the page"
