"""Installs Lasthop, runs the suite and reports the result: `python -m conformance run`. Failed tests run once more, alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml

from conformance import lasthop
from conformance.build import cache_folder
from conformance.children import say
from conformance.cluster import REPOSITORY, Cluster
from conformance.flakes import History, told
from conformance.report import publish
from conformance.results import Result, summary, verdict
from conformance.suite import Suite, profiles_of

MOST_RETRIED = 15  # more failures than that are not flakes, and each retry may take minutes


async def suite(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await lasthop.install(cluster, arguments["way"])
    if not await lasthop.accepted(cluster):
        say(f"The controller has not accepted GatewayClass {lasthop.GATEWAY_CLASS} within 60 s; see {cluster.logs}")
        return 1
    features = arguments["features"] or await lasthop.supported_features(cluster)
    profiles = arguments["profiles"] or profiles_of(cluster.release, features)
    judge = Suite(cluster, lasthop.GATEWAY_CLASS, profiles, arguments["features"])
    if arguments["run"]:
        return await _some(judge, arguments["run"])
    say(f"Running {', '.join(profiles)} with {len(features)} features; each test is told as it ends")
    return await _all(judge, cluster, file=not (arguments["features"] or arguments["profiles"]))


async def _some(judge: Suite, tests: list[str]) -> int:
    bad = 0
    for test in tests:
        output, code = await judge.one(test, _show)
        if test not in output.results:
            say(f"{test} did not run: is that its name, and was Setup successful? See {judge.cluster.logs / 'suite.log'}")
        bad += code != 0 or test not in output.results
    return 1 if bad else 0


async def _all(judge: Suite, cluster: Cluster, file: bool) -> int:
    """`file`: the report is of everything that is claimed, so it may go among those for publication."""
    begin = time.monotonic()
    report = cluster.folder / "report.yaml"
    output, code = await judge.all(report, _show)
    failed = output.failed()
    flaky = await _retry(judge, failed) if len(failed) <= MOST_RETRIED else []
    if report.exists():
        _tell(report, file and not failed)
    lines, result = verdict(output, flaky, code)
    history = History(cache_folder() / "flakes")
    kept = history.add(cluster.folder.name, flaky, cluster.logs / "suite.log")
    for line in (*lines, *told(history.runs(), kept)):
        say(line)
    say(f"{time.monotonic() - begin:.0f} s. The suite's whole output: {cluster.logs / 'suite.log'}")
    return result


async def _retry(judge: Suite, failed: list[str]) -> list[str]:
    flaky = []
    for test in failed:
        say(f"Once more, alone: {test}")
        output, _ = await judge.one(test, _show)
        if test in output.results and output.results[test].outcome == "PASS":
            flaky.append(test)
    return flaky


def _tell(report: Path, file: bool) -> None:
    content = report.read_bytes()
    for line in summary(yaml.safe_load(content)):
        say(line)
    filed = publish(content) if file else None
    say(f"Report: {filed.relative_to(REPOSITORY) if filed else f'{report}, not for publication'}")


def _show(result: Result) -> None:
    if result.outcome == "SKIP":  # tests of other profiles and features: counted, not listed
        return
    say(f"{result.outcome} {result.test} ({result.seconds:.1f} s)")
    for line in result.said[-12:]:
        say(f"     {line[:300]}")
