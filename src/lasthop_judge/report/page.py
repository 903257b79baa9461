"""The report as one HTML page, which needs nothing else."""

from __future__ import annotations

from pathlib import Path

import jinja2

from lasthop_judge.model import Outcome
from lasthop_judge.objects import as_yaml
from lasthop_judge.report.document import RunReport
from lasthop_judge.report.text import summary


def as_html(report: RunReport) -> str:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((Path(__file__).parent / "page.html").read_text())
    return template.render(report=report, summary=summary(report), outcomes=list(Outcome), as_yaml=as_yaml)
