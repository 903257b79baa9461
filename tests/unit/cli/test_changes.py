"""`lasthop audit --since`: who weakened what, of a folder, a cluster, in words and as JSON."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lasthop.base.api.times import rfc3339
from lasthop.cli.args import paths
from lasthop.engine.outputs.audit.changes import Change, Incident, Record
from lasthop.run.infra import memory
from lasthop.run.infra.kubernetes.verification_memory import CONFIG_MAP
from lasthop.run.infra.memory import Memory
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
    memory.save(state / memory.FILE, Memory({}, Record(changes(time.time()), time.time() - 60 * HOUR)), memory.Encoder())
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


def keep(folder: Path, record: Record) -> None:
    memory.save(paths.of_folder(paths.state_root(), folder) / memory.FILE, Memory({}, record), memory.Encoder())


def test_no_change_is_said_only_for_the_time_that_the_record_covers(folder: Path) -> None:
    begun = time.time() - HOUR
    keep(folder, Record((), begun))
    stamp = datetime.fromtimestamp(begun, UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = lasthop("audit", str(folder), "--since", "2h").stdout
    assert f"The record is complete only from {stamp} on" in found
    assert f"no change of how a backend is verified since {stamp} in" in found
    within = lasthop("audit", str(folder), "--since", "30m").stdout
    assert "The record" not in within and f"since {stamp}" not in within
    document = json.loads(lasthop("audit", str(folder), "--since", "2h", "-o", "json").stdout)
    assert document["completeSince"] == rfc3339(begun)


def test_without_a_beginning_no_change_is_never_said(folder: Path) -> None:
    keep(folder, Record())
    found = lasthop("audit", str(folder), "--since", "2h").stdout
    assert "It is not known since when changes are recorded" in found and "since 2" not in found
    assert json.loads(lasthop("audit", str(folder), "--since", "2h", "-o", "json").stdout)["completeSince"] is None


def test_what_was_dropped_for_want_of_room_is_not_covered(folder: Path) -> None:
    now = time.time()
    keep(folder, Record((), now - 50 * HOUR, {"loud": now - HOUR}))
    for namespace, complete in (("loud", False), ("quiet", True), ("", False)):
        chosen = ("-n", namespace) if namespace else ()
        found = lasthop("audit", str(folder), "--since", "2h", *chosen).stdout
        assert ("The record is complete only from" not in found) is complete, namespace


def test_a_damaged_record_is_an_error_and_never_no_change(folder: Path) -> None:
    (paths.of_folder(paths.state_root(), folder) / memory.FILE).write_bytes(b"{")
    found = lasthop("audit", str(folder), "--since", "2h")
    assert found.exit_code == 1 and "cannot be decoded" in found.stderr and "no change" not in found.output


def test_what_happened_to_the_record_itself_is_shown(folder: Path) -> None:
    now = time.time()
    incidents = (Incident(now - 3 * HOUR, "x was damaged"), Incident(now - HOUR, "x was \x1b deleted"))
    keep(folder, Record((), now - 50 * HOUR, incidents=incidents))
    found = lasthop("audit", str(folder), "--since", "2h").stdout
    assert "the record itself: x was \\x1b deleted" in found and "damaged" not in found


def test_what_came_and_went_is_shown(folder: Path) -> None:
    fact = "trusts CA new (SHA-256 ab…), no longer trusts CA old (SHA-256 cd…)"
    words = ("verified (CA) for a.example",) * 2
    edit = Change(time.time(), "Service", "shop/api", 443, *words, "because", effect="OtherTrust", facts=(fact,))
    keep(folder, Record((edit,), 1.0))
    found = lasthop("audit", str(folder), "--since", "2h").stdout
    assert "other trust" in found and fact in " ".join(found.split())


def test_the_installation_may_read_and_write_the_record_by_name_only() -> None:
    from lasthop.run.infra.kubernetes import installation

    roles = [d for d in installation.documents(installation.Options("image")) if d["kind"] == "Role"]
    rules = [rule for role in roles for rule in role["rules"] if rule["resources"] == ["configmaps"]]
    assert {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CONFIG_MAP], "verbs": ["get", "update"]} in rules
    assert all(rule["verbs"] == ["create"] or rule.get("resourceNames") for rule in rules)
