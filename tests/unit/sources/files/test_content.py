"""Any text of a file results in objects or in findings with a line, never in an exception."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lasthop.edge.sources.files.content import BrokenFile, FileContent, examine, restore
from tests.file_texts import config_map, policy, route, service

_SLICE = """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
"""
_SECRET = "{apiVersion: v1, kind: Secret, metadata: {name: s}, type: kubernetes.io/tls, stringData: {tls.crt: x, tls.key: y}}"
_BUNDLE = "{apiVersion: certificates.k8s.io/v1, kind: ClusterTrustBundle, metadata: {name: s}, spec: {trustBundle: x}}"
_RULES = "  - matches: [{path: {value: /a}}]\n    backendRefs: [{name: web, port: 80}]\n"
DOCUMENTS = [
    yaml.safe_load(text) for text in (service(), policy(), route(_RULES), config_map("ca.pem"), _SLICE, _SECRET, _BUNDLE)
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for step, item in below for place in places(item, (*path, step)))]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A good document with some of its values replaced."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(document)))
        if not path:
            return draw(JUNK)
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = draw(JUNK)
    return document


@settings(deadline=None, max_examples=300)
@given(damaged())
def test_a_damaged_document_is_content_or_findings(document: Any) -> None:
    result, _ = examine("a.json", json.dumps(document).encode())
    if isinstance(result, BrokenFile):
        assert result.findings
        assert all(finding.line == 1 and finding.message for finding in result.findings)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"#%@` \n\t", max_size=60).map(str.encode))
def test_any_bytes_are_content_or_findings(text: bytes) -> None:
    for file in ("a.yaml", "a.json"):
        result, _ = examine(file, text)
        assert isinstance(result, FileContent) or result.findings


def test_a_restored_file_is_what_it_was() -> None:
    text = (service() + "---\n" + policy() + "---\n" + config_map("ca.pem")).encode()
    content, stored = examine("a.yaml", text)
    assert isinstance(content, FileContent)
    assert restore(text, stored) == content


def test_an_item_of_a_list_is_found_at_its_line() -> None:
    items = "".join(f"- {json.dumps(document)}\n" for document in DOCUMENTS[:1])
    broken, _ = examine("a.yaml", f"kind: List\napiVersion: v1\nitems:\n{items}- kind: Servise\n  apiVersion: v1\n".encode())
    assert isinstance(broken, BrokenFile)
    assert [(f.line, f.field, f.remedy) for f in broken.findings] == [(5, "kind", "Did you mean Service?")]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("metadata:\n\tname: a\n", "Indent with spaces"),
        (f"{service()}\n{service()}", "Write a line --- between two objects."),
        ("metadata:\n  name: {{ .Release.Name }}\n", "helm template CHART | lasthop check -"),
        ("a: [\n", "Fix the text at this line"),
    ],
)
def test_mistakes_that_everybody_makes_once_have_advice(text: str, advice: str) -> None:
    content, _ = examine("x.yaml", text.encode())
    assert isinstance(content, BrokenFile)
    assert advice in content.findings[0].remedy
