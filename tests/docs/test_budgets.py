"""The table of budgets has the numbers that hold."""

from __future__ import annotations

from pathlib import Path

from lasthop.edge.observe.observations import EXPIRES, MAX_PROXIES
from lasthop.edge.slices import SHARE
from lasthop.edge.xds import budget
from lasthop.run.stalls import STALL
from lasthop.web import answers, reviews, webhook

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
TEXT = DOCUMENT.read_text().partition("## Budgets of peers")[2].partition("\n## ")[0]
KIB, MIB = 1024, 1024 * 1024


def test_the_table_of_budgets_has_the_numbers_that_hold() -> None:
    numbers = (
        f"{budget.MAX_STREAMS} streams",
        f"{budget.BASE // KIB} KiB",
        f"{budget.PER_NAME} bytes for each name",
        f"{budget.ALLOWANCE:,} names beyond",
        f"in all streams {budget.MAX_EXCESS:,}",
        f"{budget.LONGEST_NAME:,} characters",
        f"{budget.RATE:,.0f} requests a second after {budget.BURST:,.0f}",
        f"{budget.UNIT // KIB} KiB count",
        f"a new stream as {budget.STREAM:.0f}",
        f"a refusal of configuration as {budget.REFUSAL:.0f}",
        f"{budget.MAX_UNCONFIRMED:,} responses",
        f"{budget.PER_HOP // KIB} KiB for each hop",
        f"at most {budget.MAX_REQUEST // MIB} MiB",
        f"{budget.REPORT_RATE / MIB:.0f} MiB a second",
        f"after {budget.REPORT_BURST / MIB:.0f} MiB at once",
        f"{budget.READING} read at a time, {budget.QUEUE} waiting",
        f"{MAX_PROXIES} proxies",
        f"expire {EXPIRES:.0f} s after",
        f"{webhook.CONNECTIONS_EACH} connections, in all {webhook.CONNECTIONS}",
        f"{reviews.WAITING} waiting unread; addresses",
        f"{reviews.READ_EACH} reviews in memory, in all {reviews.READ}",
        f"has {reviews.WITHIN:.0f} s",
        f"{reviews.LARGEST // MIB} MiB for a review, {reviews.LARGEST_OBJECT // MIB} MiB for an object",
        f"{answers.QUESTIONS} different ones",
        f"more than {STALL:.0f} s",
    )
    assert [number for number in numbers if number not in TEXT] == []
    assert SHARE == 5 and "a fifth of a core" in TEXT
