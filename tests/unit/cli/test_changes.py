"""`lasthop audit --since`: who weakened what, of a folder, a cluster, in words and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from lasthop.cli.args import paths
from lasthop.infra import memory
from lasthop.infra.kubernetes.verification_memory import CONFIG_MAP
from lasthop.infra.memory import Memory
from lasthop.outputs.audit.changes import Change
from tests.folders import lasthop

HOUR = 3600.0


def changes(now: float) -> tuple[Change, ...]:
    where, verified = ("Service", "shop/api", 443), "verified (CA) for api.example"
    deleted = "BackendTLSPolicy shop/api was deleted"
    by = "appProtocol http of Service shop/api"
    return (
        Change(
            now - 50 * HOUR, *where, "plaintext", verified, "BackendTLSPolicy shop/api applies now", gateways=("edge/web",)
        ),
        Change(now - 2 * HOUR, *where, verified, "plaintext", deleted, True, gateways=("edge/web",)),
        Change(now - HOUR, *where, "plaintext", "plaintext", f"acknowledged by {by}", acknowledged=by, gateways=("edge/web",)),
        Change(now - HOUR, "Service", "other/db", 5432, verified, "failing\x1b[2J closed", "x"),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "objects"
    made.mkdir()
    state = paths.of_folder(paths.state_root(), made)
    state.mkdir(parents=True)
    memory.save(state / memory.FILE, Memory({}, changes(time.time())), memory.Encoder())
    return made


def test_a_folder_shows_what_was_recorded_while_a_gateway_ran_on_it(folder: Path) -> None:
    found = lasthop("audit", str(folder), "--since", "24h", "-n", "shop")
    assert found.exit_code == 0
    assert "shop/api:443  verified (CA) for api.example -> plaintext  weaker, not acknowledged" in found.stdout
    assert "because BackendTLSPolicy shop/api was deleted" in found.stdout
    assert "because acknowledged by appProtocol http of Service shop/api" in found.stdout
    assert "other/db" not in found.stdout and "applies now" not in found.stdout
    assert "2 changes since " in found.stdout and "1 weaker, 1 of them not acknowledged then" in found.stdout


def test_it_is_json_for_scripts_and_safe_for_terminals(folder: Path) -> None:
    document = json.loads(lasthop("audit", str(folder), "--since", "7d", "-o", "json").stdout)
    assert [each["after"] for each in document["changes"]][:2] == ["verified (CA) for api.example", "plaintext"]
    assert [each["weaker"] for each in document["changes"]] == [False, True, False, False]
    assert all(each["time"].endswith("Z") for each in document["changes"])
    assert "\x1b" not in lasthop("audit", str(folder), "--since", "7d").stdout


@pytest.mark.parametrize(
    ("since", "expected"), [("90m", 2), ("3h", 3), ("3d", 4), ("2w", 4), ("2020-01-01", 4), ("2020-01-01T10:00:00+02:00", 4)]
)
def test_a_time_is_how_long_ago_or_a_date(folder: Path, since: str, expected: int) -> None:
    found = lasthop("audit", str(folder), "--since", since, "-o", "json")
    assert len(json.loads(found.stdout)["changes"]) == expected


@pytest.mark.parametrize("since", ["yesterday", "24", "-1h", "2026-13-01", "1y"])
def test_what_is_no_time_is_explained(folder: Path, since: str) -> None:
    found = lasthop("audit", str(folder), f"--since={since}")
    assert found.exit_code == 2 and "give how long ago (30m, 24h, 7d) or a date" in found.stderr


def test_without_a_record_it_is_said_where_one_comes_from(tmp_path: Path) -> None:
    found = lasthop("audit", str(tmp_path), "--since", "1h")
    assert found.exit_code == 1 and "changes are recorded while a gateway runs on it" in found.stderr
    assert lasthop("audit", str(tmp_path), "--since", "1h", "--fail-on", "waived").exit_code == 2


def test_nothing_new_is_said_in_words(folder: Path) -> None:
    assert "no change of how a backend is verified since" in lasthop("audit", str(folder), "--since", "1m").stdout


def test_the_installation_may_read_and_write_the_record_by_name_only() -> None:
    from lasthop.infra.kubernetes import installation

    roles = [d for d in installation.documents(installation.Options("image")) if d["kind"] == "Role"]
    rules = [rule for role in roles for rule in role["rules"] if rule["resources"] == ["configmaps"]]
    assert {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CONFIG_MAP], "verbs": ["get", "update"]} in rules
    assert all(rule["verbs"] == ["create"] or rule.get("resourceNames") for rule in rules)
