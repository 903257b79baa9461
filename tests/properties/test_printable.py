"""For any foreign text, commands print only glyphs, their own newlines and their own colours."""

from __future__ import annotations

import re
import tempfile
import unicodedata
from pathlib import Path

import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lasthop.base.text import logs
from lasthop.base.text.printable import LIMIT, clean, printable
from lasthop.cli.main import main
from lasthop.cli.render.status_table import Columns, row
from lasthop.cli.views.folder import FolderView
from lasthop.engine.outputs.status.status_cache import StatusCache
from lasthop.engine.outputs.status.summary import summary
from tests.certificates import DAY, NOW, Certificate
from tests.folders import BASE, config_map, policy

OWN = re.compile(r"\x1b\[(?:0|1|2|3[1-6]|)m")
"""The colours that commands use."""
HOSTILE = "\x1b[2K\x1b[1A\x1b]0;title\x07\r\n\x9b31m\u202e\u2066\x08\x7f\x1b[32mverified"
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40) | st.text(
    "\x00\x07\x08\x0a\x0d\x1b[]2K0;m\x7f\x85\x9b\u200b\u2028\u202e\u2066x", min_size=1, max_size=20
)
PERMISSIVE = """\
---
apiVersion: lasthop.dev/v1alpha1
kind: GatewayProfile
metadata: {name: lax, namespace: shop}
spec: {backendTLS: {waivers: Allow}}
"""


def _folder(root: Path, text: str) -> Path:
    """Places a text in all fields that others may write: a reason, a subject, refused values, keys, kinds, file names."""
    subject = text.replace("\x00", "")[:60] or "x"
    try:
        ca = Certificate(subject, ca=True, valid=(NOW - 2 * DAY, NOW + DAY))
    except ValueError:  # no name of a certificate can be this
        ca = Certificate("x", ca=True)
    waiver = {
        "apiVersion": "lasthop.dev/v1alpha1",
        "kind": "VerificationWaiver",
        "metadata": {"name": "legacy", "namespace": "shop"},
        "spec": {"waives": "Names", "reason": f"x{text}", "owner": text},
    }
    odd = {"apiVersion": "v1", "kind": text, "metadata": {"name": text, "namespace": "shop"}, text: {text: text}}
    rejected = yaml.safe_load(policy("odd"))
    rejected["spec"]["validation"] |= {"hostname": text, "caCertificateRefs": [{"group": "", "kind": text, "name": text}]}
    waived = policy().rstrip() + '\n    - {group: "lasthop.dev", kind: VerificationWaiver, name: legacy}\n'
    profile = "{group: lasthop.dev, kind: GatewayProfile, name: lax}"
    base = BASE.replace("  listeners: [", f"  infrastructure: {{parametersRef: {profile}}}\n  listeners: [", 1)
    files = {
        "base.yaml": base + PERMISSIVE,
        "ca.yaml": config_map(pem=ca.pem),
        "policy.yaml": waived,
        "waiver.yaml": yaml.safe_dump(waiver),
        "rejected.yaml": yaml.safe_dump(rejected),
        "odd.yaml": yaml.safe_dump(odd),
        f"{text.replace('/', '')[:20].encode(errors='ignore').decode() or 'x'}.yaml".replace("\x00", ""): "kind: [",
    }
    for name, content in files.items():
        (root / name).write_text(content)
    return root


def _assert_fit(shown: str, of: object) -> None:
    left = OWN.sub("", shown).replace("\n", "")
    odd = {c for c in left if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}
    assert not odd, (of, odd, shown)


COMMANDS = (
    ("check", "{}"),
    ("check", "{}", "-o", "github"),
    ("audit", "{}"),
    ("audit", "{}", "-o", "markdown"),
    ("explain", "backendtlspolicy", "shop/api", "--dir", "{}"),
    ("explain", "backendtlspolicy", "shop/odd", "--dir", "{}"),
    ("explain", "httproute", "shop/api", "--dir", "{}"),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(HOSTILE)
@given(TEXTS)
def test_nothing_that_others_have_written_reaches_the_terminal_raw(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = _folder(Path(name), text)
        for args in COMMANDS:
            result = CliRunner().invoke(main, [arg.replace("{}", name) for arg in args], color=True)
            assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
            _assert_fit(result.output, args)
        _assert_fit(CliRunner().invoke(main, ["explain", "gateway", text, "--dir", name], color=True).output, "a name")
        looked = FolderView(folder)
        for finding in [*looked.source_findings, *looked.engine.findings()]:
            _assert_fit(_logged(str(finding)), "the log")
        book = StatusCache(looked.engine.store)
        for kind in ("BackendTLSPolicy", "Gateway"):
            documents = filter(None, map(book.document, looked.engine.store.keys(kind)))
            rejected = [{**document, "rejected": text} for document in documents]
            rows = [row({**document, "ready": summary(document)._asdict()}) for document in rejected]
            for line in rows:
                _assert_fit(Columns.of(rows).line(line), "status")


def _logged(event: str) -> str:
    """As on a terminal."""
    return logs.text_line("info", event, {"reason": event, "log_tail": [event]})


@given(st.text(st.characters(codec="utf-8")))
def test_printable_text_has_only_glyphs_and_printable_input_is_unchanged(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable() or len(text) > LIMIT
    assert len(printable(text)) <= 12 * LIMIT
    assert clean(("x", [text], {text: text})) == ("x", [printable(text)], {printable(text): printable(text)})
