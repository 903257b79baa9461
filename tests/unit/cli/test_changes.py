"""`lasthop audit --since`: authors of reductions, for a folder and a cluster, as text and as JSON."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from socket import gethostname

import msgspec
import pytest

from lasthop.base.api.times import rfc3339
from lasthop.cli.args import paths
from lasthop.cli.render import change_report
from lasthop.engine.memory import codec
from lasthop.engine.memory.causes import EditKind
from lasthop.engine.memory.codec import Memory
from lasthop.engine.memory.record import Entry, Record, RecordedCause, RecordedFact
from lasthop.run.infra import memory
from lasthop.run.infra.kubernetes.verification_memory import CONFIG_MAP
from tests.folders import lasthop
from tests.records import mk_record

HOUR = 3600.0


def changes(now: float) -> tuple[Entry, ...]:
    where, verified = ("Service", "shop/api", 443), "verified (CA) for api.example"
    deleted = "BackendTLSPolicy shop/api was deleted"
    by = "appProtocol http of Service shop/api"
    return (
        Entry(now - 50 * HOUR, *where, "plaintext", verified, "BackendTLSPolicy shop/api applies now", gateways=("edge/web",)),
        Entry(now - 2 * HOUR, *where, verified, "plaintext", deleted, True, gateways=("edge/web",)),
        Entry(now - HOUR, *where, "plaintext", "plaintext", f"acknowledged by {by}", acknowledged=by, gateways=("edge/web",)),
        Entry(now - HOUR, "Service", "other/db", 5432, verified, "failing\x1b[2J closed", "x"),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "objects"
    made.mkdir()
    state = paths.of_folder(paths.state_root(), made)
    state.mkdir(parents=True)
    memory.save(state / memory.FILE, Memory({}, mk_record(changes(time.time()), time.time() - 60 * HOUR)), codec.Encoder())
    return made


def test_a_folder_shows_what_was_recorded_while_a_gateway_ran_on_it(folder: Path) -> None:
    result = lasthop("audit", str(folder), "--since", "24h", "-n", "shop")
    assert result.exit_code == 0
    assert "shop/api:443  verified (CA) for api.example -> plaintext  weaker, not acknowledged" in result.stdout
    assert "because BackendTLSPolicy shop/api was deleted" in result.stdout
    assert "because acknowledged by appProtocol http of Service shop/api" in result.stdout
    assert "other/db" not in result.stdout and "applies now" not in result.stdout
    assert "2 changes since " in result.stdout and "1 weaker, 1 of them unacknowledged" in result.stdout


@pytest.mark.parametrize(("effect", "shown"), [("NewReduced", "new"), ("OpenedReduced", "opened")])
def test_a_hop_that_begins_without_full_verification_is_marked_and_counted(tmp_path: Path, effect: str, shown: str) -> None:
    before = "" if effect == "NewReduced" else "failing closed"
    entry = Entry(time.time() - HOUR, "Service", "shop/api", 443, before, "waived (All)", "x", effect=effect)
    state = paths.of_folder(paths.state_root(), tmp_path)
    state.mkdir(parents=True)
    memory.save(state / memory.FILE, Memory({}, mk_record((entry,), entry.at - HOUR)), codec.Encoder())
    text = lasthop("audit", str(tmp_path), "--since", "24h").stdout
    assert f"-> waived (All)  {shown}, not fully verified" in text
    assert "none of them weaker; 1 began to connect without full verification" in text
    assert change_report.NO_EDIT in " ".join(text.split())


def test_it_is_json_for_scripts_and_safe_for_terminals(folder: Path) -> None:
    document = json.loads(lasthop("audit", str(folder), "--since", "7d", "-o", "json").stdout)
    assert [change["after"] for change in document["changes"]][:2] == ["verified (CA) for api.example", "plaintext"]
    assert [change["weaker"] for change in document["changes"]] == [False, True, False, False]
    assert all(change["time"].endswith("Z") for change in document["changes"])
    assert "\x1b" not in lasthop("audit", str(folder), "--since", "7d").stdout


def test_who_made_the_report_and_when_is_part_of_it(folder: Path) -> None:
    document = json.loads(lasthop("audit", str(folder), "--since", "7d", "-o", "json").stdout)
    made = datetime.fromisoformat(document["madeAt"]).timestamp()
    assert abs(made - time.time()) < HOUR and document["host"] == gethostname() and document["lasthop"] == version("lasthop")
    assert f"by lasthop {version('lasthop')} on {gethostname()}" in lasthop("audit", str(folder), "--since", "7d").stdout


@pytest.mark.parametrize(
    ("since", "expected"), [("90m", 2), ("3h", 3), ("3d", 4), ("2w", 4), ("2020-01-01", 4), ("2020-01-01T10:00:00+02:00", 4)]
)
def test_a_time_is_how_long_ago_or_a_date(folder: Path, since: str, expected: int) -> None:
    result = lasthop("audit", str(folder), "--since", since, "-o", "json")
    assert len(json.loads(result.stdout)["changes"]) == expected


@pytest.mark.parametrize("since", ["yesterday", "24", "-1h", "2026-13-01", "1y"])
def test_an_invalid_time_is_explained(folder: Path, since: str) -> None:
    result = lasthop("audit", str(folder), f"--since={since}")
    assert result.exit_code == 2 and "give how long ago (30m, 24h, 7d) or a date" in result.stderr


def test_without_a_record_the_error_explains_its_origin(tmp_path: Path) -> None:
    result = lasthop("audit", str(tmp_path), "--since", "1h")
    assert result.exit_code == 1 and "has no record of changes" in result.stderr
    assert lasthop("audit", str(tmp_path), "--since", "1h", "--fail-on", "waived").exit_code == 2


def test_no_change_is_reported_in_words(folder: Path) -> None:
    assert "no change of how a backend is verified since" in lasthop("audit", str(folder), "--since", "1m").stdout


def keep(folder: Path, record: Record) -> None:
    memory.save(paths.of_folder(paths.state_root(), folder) / memory.FILE, Memory({}, record), codec.Encoder())


def test_no_change_is_claimed_only_for_the_time_that_the_record_covers(folder: Path) -> None:
    begun = time.time() - HOUR
    keep(folder, mk_record((), begun))
    stamp = datetime.fromtimestamp(begun, UTC).strftime("%Y-%m-%d %H:%M UTC")
    output = lasthop("audit", str(folder), "--since", "2h").stdout
    assert f"The record is complete only from {stamp} on" in output
    assert f"no change of how a backend is verified since {stamp} in" in output
    within = lasthop("audit", str(folder), "--since", "30m").stdout
    assert "The record" not in within and f"since {stamp}" not in within
    document = json.loads(lasthop("audit", str(folder), "--since", "2h", "-o", "json").stdout)
    assert document["completeSince"] == rfc3339(begun)


def test_without_a_beginning_no_change_is_never_claimed(folder: Path) -> None:
    keep(folder, mk_record())
    output = lasthop("audit", str(folder), "--since", "2h").stdout
    assert "The beginning of the record is unknown" in output and "since 2" not in output
    assert json.loads(lasthop("audit", str(folder), "--since", "2h", "-o", "json").stdout)["completeSince"] is None


def test_entries_dropped_for_space_are_not_covered(folder: Path) -> None:
    now = time.time()
    keep(folder, mk_record((), now - 50 * HOUR, {"loud": now - HOUR}))
    for namespace, complete in (("loud", False), ("quiet", True), ("", False)):
        chosen = ("-n", namespace) if namespace else ()
        output = lasthop("audit", str(folder), "--since", "2h", *chosen).stdout
        assert ("The record is complete only from" not in output) is complete, namespace


def test_a_damaged_record_is_an_error_and_never_no_change(folder: Path) -> None:
    (paths.of_folder(paths.state_root(), folder) / memory.FILE).write_bytes(b"{")
    result = lasthop("audit", str(folder), "--since", "2h")
    assert result.exit_code == 1 and "cannot be decoded" in result.stderr and "no change" not in result.output


def test_incidents_of_the_record_itself_are_shown(folder: Path) -> None:
    now = time.time()
    incidents = ((now - 3 * HOUR, "x was damaged"), (now - HOUR, "x was \x1b deleted"))
    keep(folder, mk_record((), now - 50 * HOUR, incidents=incidents))
    output = lasthop("audit", str(folder), "--since", "2h").stdout
    assert "the record itself: x was \\x1b deleted" in output and "damaged" not in output


def test_added_and_removed_members_are_shown(folder: Path) -> None:
    fact = "trusts CA new (SHA-256 ab…), no longer trusts CA old (SHA-256 cd…)"
    words = ("verified (CA) for a.example",) * 2
    edit = Entry(
        time.time(), "Service", "shop/api", 443, *words, "because", effect="OtherTrust", facts=(RecordedFact("ca", fact),)
    )
    keep(folder, mk_record((edit,), 1.0))
    output = lasthop("audit", str(folder), "--since", "2h").stdout
    assert "other trust" in output and fact in " ".join(output.split())


def test_the_edit_and_its_author_are_shown_for_each_gateway(folder: Path) -> None:
    cause = RecordedCause("GatewayProfile edge/prod", EditKind.CHANGED, "Ann <ann@example.com>, commit 1a2b3c4 of 2026-11-18")
    words = ("failing closed", "waived (All)", "GatewayProfile edge/prod was changed")
    gateways = ("edge/prod", "edge/web")
    edit = Entry(time.time(), "Service", "shop/api", 443, *words, effect="Opened", causes=(cause,), gateways=gateways)
    new = Entry(time.time(), "Service", "shop/b", 443, "", "plaintext", "HTTPRoute shop/b was created", effect="New")
    keep(folder, mk_record((edit, new), 1.0))
    output = " ".join(lasthop("audit", str(folder), "--since", "2h").stdout.split())
    assert "failing closed -> waived (All) because GatewayProfile edge/prod was changed" in output
    assert "GatewayProfile edge/prod changed by Ann <ann@example.com>, commit 1a2b3c4 of 2026-11-18" in output
    assert "from Gateway edge/prod, edge/web" in output
    assert "shop/b:443 new -> plaintext new because HTTPRoute shop/b was created" in output


def test_the_head_of_an_intact_chain_is_printed_and_a_removed_line_is_an_error(folder: Path) -> None:
    path = paths.of_folder(paths.state_root(), folder) / memory.FILE
    stored = memory.load(path)
    assert isinstance(stored, codec.Memory)
    result = lasthop("audit", str(folder), "--since", "7d")
    assert f"The chain of 5 entries is intact; head {stored.record.head}" in result.stdout
    entries = stored.record.entries
    for edited, fault in (
        ((*entries[:2], *entries[3:]), "entry 3 is missing"),
        ((*entries[:2], msgspec.structs.replace(entries[2], after="verified"), *entries[3:]), "entry 3 was changed"),
        (entries[:-1], "the latest entries are missing"),
    ):
        keep(folder, Record(edited, stored.record.head))
        result = lasthop("audit", str(folder), "--since", "7d")
        assert result.exit_code == 1 and fault in result.stderr and "is broken" in result.stdout
        document = json.loads(lasthop("audit", str(folder), "--since", "1m", "-o", "json").stdout)
        assert document["chain"]["intact"] is False and fault in document["chain"]["faults"][0]


def test_an_auditor_can_check_the_hashes_in_the_json_without_lasthop(folder: Path) -> None:
    document = json.loads(lasthop("audit", str(folder), "--since", "7d", "-o", "json").stdout)
    entries = sorted((*document["incidents"], *document["changes"]), key=lambda entry: int(entry["number"]))
    previous = ""
    for entry in entries:
        assert entry["previous"] == previous
        hashed = {key: value for key, value in entry.items() if key not in ("time", "hash")}
        text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        previous = hashlib.sha256(text.encode()).hexdigest()
        assert entry["hash"] == previous
    assert document["chain"] == {"entries": len(entries), "head": previous, "faults": [], "intact": True}


def test_the_installation_may_read_and_write_the_record_by_name_only() -> None:
    from lasthop.run.infra.kubernetes import installation

    roles = [d for d in installation.documents(installation.Options("image")) if d["kind"] == "Role"]
    rules = [rule for role in roles for rule in role["rules"] if rule["resources"] == ["configmaps"]]
    assert {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CONFIG_MAP], "verbs": ["get", "update"]} in rules
    assert all(rule["verbs"] == ["create"] or rule.get("resourceNames") for rule in rules)
