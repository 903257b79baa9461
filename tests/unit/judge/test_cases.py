"""The cases as a table: ids, sentences, features, objects."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

import lasthop.base.api
from lasthop.base.api.bundle import supported_features
from lasthop_judge.adapters import ADAPTERS
from lasthop_judge.cases import ALL
from lasthop_judge.certificates import Issuer
from lasthop_judge.model import Area, Case, Expected, FaultSeverity
from lasthop_judge.objects import RunSettings, backend_key, servings
from lasthop_judge.run import choose

CRDS = Path(lasthop.base.api.__file__).parent / "crds" / "gateway-api" / "experimental"


def settings(adapter: str = "lasthop") -> RunSettings:
    return RunSettings("judge", "lasthop", ADAPTERS[adapter], Issuer(), {}, {})


def words(text: str) -> str:
    """Without line breaks, list marks and the kinds of quotes."""
    return " ".join(re.sub(r"[“”\"’']", "'", text).replace("*", " ").replace(":", " ").split())


def test_there_are_cases_of_every_area_and_every_id_is_its_own() -> None:
    assert len(ALL) >= 150
    assert {case.area for case in ALL} == {*Area}
    assert [id for id, number in Counter(case.id for case in ALL).items() if number > 1] == []


def test_no_two_cases_try_the_same() -> None:
    def tried(case: Case) -> object:
        objects = (case.serving, case.policies, case.bundles, case.services, case.via, case.role, case.port, case.steps)
        return objects, case.conditions, case.checks, case.sni, case.alpn

    twice = [
        (one.id, other.id)
        for number, one in enumerate(ALL)
        for other in ALL[:number]
        if one.area is other.area and tried(one) == tried(other)
    ]
    assert twice == []


def test_names_of_objects_fit_into_a_label() -> None:
    long = [name for case in ALL for service in case.all_services if len(name := f"{case.slug}-{service.name}") > 63]
    assert long == []


def test_sentences_of_the_api_stand_in_its_crds() -> None:
    crd_words = words(" ".join(file.read_text() for file in CRDS.glob("*.yaml")))
    constants = {"InvalidCACertificateRef", "ResolvedRefs"}  # no CRD has their comments
    missing = []
    for demand in {case.requirement for case in ALL if "comment of" in case.requirement.source}:
        parts = demand.sentence.split("[…]")
        quoted = parts[1:] if constants & {*demand.source.split()} else parts
        missing += [part for part in quoted if words(part).rstrip(".") not in crd_words]
    assert missing == []


def test_features_are_those_that_lasthop_claims() -> None:
    """A misspelled feature would leave its case out everywhere."""
    assert {name for case in ALL for name in case.needs} <= {*supported_features(())}


def test_a_case_that_can_find_nothing_is_none() -> None:
    assert [case.id for case in ALL if not case.severities] == []
    refused = [case for case in ALL if case.expect.refused]
    assert all({FaultSeverity.OPEN, FaultSeverity.PLAINTEXT} <= {*case.severities} for case in refused)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_case_that_an_adapter_can_spell_has_objects(adapter: str) -> None:
    chosen = choose(ALL, None, settings(adapter))
    for case in chosen.cases:
        documents = settings(adapter).documents(case)
        assert yaml.safe_dump_all(documents)
        assert documents[-1]["kind"].endswith("Route")
    left_out = {verdict.case.area for verdict in chosen.left_out}
    assert left_out == (set() if adapter == "lasthop" else {Area.GEP_4152})


def test_every_requested_port_is_served() -> None:
    served = servings(ALL)
    for case in ALL:
        steps = [(step.expect, step.service) for step in case.steps]
        for expect, service in ((case.expect, ""), *steps):
            if expect is not Expected.IGNORED:
                assert backend_key(case, service or case.all_services[0].name, case.port) in served, case.id


def test_cases_of_plaintext_use_ports_without_a_usual_protocol() -> None:
    """Otherwise an implementation that takes port 443 or the name https for HTTPS would have a fault that no rule forbids."""
    plain = [case for case in ALL if Expected.PLAINTEXT in (case.expect, *(step.expect for step in case.steps))]
    ports = [port for case in plain for service in case.all_services for port in service.ports if port.name == case.port]
    assert len(plain) >= 5
    assert [port for port in ports if port.number == 443 or port.name.startswith("http")] == []


def test_unclaimed_features_leave_cases_out() -> None:
    chosen = choose(ALL, {"Gateway", "HTTPRoute", "BackendTLSPolicy"}, settings())
    assert all(set(case.needs) <= {"HTTPRoute", "BackendTLSPolicy"} for case in chosen.cases)
    assert {verdict.why for verdict in chosen.left_out} >= {
        "feature GRPCRoute is not claimed",
        "feature TCPRoute is not claimed",
    }
