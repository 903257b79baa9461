"""One vocabulary of verification: a connection is classified in `engine/plan` alone, and everything else renders that."""

from __future__ import annotations

import ast
from itertools import pairwise, product
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.audit import Audit, document, read
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, Pins, Plaintext, San, SanType, SystemStore, TrustSource, Waiver
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.plan.verdict import verification_of
from lasthop_import.levels import HopOutcome, NewState
from tests.source_nodes import ROOTS, source_nodes

POLICY = Key("BackendTLSPolicy", "a", "p")
TRUSTS = (None, Anchors(b"pem"), SystemStore("/ca.pem", "d"))
PINS = (Pins(), Pins(keys=frozenset({b"k"})), Pins(certificates=frozenset({b"c"})))
WAIVED = (Strength.WAIVED_ALL, Strength.WAIVED_NAMES, Strength.WAIVED_EXPIRY)
WAIVERS = (None, *(Waiver(Key("VerificationWaiver", "a", "w"), strength, "why") for strength in WAIVED))
PLAN = ROOTS[0] / "engine" / "plan"
LABELS = ("Plaintext", "TLS", "WaivedAll", "WaivedNames", "WaivedExpiry", "PinnedOnly", "Verified")
"""Users write them in profiles, annotations and alerts."""


def test_labels_and_words_are_those_that_users_write_and_differ_by_strength() -> None:
    assert tuple(strength.label for strength in Strength) == LABELS
    assert len({strength.words for strength in Strength}) == len(Strength)
    assert {strength.group for strength in Strength if strength.waived} == {"waived"}
    assert all(weaker < stronger for weaker, stronger in pairwise(Strength))
    for strength in Strength:
        assert strength.stronger == tuple(sorted((other for other in Strength if other > strength), reverse=True))


@pytest.mark.parametrize("trust, pins, waiver", [*product(TRUSTS, PINS, WAIVERS)])
def test_a_connection_is_as_strong_as_what_is_checked(
    trust: Anchors | SystemStore | None, pins: Pins, waiver: Waiver | None
) -> None:
    tls = BackendTLS(POLICY, "a.example", trust, (San(SanType.DNS, "a.example"),), pins, waiver)
    if trust is None and not pins:
        assert tls.strength is Strength.WAIVED_ALL, "nothing is checked, whatever a waiver says"
    elif waiver:
        assert tls.strength is waiver.strength
    else:
        assert tls.strength is (Strength.PINNED_ONLY if trust is None else Strength.VERIFIED)
    assert tls.strength > Plaintext().strength
    assert (tls.against is not None) is (tls.strength is Strength.VERIFIED)
    if tls.against and pins:
        assert tls.against is TrustSource.PINNED
    assert verification_of(tls, (), "").strength is tls.strength


@pytest.mark.parametrize("strength", Strength)
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("outside", [None, Protocol.UDP, Protocol.PASSTHROUGH])
def test_a_row_of_the_audit_is_named_by_its_strength(strength: Strength, refused: bool, outside: Protocol | None) -> None:
    waiver = Key("VerificationWaiver", "a", "w") if strength.waived else None
    where = (Key("Gateway", "a", "g"), Key("Service", "a", "s"), 443)
    row = HopReport(*where, strength, "", refused=refused, outside=outside, waiver=waiver)
    if refused:
        assert (row.manner, row.mode, row.in_effect) == ("failing closed", "FailingClosed", None)
    elif outside:
        assert (row.manner, row.mode, row.in_effect) == (str(outside), str(outside).capitalize(), None)
    else:
        assert (row.manner, row.mode, row.in_effect) == (strength.group, strength.label, strength)
    assert ("verified" in (row.manner, row.required)) is False or row.in_effect is Strength.VERIFIED
    assert row.waives == (strength.label if waiver else "")
    assert read(document(Audit((row,), ()))).hops == (row,), "as the admin API has it"


# --- nothing else classifies a connection -----------------------------------------------------------------------------


def modules(*, plan: bool = False) -> list[tuple[Path, list[ast.AST]]]:
    return [(path, nodes) for path, nodes in source_nodes().items() if plan or PLAN not in path.parents]


def is_strength(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Strength"


def made(function: ast.AST) -> bool:
    """Returns whether a function makes a strength, and not only compares with one."""
    compared = {id(part) for node in ast.walk(function) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    return any(is_strength(node) and id(node) not in compared for node in ast.walk(function))


def test_no_function_outside_plan_derives_a_strength_from_trust_pins_or_a_waiver() -> None:
    parts = {"trust", "pins", "waiver", "pinned_only"}
    assert made(ast.parse("Strength.VERIFIED if tls.trust else Strength.PINNED_ONLY"))
    assert not made(ast.parse("tls.waiver and tls.strength is Strength.WAIVED_ALL"))
    for path, nodes in modules():
        if "Strength" not in path.read_text():
            continue
        for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            read = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)} & parts
            assert not (read and made(function)), f"{path}:{function.lineno} classifies by {read}; use BackendTLS.strength"


def test_no_module_outside_plan_reads_the_trust_of_a_connection() -> None:
    """Only the prober does: OpenSSL loads no CAs where there are none."""
    for path, nodes in modules():
        for node in (node for node in nodes if isinstance(node, ast.Compare)):
            asks = isinstance(node.left, ast.Attribute) and node.left.attr == "trust" and isinstance(node.ops[0], ast.Is)
            assert not asks, f"{path}:{node.lineno}"


def test_strengths_are_ordered_and_named_in_one_module() -> None:
    """A second table, keyed by the labels, once let weakenings through unnoticed."""
    for path, nodes in modules(plan=True):
        for node in nodes:
            if isinstance(node, ast.Dict):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                assert len(keys & set(LABELS) - {"TLS"}) < 2, f"{path}:{node.lineno}"
            if isinstance(node, ast.ClassDef) and path.name != "strength.py":
                stored = (name for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))
                members = {name.id for name in stored}
                assert not {"PINNED_ONLY", "WAIVED_ALL"} <= members, f"{path}:{node.lineno} is a second vocabulary"


def test_a_state_in_the_report_of_an_import_is_a_strength_or_has_none() -> None:
    states = [NewState(state) for state in (*Strength, *HopOutcome)]
    assert [state.strength for state in states] == [*Strength, *(None for _ in HopOutcome)]
    states += [NewState(Strength.VERIFIED, by) for by in ("name", "uri", "pinned")]
    assert len({str(state) for state in states}) == len(states), "no two states read alike"
    assert [str(state) for state in states if state.todo] == ["TODO"]
    assert not {strength.name.lower() for strength in Strength} & {outcome.name.lower() for outcome in HopOutcome}
    shown = [str(state) for state in sorted(states, key=lambda state: state.order)]
    assert (shown[0], shown[-5:]) == ("plaintext", ["TODO", "closed", "dropped", "passthrough", "policy kept"])


TEXTS = {"because", "detail", "manner", "message", "required", "standing", "text", "why", "words"}
"""Fields with text for people."""


def compares_text(node: ast.AST) -> bool:
    """Returns whether such a field is compared with a text that is written in the code."""
    if not isinstance(node, ast.Compare):
        return False
    operands = [node.left, *node.comparators]
    reads = any(isinstance(operand, ast.Attribute) and operand.attr in TEXTS for operand in operands)
    return reads and any(
        isinstance(operand, ast.Constant) and isinstance(operand.value, str) and operand.value for operand in operands
    )


def test_no_module_compares_a_text_for_people_with_a_text_of_its_own() -> None:
    """Data that a program needs later is a field."""
    assert compares_text(ast.parse("report.manner == 'plaintext'", mode="eval").body)
    assert compares_text(ast.parse("'x does not exist' in finding.message", mode="eval").body)
    assert not compares_text(ast.parse("report.detail == ''", mode="eval").body)
    violations = [(path, ast.unparse(node)) for path, nodes in modules(plan=True) for node in nodes if compares_text(node)]
    assert not violations
