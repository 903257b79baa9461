"""The documentation is true: what can be generated is current, what cannot is complete, and every example passes `check`."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml
from click.testing import CliRunner

from lasthop.base.api.kinds import KINDS
from lasthop.base.api.unserved import Unserved
from lasthop.cli.main import main
from lasthop.edge.admission import limits
from lasthop.engine.outputs.envoy.access_log import FIELDS
from lasthop.engine.plan import reasons
from lasthop.engine.resolve.gateways.telemetry import KNOWN_ATTRIBUTES
from lasthop.web import app
from tests.docs import code
from tests.docs.pages import CA, DOCS, PAGES, ROOT, Block, Document, blocks, links, put, table_under
from tests.folders import BASE

REFERENCE = DOCS / "reference.md"
HOW_TO = DOCS / "how-to.md"
TUTORIAL = DOCS / "tutorial.md"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lasthop(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(arg) for arg in args], prog_name="lasthop")
    return result.exit_code, result.output


# --- the reference ---------------------------------------------------------------------------------------------------


def test_generated_parts_are_current() -> None:
    generate = generator()
    assert [page.name for page in generate.PAGES if generate.generated(page) != page.read_text()] == [], "run: make docs"


def test_every_reason_of_a_condition_is_explained_and_no_other() -> None:
    explained = {row[0].strip("`") for row in table_under(REFERENCE, "### Reasons of conditions")}
    assert explained == reasons.CONDITION_REASONS


def test_every_type_of_a_condition_is_explained_and_no_other() -> None:
    explained = {row[1].strip("`") for row in table_under(REFERENCE, "## Conditions")}
    assert explained == code.condition_types()


def test_every_reason_of_a_finding_is_explained() -> None:
    """Of those that only findings have; the others are bad news of conditions, which are explained with these."""
    explained = {row[0].strip("`") for row in table_under(REFERENCE, "## Findings")}
    assert explained == {reason for reason, kind in reasons.REASONS.items() if kind.means}
    assert reasons.REASONS.keys() == explained | reasons.CONDITION_REASONS


def test_every_reason_is_used() -> None:
    assert reasons.REASONS.keys() == code.used_reasons()


def test_every_environment_variable_is_explained() -> None:
    explained = REFERENCE.read_text()
    assert code.environment_variables()
    assert not [name for name in code.environment_variables() if f"`{name}`" not in explained and f"${name}" not in explained]


def test_every_name_of_ours_is_explained() -> None:
    explained = REFERENCE.read_text()
    assert not [name for name in code.own_names() if f"`{name}" not in explained]


def test_every_metric_is_explained() -> None:
    explained = (DOCS / "prometheus.md").read_text()
    assert len(code.metrics()) > 10
    assert not [name for name in code.metrics() if name not in explained]


def test_every_metric_that_a_query_names_exists() -> None:
    page = DOCS / "prometheus.md"
    queries = [query for _, query in table_under(page, "## Queries to begin with")]
    named = {re.sub(r"_bucket$", "", name) for query in queries for name in re.findall(r"lasthop_\w+", query)}
    assert len(named) > 4
    assert named <= {name for metric, _ in table_under(page, "## Every metric") for name in re.findall(r"lasthop_\w+", metric)}


def test_every_field_of_a_failed_request_is_explained() -> None:
    fields = {name.strip(" `") for row in table_under(REFERENCE, "## Failed requests") for name in row[0].split(",")}
    assert fields == {"gateway", "why", "advice", "stands_for", *FIELDS}


def test_every_path_of_the_admin_address_is_explained() -> None:
    rows = table_under(REFERENCE, "## Admin address")
    explained = {path.strip(" `").partition("?")[0] for row in rows for path in row[0].split(",")}
    assert explained == set(re.findall(r'web\.(?:get|post)\("([^"]+)"', Path(app.__file__).read_text()))


def test_files_mode_documents_every_kind_and_marks_unsupported_ones() -> None:
    text = (DOCS / "files-mode.md").read_text().partition("## Contents of the folder")[2].partition("\n## ")[0]
    served, _, unserved = text.partition("is admitted and not served")[0].rpartition("\n\n")
    for kind in KINDS.values():
        assert re.search(rf"\b{kind.kind}\b", unserved if kind.struct is Unserved else served), kind.kind
        assert not re.search(rf"\b{kind.kind}\b", served if kind.struct is Unserved else unserved), kind.kind


def test_every_attribute_that_a_span_can_have_is_named() -> None:
    listed = (DOCS / "telemetry.md").read_text().partition("semantic conventions;")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", listed)) == KNOWN_ATTRIBUTES


def test_files_mode_names_every_limit_and_no_other() -> None:
    page = DOCS / "files-mode.md"
    numbers = {number for row in table_under(page, "## Size limits") for number in re.findall(r"[\d,]*\d", row[1])}
    values = {f"{value:,}" for name, value in vars(limits).items() if name.startswith("MAX_")}
    assert numbers == values
    assert f"{limits.LARGE_FILE:,} bytes" in page.read_text()


# --- the first two commands --------------------------------------------------------------------------------------------


def test_the_readme_names_two_commands() -> None:
    assert set(re.findall(r"\bmake [a-z-]+", (ROOT / "README.md").read_text())) == {"make run", "make test"}


# --- links -----------------------------------------------------------------------------------------------------------


def test_the_index_leads_to_every_page_and_the_readme_to_the_index() -> None:
    index = DOCS / "index.md"
    assert {page.name for page in DOCS.glob("*.md")} - {index.name} <= set(links(index))
    assert "docs/index.md" in links(ROOT / "README.md")


def test_the_readme_is_one_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 45
    assert len(table_under(ROOT / "README.md", "## Is it for me?")) == 8
    assert len([line for line in lines if line.startswith("- [")]) == 6


# --- examples --------------------------------------------------------------------------------------------------------


BESIDE_THE_HOW_TO = frozenset(
    (
        *("pinning.md", "skip-verification.md", "permitting-waivers.md", "xbackends.md", "backend-traffic.md", "telemetry.md"),
        *("backend-mtls.md", "tcp-udp.md"),
    )
)


def base_of(block: Block, folder: Path) -> list[Document]:
    """The objects that a page's examples extend: the how-to's first block, or the tutorial's folder."""
    if block.page == HOW_TO or block.page.name in BESIDE_THE_HOW_TO:
        return next(blocks(HOW_TO)).documents
    if block.page == TUTORIAL:
        ca, made = folder / "ca.pem", folder / "made"
        ca.write_text(CA.pem)
        assert lasthop("init", made, "--backend", "127.0.0.1:8443", "--hostname", "api.example", "--ca", ca)[0] == 0
        return [d for file in sorted(made.glob("*.yaml")) for d in yaml.safe_load_all(file.read_text())]
    return []


EXAMPLES = [block for page in PAGES for block in blocks(page) if "apiVersion:" in block.text]


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_example_passes_check(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "system.pem"
    system.write_text(CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    (folder := tmp_path / "folder").mkdir()
    base = base_of(block, tmp_path)
    if not any(document["kind"] == "Gateway" for document in (*base, *block.documents)):
        base += list(yaml.safe_load_all(BASE))[:2]
    put(folder, base, block.documents)
    code, output = lasthop("check", folder)
    assert code == 0
    if "kind: VerificationWaiver" in block.text:
        assert "not checked (VerificationWaiver" in output
        assert "0 errors, 1 warning" in output, output
    else:
        assert output.startswith("nothing wrong"), output


COMMAND_LINES = [
    (page.name, line)
    for page in PAGES
    if page != REFERENCE
    for line in re.findall(r"^(?: {4,}|    - run: )(?:\.venv/bin/)?lasthop (.+)$", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_command_is_typed_as_the_command_line_takes_it(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than that: what it does is tested where the command is."""
    monkeypatch.chdir(tmp_path)
    Path("ca.pem").write_text(CA.pem)
    name, *args = shlex.split(re.split(r" [|>&#] ?|;", line)[0], comments=True)
    command = main.get_command(click.Context(main), name)
    assert command is not None, f"there is no command {name}"
    command.make_context(name, args)


def test_pages_have_commands() -> None:
    assert len(COMMAND_LINES) > 25


def test_the_how_to_has_examples() -> None:
    assert len([block for block in EXAMPLES if block.page == HOW_TO]) > 10
