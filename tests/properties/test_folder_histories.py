"""After any events of a folder, the final configuration equals that of a start on the same folder with the same last good
contents. A start without those differs only if a last good content is in force."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import RejectedPolicy
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import StateDirectory
from lasthop.edge.sources.source import Batch
from tests.certificates import Certificate, dns

PAIRS = [Certificate(f"{n}.example", sans=dns(f"{n}.example")) for n in range(3)]
FILES = ("a.yaml", "b.yaml", "sub/c.yaml", "d.yaml")
LOCAL = ("ca.pem", "tls.crt", "tls.key")


def service(name: str, port: int) -> str:
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{ports: [{{port: {port}}}]}}\n"


def policy(name: str, *targets: str) -> str:
    refs = ", ".join(f"{{group: '', kind: Service, name: {target}}}" for target in targets)
    return (
        f"apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: {name}, namespace: shop}}\n"
        f"spec:\n  targetRefs: [{refs}]\n  validation: {{hostname: web.example, wellKnownCACertificates: System}}\n"
    )


def config_map(name: str) -> str:
    path = f"{{lasthop.dev/file.ca.crt: {os.pardir}/ca.pem}}"
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop, annotations: {path}}}\n"


def secret(name: str) -> str:
    paths = f"{{lasthop.dev/file.tls.crt: {os.pardir}/tls.crt, lasthop.dev/file.tls.key: {os.pardir}/tls.key}}"
    return (
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: shop, annotations: {paths}}}\n"
        "type: kubernetes.io/tls\n"
    )


DOCUMENTS = st.one_of(
    st.builds(service, st.sampled_from("abc"), st.integers(1, 3)),
    st.builds(policy, st.sampled_from("pq"), st.sampled_from("abc")),
    st.builds(policy, st.sampled_from("pq"), st.sampled_from("ab"), st.just("c")),
    st.builds(config_map, st.sampled_from("mn")),
    st.builds(secret, st.sampled_from("st")),
)
GOOD = st.lists(DOCUMENTS, min_size=1, max_size=3, unique=True).map("---\n".join)
BROKEN = st.one_of(
    GOOD.map(lambda text: text + "\na: ["),
    GOOD.map(lambda text: text.replace("metadata", "metadate", 1)),
    GOOD.map(lambda text: text.replace("port: ", "port: -")),
    GOOD.map(lambda text: text.replace("web.example", "'not a host'")),
    st.tuples(GOOD, st.integers(1, 80)).map(lambda drawn: drawn[0][: -drawn[1]]),
    st.sampled_from(["", "\n", "# only a comment\n", "just text", "\x00"]),
)


class Write(NamedTuple):
    path: str
    text: str


class Delete(NamedTuple):
    path: str


class Rename(NamedTuple):
    path: str
    to: str


LOCAL_TEXTS = st.one_of(
    st.sampled_from(PAIRS).map(lambda pair: pair.pem),
    st.sampled_from(PAIRS).map(lambda pair: pair.key_pem),
    st.sampled_from(PAIRS).map(lambda pair: pair.pem[:-60]),
    st.just(""),
)
EDITS = st.one_of(
    st.builds(Write, st.sampled_from(FILES), GOOD),
    st.builds(Write, st.sampled_from(FILES), BROKEN),
    st.builds(Write, st.sampled_from(FILES), st.just("\n")),
    st.builds(Write, st.sampled_from(LOCAL), LOCAL_TEXTS),
    st.builds(Write, st.just("tls.crt"), st.sampled_from(PAIRS).map(lambda pair: pair.pem)),
    st.builds(Delete, st.sampled_from((*FILES, *LOCAL))),
    st.builds(Rename, st.sampled_from(FILES), st.sampled_from(FILES)),
    st.just("look"),
    st.just("look"),
    st.just("restart"),
)


T = TypeVar("T", bound=Object | None)


def uncounted(obj: T) -> T:
    return replace(obj, metadata=replace(obj.metadata, generation=0)) if obj is not None else obj


class Living:
    """A loader on a folder, with its findings so far."""

    def __init__(self, root: Path, state: Path | None) -> None:
        self._folder, self._allowed, self._state = root / "folder", [root], state
        self._loader = Loader(self._folder, StateDirectory(state) if state else None, self._allowed)
        self.objects: dict[Key, Object] = {}
        self.last = Batch({})
        self.look()

    def look(self) -> None:
        if (batch := self._loader.apply(self._loader.look())) is not None:
            self.last = batch
            for key, obj in batch.changes.items():
                if obj is None:
                    del self.objects[key]
                else:
                    self.objects[key] = obj
        self._loader.save()

    @property
    def rejected(self) -> set[Key]:
        return {key for key, obj in self.objects.items() if isinstance(obj, RejectedPolicy)}

    @property
    def contested(self) -> set[Key]:
        return {finding.object for finding in self.last.findings if finding.reason == "DuplicateObject" and finding.object}

    def settled(self, without: set[Key]) -> dict[Key, Object]:
        """Returns the state without edit counters and without objects that two files contain, which depend on the order of the
        files."""
        paths = {key.path for key in without}
        return {
            key: uncounted(replace(obj, last_good=uncounted(obj.last_good)) if isinstance(obj, RejectedPolicy) else obj)
            for key, obj in self.objects.items()
            if key.path not in paths
        }


def edit(root: Path, what: Write | Delete | Rename) -> None:
    place = root if what.path in LOCAL else root / "folder"
    path = place / what.path
    with contextlib.suppress(FileNotFoundError):
        match what:
            case Write():
                path.write_text(what.text)
            case Delete():
                path.unlink()
            case Rename():
                path.rename(place / what.to)


@contextlib.contextmanager
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "folder" / "sub").mkdir(parents=True)
        for number, text in enumerate((PAIRS[0].pem, PAIRS[0].pem, PAIRS[0].key_pem)):
            (Path(name) / LOCAL[number]).write_text(text)
        yield Path(name)


def played(root: Path, edits: list[Write | Delete | Rename | str]) -> Living:
    state = root / "state"
    living = Living(root, state)
    for step in edits:
        match step:
            case "look":
                living.look()
            case "restart":
                living = Living(root, state)
            case Write() | Delete() | Rename():
                edit(root, step)
    living.look()
    return living


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EDITS, min_size=5, max_size=40))
def test_a_history_ends_where_a_start_on_the_same_folder_and_state_ends(edits: list[Write | Delete | Rename | str]) -> None:
    with place() as root:
        living = played(root, edits)
        again = Living(root, root / "state")
        contested = living.contested | again.contested
        assert living.settled(contested) == again.settled(contested)
        if not contested:
            assert living.last.findings == again.last.findings
            assert living.last.not_applied == again.last.not_applied
        assert living.last.policies_known == again.last.policies_known


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EDITS, min_size=5, max_size=40))
def test_a_start_without_state_differs_only_where_a_last_good_content_is_in_force(
    edits: list[Write | Delete | Rename | str],
) -> None:
    with place() as root:
        living = played(root, edits)
        cold = Living(root, None)
        older = {key for file in living.last.not_applied for key in file.objects}
        local = {finding.object for finding in living.last.findings if finding.reason == "LocalFile" and finding.object}
        apart = living.contested | cold.contested | older | local
        # A cold start refuses targets that a broken file names; with a last good content, only targets that this did not name.
        refused = living.rejected | cold.rejected
        namespaces = {key for key in (*living.objects, *cold.objects) if key.kind == "Namespace"} if older else set()
        apart |= refused | namespaces
        assert living.settled(apart) == cold.settled(apart)
        if not older:
            assert living.last.policies_known == cold.last.policies_known
        assert cold.rejected >= living.rejected or older or living.contested


def test_histories_are_rich_enough_to_mean_something() -> None:
    """Each of these must occur, or the properties prove little."""
    seen: set[str] = set()

    @settings(max_examples=500, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(EDITS, min_size=5, max_size=40))
    def look(edits: list[Write | Delete | Rename | str]) -> None:
        with place() as root:
            living = played(root, edits)
            seen.update(finding.reason for finding in living.last.findings)
            seen.update(type(obj).__name__ for obj in living.objects.values())
            seen.add(f"policies known: {living.last.policies_known}")

    look()
    kinds = {"Service", "BackendTLSPolicy", "RejectedPolicy", "ConfigMap", "Secret", "policies known: False"}
    reasons = {"OlderTextInForce", "FileNotApplied", "EmptyFile", "OlderPairInForce", "LocalFile", "DuplicateObject"}
    assert kinds | reasons <= seen
