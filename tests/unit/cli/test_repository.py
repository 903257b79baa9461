"""`check` and `audit` of any repository: other kinds, files, standard input, and the effects of an edit."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner

from lasthop.cli.commands.schema import document as schema
from lasthop.cli.main import main
from lasthop.edge.admission.limits import MAX_FILE
from tests.certificates import Certificate
from tests.folders import BASE, CA, config_map, good_folder, lasthop, policy

STRANGER = Certificate("stranger", ca=True).pem
ROOT = Path(__file__).parents[3]
OTHERS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: api, namespace: shop}
"""
UNTYPED_KUSTOMIZATION = "resources: [base.yaml]\n"
KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [base.yaml]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return good_folder(tmp_path / "objects")


@pytest.fixture
def repository(folder: Path) -> Path:
    def git(*args: str) -> None:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        subprocess.run(["git", "-C", str(folder.parent), *identity, *args], check=True, capture_output=True)

    git("init", "--quiet", ".")
    git("add", "objects")
    git("commit", "--quiet", "--message", "first")
    return folder


@pytest.mark.parametrize("kustomization", [KUSTOMIZATION, UNTYPED_KUSTOMIZATION])
def test_other_kinds_are_named_once_and_change_nothing(folder: Path, kustomization: str) -> None:
    before = _audited(folder)
    (folder / "others.yaml").write_text(OTHERS)
    (folder / "values.yaml").write_text("replicaCount: 1\n")
    (folder / "kustomization.yaml").write_text(kustomization)
    (folder / "more.yaml").write_text("[1, 2]\n")
    result = lasthop("check", folder)
    assert (result.exit_code, "2 without apiVersion and kind" in result.stderr) == (0, True)
    assert (result.exit_code, "nothing wrong" in result.stdout) == (0, True)
    assert result.stderr.count("Deployment") == 1
    assert "1 Deployment (apps/v1), 1 Ingress (networking.k8s.io/v1)" in result.stderr
    assert "kustomize build DIR | lasthop check -" in result.stderr
    assert _audited(folder) == before


def _audited(folder: Path) -> str:
    """Returns the audit without the time at which it was made."""
    return "\n".join(line for line in lasthop("audit", folder).stdout.splitlines() if not line.startswith("Made: "))


def test_a_misspelt_kind_among_others_is_still_an_error(folder: Path) -> None:
    (folder / "others.yaml").write_text(f"{OTHERS}---\n{policy(name='more').replace('BackendTLSPolicy', 'BackendTLSPolcy')}")
    result = lasthop("check", folder)
    assert (result.exit_code, "unknown kind" in result.stdout) == (1, True)


def test_standard_input_is_checked_like_a_file(folder: Path) -> None:
    text = f"{BASE}---\n{policy()}---\n{config_map()}---\n{OTHERS}"
    fine = CliRunner().invoke(main, ["check", "-"], input=text)
    assert (fine.exit_code, fine.stdout) == (0, "nothing wrong in 1 file; 7 objects\n")
    without_ca = text.replace("name: corp-ca, namespace", "name: other, namespace")
    wrong = CliRunner().invoke(main, ["check", "-f", "-"], input=without_ca)
    assert (wrong.exit_code, "<stdin>:" in wrong.stdout) == (1, True)
    assert "/tmp" not in wrong.stdout


def test_single_files_are_read_together_and_named_as_given(folder: Path) -> None:
    files = [arg for name in ("base", "policy") for arg in ("-f", str(folder / f"{name}.yaml"))]
    result = lasthop("check", *files)
    assert result.exit_code == 1, "the CA is in another file"
    assert f"{folder / 'policy.yaml'}:" in result.stdout
    assert lasthop("check", *files, "-f", folder / "ca.yaml").exit_code == 0
    assert lasthop("check", folder / "base.yaml").exit_code == 0
    assert "no such file" in lasthop("check", "-f", folder / "nothing.yaml", "-f", folder).stderr


def test_endpoints_that_only_a_cluster_knows_are_not_called_missing(folder: Path) -> None:
    service, _, _ = BASE.partition("---\napiVersion: discovery.k8s.io/v1")
    (folder / "base.yaml").write_text(service)
    assert "no ready endpoint" in lasthop("check", folder).stdout
    (folder / "base.yaml").write_text(service.replace("  ports: [{name", "  selector: {app: api}\n  ports: [{name"))
    result = lasthop("check", folder)
    assert (result.exit_code, "no ready endpoint" in result.stdout) == (0, False)
    assert "1 Service has a selector" in result.stderr


def test_consequences_of_a_mistake_on_standard_input_are_not_counted() -> None:
    broken = f"{BASE}---\napiVersion: v1\nkind: Service\nmetadata: {{name: more}}\n"
    result = CliRunner().invoke(main, ["check", "-", "-o", "json"], input=broken)
    (mistake,) = json.loads(result.stdout)["findings"]
    assert (mistake["file"], mistake["reason"]) == ("<stdin>", "Required")
    assert {"FileNotApplied", "NothingServed"} == {follow["reason"] for follow in mistake["follows"]}


@pytest.mark.program("bash")
def test_a_pipe_of_the_shell_is_read_as_a_file(folder: Path) -> None:
    script = f"exec {sys.executable} -m lasthop.cli.main check <(cat {folder}/base.yaml) -f {folder}/policy.yaml -o json"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (json.loads(result.stdout)["files"], result.stderr) == (2, "")


def test_files_that_a_shell_has_expanded_are_read_together(folder: Path) -> None:
    names = sorted(folder.glob("*.yaml"))
    assert (lasthop("check", *names).exit_code, lasthop("audit", *names).exit_code) == (0, 0)
    assert lasthop("check", *names).stdout == lasthop("check", folder).stdout
    compared = lasthop("check", *names, "--against", "HEAD")
    assert (compared.exit_code, "one folder or file" in compared.stderr) == (2, True)


def test_a_folder_that_is_named_twice_is_read_once(folder: Path) -> None:
    assert lasthop("check", folder, "-f", folder).output == lasthop("check", folder).output


def test_standard_input_larger_than_a_file_may_be_is_refused() -> None:
    result = CliRunner().invoke(main, ["check", "-"], input=b"#" * (MAX_FILE + 1))
    assert (result.exit_code, f"it is larger than {MAX_FILE} bytes" in result.stdout) == (1, True)


def test_against_a_commit_only_what_is_new_is_shown(repository: Path) -> None:
    (repository / "base.yaml").write_text(BASE.replace("{name: api, port: 80}", "{name: nowhere, port: 80}"))
    document = json.loads(lasthop("check", repository, "--against", "HEAD", "-o", "json").stdout)
    assert [finding["reason"] for finding in document["introduced"]] == ["BackendNotFound"]
    assert (document["fixed"], document["errors"], document["weaker"]) == ([], 1, 0)
    assert lasthop("check", repository, "--against", "HEAD").exit_code == 1
    (repository / "base.yaml").write_text(BASE)
    assert lasthop("check", repository, "--against", "HEAD").exit_code == 0


def test_a_deleted_policy_is_a_hop_that_is_verified_less(repository: Path) -> None:
    (repository / "policy.yaml").unlink()
    result = lasthop("check", repository, "--against", "HEAD")
    assert result.exit_code == 3
    assert "shop/web -> shop/api:443  weaker" in result.stdout
    assert "was  must be verified" in result.stdout
    assert "now  plaintext" in result.stdout
    assert "::error " in lasthop("check", repository, "--against", "HEAD", "-o", "github").stdout


WAIVERS = """\
apiVersion: lasthop.dev/v1alpha1
kind: VerificationWaiver
metadata: {{name: w, namespace: shop}}
spec: {{waives: {waives}, reason: for now{expires}}}
---
apiVersion: lasthop.dev/v1alpha1
kind: GatewayProfile
metadata: {{name: rules, namespace: shop}}
spec: {{backendTLS: {{waivers: Allow}}}}
"""


def waived(waives: str, expires: str = "") -> dict[str, str]:
    """Files of a folder whose one policy uses a waiver."""
    ref = "    - {group: lasthop.dev, kind: VerificationWaiver, name: w}\n"
    head, _, _ = policy().rpartition("    - ")
    ending = f", expires: '{expires}'" if expires else ""
    texts = {"policy.yaml": f"{head}{ref}" if waives == "All" else f"{policy()}{ref}"}
    return {**texts, "waiver.yaml": WAIVERS.format(waives=waives, expires=ending)}


def permitting(folder: Path) -> Path:
    """Lets waivers be used there."""
    base = (folder / "base.yaml").read_text()
    rules = "infrastructure: {parametersRef: {group: lasthop.dev, kind: GatewayProfile, name: rules}}"
    (folder / "base.yaml").write_text(base.replace("gatewayClassName: lasthop\n", f"gatewayClassName: lasthop\n  {rules}\n"))
    (folder / "waiver.yaml").write_text(WAIVERS.format(waives="All", expires=""))
    return folder


def edited(folder: Path, place: Path, files: dict[str, str | None]) -> Path:
    made = place / f"edited-{len(list(place.iterdir()))}"
    shutil.copytree(folder, made)
    for name, text in files.items():
        if text is None:
            (made / name).unlink()
        else:
            (made / name).write_text(text)
    return made


@pytest.mark.parametrize("waives", ["All", "Names", "Expiry"])
def test_a_waiver_and_its_way_to_plaintext_fail_a_pipeline(folder: Path, tmp_path: Path, waives: str) -> None:
    verified = permitting(folder)
    weak = edited(verified, tmp_path, dict(waived(waives)))
    plain = edited(weak, tmp_path, {"policy.yaml": None})
    for before, after, code in (
        (verified, weak, 3),
        (weak, plain, 3),
        (verified, plain, 3),
        (weak, verified, 0),
        (weak, weak, 0),
    ):
        result = lasthop("check", after, "--against", before)
        assert result.exit_code == code, result.stdout
        assert ("  weaker" in result.stdout) is (code == 3)


def test_a_waiver_that_loses_its_end_fails_a_pipeline(folder: Path, tmp_path: Path) -> None:
    permitting(folder)
    ends = [
        edited(folder, tmp_path, dict(waived("All", expires)))
        for expires in ("2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "")
    ]
    for before, after in itertools.combinations(ends, 2):
        result = lasthop("check", after, "--against", before)
        assert result.exit_code == 3 and "the waiver ends" in result.stdout
        assert lasthop("check", before, "--against", after).exit_code == 0


def test_another_ca_is_shown_and_fails_where_it_is_asked_to(folder: Path, tmp_path: Path) -> None:
    other = edited(folder, tmp_path, {"ca.yaml": config_map(pem=STRANGER)})
    result = lasthop("check", other, "--against", folder)
    assert result.exit_code == 0 and "shop/web -> shop/api:443  other trust" in result.stdout
    shown = " ".join(result.stdout.split())
    assert "trusts CA stranger (SHA-256 " in shown and "no longer trusts CA " in shown
    assert "1 hop changed, 1 of them against other CAs, names or pins" in shown
    strict = lasthop("check", other, "--against", folder, "--fail-on", "other-trust", "-o", "json")
    (hop,) = json.loads(strict.stdout)["hops"]
    assert (strict.exit_code, hop["change"], hop["facts"][0]["subject"]) == (3, "OtherTrust", "ca")
    assert "::warning " in lasthop("check", other, "--against", folder, "-o", "github").stdout
    assert lasthop("check", folder, "--against", folder, "--fail-on", "other-trust").exit_code == 0
    assert lasthop("check", folder, "--fail-on", "other-trust").exit_code == 2


def test_a_ca_beside_the_first_and_an_older_tls_fail_a_pipeline(folder: Path, tmp_path: Path) -> None:
    more = edited(folder, tmp_path, {"ca.yaml": config_map(pem=f"{CA.pem}{STRANGER}")})
    assert lasthop("check", more, "--against", folder).exit_code == 3
    assert lasthop("check", folder, "--against", more).exit_code == 0
    older = policy().replace("spec:\n", "spec:\n  options: {lasthop.dev/min-tls-version: '1.0'}\n", 1)
    result = lasthop("check", edited(folder, tmp_path, {"policy.yaml": older}), "--against", folder)
    assert result.exit_code == 3 and "TLS 1.0 to 1.3, no longer TLS 1.2 to 1.3" in result.stdout


def test_a_text_that_could_not_be_read_on_one_side_is_not_judged(folder: Path, tmp_path: Path) -> None:
    """The unread file may contain the policy that the other side lacks."""
    broken = edited(folder, tmp_path, {"policy.yaml": f"{policy()}  - x: [\n"})
    plain = edited(folder, tmp_path, {"policy.yaml": None})
    result = lasthop("check", plain, "--against", broken)
    assert result.exit_code == 1
    assert "Not judged, because it could not be compared" in result.stdout and "policy.yaml:" in result.stdout
    document = json.loads(lasthop("check", plain, "--against", broken, "-o", "json").stdout)
    assert len(document["notJudged"]) == 1 and document["errors"] == 0
    assert "::error title=not judged" in lasthop("check", plain, "--against", broken, "-o", "github").stdout
    assert lasthop("check", broken, "--against", edited(broken, tmp_path, {})).exit_code == 0, "the same text on both sides"


def test_a_crashed_review_is_not_judged(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("lasthop.engine.resolve.hops.verdict._connected", crash)
    plain = edited(folder, tmp_path, {"policy.yaml": None})
    result = lasthop("check", plain, "--against", folder)
    assert result.exit_code == 1 and "Lasthop failed in" in result.stdout


def test_two_folders_are_compared_both_ways(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "base.yaml").write_text(BASE)
    assert lasthop("check", folder, "--against", bare).exit_code == 0
    assert lasthop("check", bare, "--against", folder).exit_code == 3


def test_a_folder_that_did_not_exist_at_the_commit_was_empty(repository: Path) -> None:
    new = repository.parent / "new"
    good_folder(new)
    document = json.loads(lasthop("check", new, "--against", "HEAD", "-o", "json").stdout)
    assert [finding["reason"] for finding in document["fixed"]] == ["NothingServed"]
    assert document["weaker"] == 0


@pytest.mark.parametrize("reference", ["nowhere", "--output=/tmp/x", ""])
def test_a_name_that_is_neither_a_folder_nor_a_commit_is_refused(repository: Path, reference: str) -> None:
    result = lasthop("check", repository, f"--against={reference}")
    assert (result.exit_code, "neither a folder nor a commit" in result.stderr) == (1, True)


def test_the_schema_for_editors_admits_what_check_admits_and_finds_typos() -> None:
    validator = jsonschema_rs.Draft7Validator(schema())
    documents = [*yaml.safe_load_all(f"{BASE}---\n{policy()}---\n{config_map()}---\n{OTHERS}")]
    assert all(validator.is_valid(document) for document in documents)
    gateway = next(document for document in documents if document["kind"] == "Gateway")
    gateway["spec"]["listners"] = []
    assert not validator.is_valid(gateway)


def test_hooks_and_the_action_call_commands_that_exist(folder: Path) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        name, *args = hook["entry"].split()
        assert name == "lasthop"
        assert lasthop(args[0], "--help").exit_code == 0
        assert hook["pass_filenames"] is False
        assert hook["always_run"] is True, "or a policy could be deleted unseen"
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert not any("${{" in script for script in scripts), "an input would run as code"
    assert any('"${args[@]}" -- "$FOLDER"' in script for script in scripts)
    assert not any("--depth=1 " in script for script in scripts), "a complete clone must not become shallow"


def _against(folder: Path, *args: str) -> str:
    result = lasthop("check", *args, folder)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return f"{result.exit_code}: {result.output}"


def test_before_the_first_commit_everything_is_new(folder: Path) -> None:
    subprocess.run(["git", "-C", str(folder.parent), "init", "--quiet", "."], check=True)
    assert "which has no commit yet" in _against(folder, "--against", "HEAD")
    assert "neither a folder nor a commit" in _against(folder, "--against", "main")


def test_variables_of_a_hook_of_git_do_not_mislead(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert _against(repository, "--against", "HEAD").startswith("0: ")


def test_links_are_followed_within_a_repository_and_no_further(repository: Path, git: Callable[..., None]) -> None:
    """Objects of a folder may be links, to other folders of the repository or to the system."""
    shared = repository.parent / "shared"
    shared.mkdir()
    (repository / "base.yaml").rename(shared / "base.yaml")
    (repository / "base.yaml").symlink_to("../shared/base.yaml")
    (repository / "away.yaml").symlink_to("/etc/hostname")
    git("add", "--all")
    git("commit", "--quiet", "--message", "links")
    (repository / "away.yaml").unlink()
    assert _against(repository, "--against", "HEAD").startswith("0: "), "nothing is new: what was linked was there before"


@pytest.fixture
def git(repository: Path) -> Callable[..., None]:
    def git(*args: str) -> None:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        subprocess.run(["git", "-C", str(repository.parent), *identity, *args], check=True, capture_output=True)

    return git


SCRIPT = next(
    step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if step.get("name") == "Check"
)


@pytest.fixture
def action(repository: Path, tmp_path: Path, git: Callable[..., None]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the last step of the action, in a clone of the repository, with the variables of a runner."""
    program = tmp_path / "temp" / "lasthop" / "bin" / "lasthop"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(sys.executable).parent / "lasthop")

    def run(folder: str, against: str = "", *, depth: int = 0) -> subprocess.CompletedProcess[str]:
        clone = tmp_path / f"clone-{depth}"
        if not clone.exists():
            shallow = ["--depth", str(depth)] if depth else []
            subprocess.run(["git", "clone", "--quiet", *shallow, f"file://{repository.parent}", clone], check=True)
            (clone / "objects" / "policy.yaml").unlink(missing_ok=True)
        env = {**os.environ, "FOLDER": folder, "AGAINST": against, "RUNNER_TEMP": str(tmp_path / "temp")}
        env |= {"GITHUB_WORKSPACE": str(clone)}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPT["run"]]
        return subprocess.run(shell, cwd=clone, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.mark.program("bash")
def test_the_action_checks_a_folder(action: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = action("objects")
    assert (result.returncode, "0 errors, 1 warning" in result.stdout) == (0, True), result
    missing = action("")
    assert (missing.returncode, missing.stdout) == (1, "::error::the input `folder` is missing\n"), (
        "a runner does not require it"
    )
    assert "cannot read $(touch x)" in action("$(touch x)").stderr


@pytest.mark.program("bash")
@pytest.mark.parametrize("depth", [0, 1])
def test_the_action_compares_with_a_branch_that_is_not_in_the_clone(
    action: Callable[..., subprocess.CompletedProcess[str]],
    repository: Path,
    git: Callable[..., None],
    depth: int,
    tmp_path: Path,
) -> None:
    git("branch", "base")
    (repository / "broken.yaml").write_text("kind: [\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "second")
    for name in ("base", "origin/base"):
        result = action("objects", name, depth=depth)
        assert (result.returncode, "::error file=objects/broken.yaml,line=" in result.stdout) == (1, True), (name, result)
    shallow = ["git", "-C", str(tmp_path / f"clone-{depth}"), "rev-parse", "--is-shallow-repository"]
    assert subprocess.run(shallow, capture_output=True, text=True, check=True).stdout.strip() == ("true" if depth else "false")
    assert action("objects", "objects", depth=depth).returncode == 0, "a folder is compared as it is"
    injected = action("objects", "--upload-pack=touch pwned;", depth=depth)
    assert (injected.returncode, list(tmp_path.rglob("pwned"))) == (1, [])
