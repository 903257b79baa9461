"""Draws the pictures of the documentation into docs/images/ (`make docs`): each for a wide page and for a phone.

A test fails if they are out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from docs.drawing import Card, Picture, Tone

IMAGES: Final = Path(__file__).parent / "images"
WIDE: Final = 860
NARROW: Final = 380
EDGE: Final = 20
"""Between a picture's border and what is in it."""
GAP: Final = 34
"""Between two cards, with an arrow in it."""

CHECKS: Final = (
    ("chain", "issued by the CA you name"),
    ("name", "it is for api.example"),
    ("dates", "valid now"),
    ("SNI, version", "as the policy says"),
)


def hop(wide: bool) -> Picture:
    """The hop from the gateway to a backend, and the checks on it."""
    picture = Picture(WIDE if wide else NARROW, "The hop from the gateway to a backend, and what is checked on it")
    client, backend = Card("Client"), Card("Backend", "a Service's port", "accent")
    gateway = Card("Gateway", "Lasthop + Envoy", "accent")
    passed = Card("Everything holds: 200", "The client gets the backend's answer.", "ok")
    failed = Card("Anything wrong: 5xx", "No plaintext; log and status show why.", "bad")
    if wide:
        picture.card(EDGE, 58, 92, client)
        picture.line([(EDGE + 92, 79), (186, 79)])
        picture.words(149, 68, "HTTP(S)", anchor="middle")
        picture.card(186, 47, 160, gateway)
        picture.card(680, 47, 160, backend)
        picture.line([(346, 79), (680, 79)], "ok", width=6)
        picture.words(513, 42, "TLS, by your BackendTLSPolicy", "title ok", "middle")
        _seal(picture, 513, 79)
        for number, check in enumerate(CHECKS):
            picture.point(186 + number % 2 * 332, 146 + number // 2 * 30, *check)
        picture.card(EDGE, 204, 402, passed)
        picture.card(438, 204, 402, failed)
        return picture
    picture.card(EDGE, 30, 92, client)
    picture.line([(112, 51), (190, 51)])
    picture.words(149, 40, "HTTP(S)", anchor="middle")
    picture.card(190, EDGE, 170, gateway)
    picture.line([(336, 84), (336, 222)], "ok", width=6)
    _seal(picture, 336, 146)
    picture.words(EDGE, 110, "TLS, by your BackendTLSPolicy", "title ok")
    for number, check in enumerate(CHECKS):
        picture.point(EDGE, 136 + number * 23, *check)
    picture.card(190, 222, 170, backend)
    bottom = picture.card(EDGE, 300, NARROW - 2 * EDGE, passed._replace(body=""))
    picture.card(EDGE, bottom + 8, NARROW - 2 * EDGE, failed._replace(title=f"{failed.title}, no plaintext", body=""))
    return picture


def _seal(picture: Picture, x: float, y: float) -> None:
    picture.disc(x, y, 19, "ok")
    picture.padlock(x, y, "ok")


def _row(picture: Picture, cards: tuple[Card, ...], y: float, wide: bool) -> float:
    """Draws cards one after the other, with arrows: in a row, or for a phone in a column."""
    if not wide:
        for number, card in enumerate(cards):
            if number:
                picture.line([(NARROW / 2, y), (NARROW / 2, y + GAP - 6)])
                y += GAP - 6
            y = picture.card(EDGE, y, NARROW - 2 * EDGE, card)
        return y
    width = (WIDE - 2 * EDGE - GAP * (len(cards) - 1)) / len(cards)
    height = max(card.height(width) for card in cards)
    for number, card in enumerate(cards):
        x = EDGE + number * (width + GAP)
        picture.card(x, y, width, card, height)
        if number:
            picture.line([(x - GAP, y + height / 2), (x, y + height / 2)])
    return y + height


def waiver(wide: bool) -> Picture:
    """The life of a VerificationWaiver."""
    picture = Picture(WIDE if wide else NARROW, "The life of a waiver: written, permitted, in force, ended")
    stations = (
        Card("Written", "A team's policy names a VerificationWaiver: which check, why, whose, until when.", "accent"),
        Card("Permitted", "The operator's GatewayProfile allows waivers. Otherwise: 500.", "accent"),
        Card("In force", "Encrypted, and not fully verified. Status, audit, page and metrics show it.", "warn"),
        Card("Ended", "On its date the route answers 500, also while no controller runs.", "bad"),
    )
    bottom = _row(picture, stations, EDGE, wide)
    way_out = Card("The way out, at any time", "Fix the certificate or pin it, and delete the waiver: verified again.", "ok")
    picture.card(EDGE, bottom + 16, picture.width - 2 * EDGE, way_out)
    return picture


def imported(wide: bool) -> Picture:
    """Draws a backend of an Ingress: the verification that its annotations suggest, the real one before, and the one now."""
    picture = Picture(WIDE if wide else NARROW, "An import: what was verified, what seemed to be, and what is now")
    columns = (
        Card("SEEMED: verified", 'The Ingress says\nproxy-ssl-verify: "on".', "plain"),
        Card("WAS: unverified", "Without proxy-ssl-secret nginx ignores it: any certificate would do.", "bad"),
        Card("IS NOW: closed", "A BackendTLSPolicy that fails closed until you decide, in writing.", "accent"),
    )
    answers = (
        Card("a CA", "verified: chain, name and dates", "ok"),
        Card("a pin", "verified: exactly this certificate or key", "ok"),
        Card("a waiver", "encrypted only: with a reason and an end", "warn"),
    )
    bottom = _row(picture, columns, EDGE, wide)
    y = bottom + 34
    picture.words(EDGE, y, "Then you decide, port by port:", "title ink")
    y += 16
    width = (picture.width - 2 * EDGE - 2 * 16) / 3 if wide else NARROW - 2 * EDGE
    height = max(answer.height(width) for answer in answers)
    for number, answer in enumerate(answers):
        if wide:
            picture.card(EDGE + number * (width + 16), y, width, answer, height)
        else:
            y = picture.card(EDGE, y, width, answer) + 10
    return picture


def restart(wide: bool) -> Picture:
    """A restart of Lasthop while its Envoy serves on."""
    picture = Picture(WIDE if wide else NARROW, "A restart of Lasthop: Envoy serves on, no request is lost")
    left = 120 if wide else EDGE
    right = picture.width - EDGE
    length = right - left
    end, start = left + 0.42 * length, left + 0.60 * length
    step = 58 if wide else 74

    def lane(number: int, name: str) -> float:
        y = (EDGE if wide else 44) + number * step
        picture.words(EDGE, y + 21 if wide else y - 8, name, "title ink")
        return y

    y = lane(0, "Lasthop")
    picture.bar(left, y, end - left, 32, "accent", "old version")
    picture.bar(start, y, right - start, 32, "accent", "new version")
    picture.words((end + start) / 2, y + 21, "restart", "body soft", "middle")
    y = lane(1, "Envoy")
    picture.bar(
        left,
        y,
        length,
        32,
        "ok",
        "the same process: ports and connections stay open" if wide else "the same process, ports stay open",
    )
    picture.line([(start + 14, y - step + 32), (start + 14, y)], "accent")
    picture.words(start + 26, y - 8, "adopts it, sends what differs" if wide else "adopts it", "body accent")
    y = lane(2, "Requests")
    count = 44 if wide else 24
    for number in range(count):
        picture.dot(left + (number + 0.5) * length / count, y + 10, "ok")
    picture.words(
        left,
        y + 40,
        "every one answered" + (": run --replace, run --handover, SIGHUP, systemctl restart" if wide else ""),
        "body ok",
    )
    if not wide:
        picture.words(left, y + 60, "run --replace, run --handover, SIGHUP")
    return picture


ROOMS: Final[tuple[tuple[str, str, Tone], ...]] = (
    ("cli", "commands, their arguments and their rendering; no rules", "plain"),
    ("web", "the admin API, the page and the webhook", "plain"),
    ("run", "compositions, and the only long-lived tasks", "plain"),
    ("edge", "adapters, one protocol each: files, Kubernetes, xDS, Envoy", "plain"),
    ("engine", "pure: objects in; Envoy's resources, statuses and findings out", "accent"),
    ("base", "values and parsing: API kinds, X.509, text", "plain"),
)
IMPORTER: Final = ("lasthop_import", "other gateways' objects, read and judged")


def rooms(wide: bool) -> Picture:
    """The rooms of the source; imports go downwards."""
    picture = Picture(WIDE if wide else NARROW, "Six rooms: cli, web, run, edge, engine, base; imports go downwards only")
    width, y = (600 if wide else NARROW - 2 * EDGE), float(EDGE)
    tops: dict[str, float] = {}
    for name, sentence, tone in ROOMS:
        tops[name] = y
        if wide:
            picture.card(EDGE, y, width, Card(name, "", tone), 44)
            picture.words(EDGE + 92, y + 27, sentence)
            y += 44 + 10
        else:
            y = picture.card(EDGE, y, width, Card(name, sentence, tone)) + 10
    name, sentence = IMPORTER
    if not wide:
        picture.card(EDGE, y + 14, width, Card(name, f"{sentence}; uses edge (admission), engine and base"))
        return picture
    picture.words(750, tops["cli"] + 27, "imports go downwards", anchor="middle")
    bottom = picture.card(660, tops["web"], 180, Card(name, sentence))
    for room in ("edge", "engine", "base"):
        picture.line([(750, bottom), (750, tops[room] + 22), (620, tops[room] + 22)])
    return picture


PICTURES: Final[dict[str, Callable[[bool], Picture]]] = {
    "hop": hop,
    "waiver": waiver,
    "import": imported,
    "restart": restart,
    "rooms": rooms,
}


def drawn() -> dict[Path, str]:
    """Returns every picture's file and text."""
    return {
        IMAGES / f"{name}{suffix}.svg": draw(wide).svg()
        for name, draw in PICTURES.items()
        for suffix, wide in (("", True), ("-narrow", False))
    }
