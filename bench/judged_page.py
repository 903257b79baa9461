"""Renders docs/judged.md from the results of `make judge` in bench/judged.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
KEPT: Final = Path(__file__).parent / "judged.json"
PAGE: Final = ROOT / "docs" / "judged.md"
SEVERITIES: Final = ("plaintext", "open", "closed", "status")
OUTCOMES: Final = ("pass", "fail", "not claimed", "not run")
ABOUT: Final = {
    "lasthop": (
        "Lasthop",
        "Of this commit, installed by `deploy/lasthop.yaml`, Envoy 1.40.0, features as its GatewayClass claims them.",
    ),
    "envoy-gateway": (
        "Envoy Gateway v1.9.1",
        "Unmodified, Kubernetes provider with proxies on the host, Envoy 1.40.0 in place of its default 1.39.1, "
        "`extensionApis.enableBackend: true`, leader election off and its limit of API requests raised; else as shipped. "
        "Its GatewayClass publishes no features; judged are those of its own conformance report of v1.9.",
    ),
    "traefik": (
        "Traefik v3.7.13",
        "Built without ACME, on the host, with an entry point for each listener's port, `experimentalChannel: true` and no "
        "limit of API requests; else as shipped. Features as its GatewayClass claims them.",
    ),
}
INTRODUCTION: Final = """# Judged

What gateways verify on the last hop, measured by [`lasthop judge`](judge.md) with the same cases for each: on one machine, a
real API server (Kubernetes 1.36.3), Gateway API v1.7.0, experimental channel. `make judge` writes this page.

A fault is listed only where the specification, an API comment or an RFC requires otherwise in words, and those words stand
beside it. The words of GEP-1897 and of the API that a fault of another gateway rests on already stand in v1.6.1, the version
that these gateways implement. Where support is left to implementations, a refusal counts as *not claimed*. Changes at run time
have 60 seconds to take effect. Severities: *plaintext*: bytes without TLS reached a backend that a policy targets. *open*: a
request reached a backend although its connection must fail. *closed*: a request failed that must succeed. *status*: a
condition, or the code that a client received, differs.

Three readings matter. Names are matched by RFC 9525, which obsoletes RFC 6125; the older one let clients accept a wildcard
that is only a part of a label. The API leaves further checks of CA content, such as dates, to implementations, but calls a
reference invalid whose data is malformed; so `status` asks for the condition there, with any reason.
And a policy for a port holds beside one for the whole Service, as upstream's conformance test has it; the API does not rank
them in words.
"""
NOT_JUDGED: Final = """
## Not judged

No other implementation has been judged. Istio and Cilium need nodes and container images, which the machine of these runs
cannot run. Its registries offer no modules of NGINX Gateway Fabric, agentgateway, kgateway, Kong, Emissary or the
HAProxy-based implementations. Contour v1.33 is offered and has not been tried; it reads BackendTLSPolicy as `v1alpha3`, a
deprecated version that only the experimental channel still serves. `lasthop judge --context C --gateway-class NAME` judges
an implementation where it runs.
"""


def keep(system: str, documents: list[dict[str, Any]]) -> None:
    """Stores the results of a run, without certificates and times."""
    cases = [case for document in documents for case in document["cases"]]
    for case in cases:
        case["objects"] = _without_certificates(case.get("objects", []))
    seconds = sum(document["gateway"]["seconds"] for document in documents)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept[system] = {
        "date": documents[0]["gateway"]["date"],
        "seconds": round(seconds),
        "cases": [_kept(case) for case in cases],
    }
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _kept(case: dict[str, Any]) -> dict[str, Any]:
    """Returns the outcome of a case; of a failed one everything that the page shows."""
    always = ("id", "area", "outcome", "severity", "why")
    of_faults = ("title", "requirement", "faults", "objects") if case["outcome"] == "fail" else ()
    return {name: case[name] for name in (*always, *of_faults) if name in case}


def write() -> None:
    kept = json.loads(KEPT.read_text())
    PAGE.write_text("\n".join(lines({system: kept[system] for system in ABOUT if system in kept})) + "\n")


def lines(kept: dict[str, Any]) -> Iterator[str]:
    yield INTRODUCTION
    yield from _table(kept)
    for system, report in kept.items():
        yield from _system(*ABOUT[system], report)
    yield NOT_JUDGED.rstrip()


def _table(kept: dict[str, Any]) -> Iterator[str]:
    yield "| Area | Cases | " + " | ".join(ABOUT[system][0] for system in kept) + " |"
    yield "|---" * (len(kept) + 2) + "|"
    areas = list(dict.fromkeys(case["area"] for report in kept.values() for case in report["cases"]))
    for area in areas:
        of_area = [[case for case in report["cases"] if case["area"] == area] for report in kept.values()]
        yield f"| {area} | {max(map(len, of_area))} | " + " | ".join(map(_cell, of_area)) + " |"
    whole = [report["cases"] for report in kept.values()]
    yield f"| **all** | **{max(map(len, whole))}** | " + " | ".join(map(_cell, whole)) + " |"


def _cell(cases: list[dict[str, Any]]) -> str:
    """Counts by outcome; faults by severity, in bold."""
    counts = [(outcome, sum(case["outcome"] == outcome for case in cases)) for outcome in OUTCOMES]
    severities = [case["severity"] for case in cases if case["severity"]]
    faults = ", ".join(f"{severities.count(severity)} {severity}" for severity in SEVERITIES if severity in severities)
    words = {"fail": f"**fail** ({faults})"}
    return ", ".join(f"{number} {words.get(outcome, outcome)}" for outcome, number in counts if number)


def _system(title: str, configuration: str, report: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield f"{configuration} Judged on {report['date']}, {len(report['cases'])} cases in {report['seconds']} s."
    failed = [case for case in report["cases"] if case["outcome"] == "fail"]
    if not failed:
        yield ""
        yield "No fault was found."
    for severity in SEVERITIES:
        by_requirement: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for case in failed:
            if case["severity"] == severity:
                by_requirement.setdefault((case["requirement"]["sentence"], case["requirement"]["source"]), []).append(case)
        if by_requirement:
            yield ""
            yield f"### {severity.capitalize()}"
        for (sentence, source), cases in by_requirement.items():
            yield from _faults(sentence, source, cases)
    left_out: dict[str, list[str]] = {}
    for case in report["cases"]:
        if case["outcome"] in ("not claimed", "not run"):
            left_out.setdefault(f"{case['outcome'].capitalize()}: {case['why'].partition(';')[0]}", []).append(case["id"])
    if left_out:
        yield ""
        for why, ids in left_out.items():
            yield f"- {why}: {', '.join(f'`{id}`' for id in ids)}"


def _faults(sentence: str, source: str, cases: list[dict[str, Any]]) -> Iterator[str]:
    yield ""
    yield f"Required: “{sentence}” ({source}). Observed:"
    yield ""
    for case in cases:
        for fault in case["faults"]:
            yield f"- `{case['id']}`, {case['title']}: {_escaped(fault['seen'])}."
    yield ""
    yield "<details><summary>Policies and CAs of these cases</summary>"
    yield ""
    yield "```"
    yield yaml.safe_dump_all(_policies(cases), sort_keys=False, width=120, allow_unicode=True).rstrip()
    yield "```"
    yield ""
    yield "</details>"


def _policies(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the objects that differ between cases. `lasthop judge --write` writes Services and routes as well."""
    kinds = ("BackendTLSPolicy", "ConfigMap", "Secret")
    objects = [obj for case in cases for obj in case["objects"] if obj["kind"] in kinds]
    return [{name: obj[name] for name in ("kind", "metadata", "spec", "data") if name in obj} for obj in objects]


def _without_certificates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for obj in objects:
        if "data" in obj:
            obj["data"] = {
                key: "…" if "CERTIFICATE" in value or len(value) > 80 else value for key, value in obj["data"].items()
            }
    return objects


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|").rstrip(".")
