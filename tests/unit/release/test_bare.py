"""`make bare`: the files from this machine, and the expected result of `make run`."""

from __future__ import annotations

from pathlib import Path

from examples import quickstart
from release.bare import NOT_READY, READY, apt_settings, expectations, needy, pip_settings, share


def test_pips_configuration_becomes_its_environment_and_the_environment_wins() -> None:
    listing = ":env:.cert='/here/ca.pem'\nglobal.cert='/etc/ca.pem'\nglobal.index-url='https://mirror.example/simple?a=b'\n"
    assert pip_settings(listing) == {"PIP_CERT": "/here/ca.pem", "PIP_INDEX_URL": "https://mirror.example/simple?a=b"}
    assert pip_settings("") == {}


def test_apt_downloads_as_it_does_here_and_nothing_for_other_tools() -> None:
    kept = 'Acquire::http::Proxy "http://proxy.example:3128";\n'
    assert apt_settings(f'{kept}Acquire::IndexTargets::deb::DEP-11::MetaKey "x";\n') == kept


def test_files_and_folders_that_settings_name_are_at_the_same_place(tmp_path: Path) -> None:
    root, bundle, wheels = tmp_path / "root", tmp_path / "ca.pem", tmp_path / "wheels"
    bundle.write_text("CA")
    wheels.mkdir()
    (wheels / "a.whl").write_text("wheel")
    for value in (str(bundle), str(wheels), str(bundle), str(tmp_path / "missing"), "https://mirror.example/", "180", ""):
        share(value, root)
    files = {f"/{file.relative_to(root)}": file.read_text() for file in root.rglob("*") if file.is_file()}
    assert files == {str(bundle): "CA", str(wheels / "a.whl"): "wheel"}


def test_the_commands_that_make_run_suggests_work() -> None:
    output = """
│ curl -i http://127.0.0.1:8080/right      │ 200                              │
│ curl -i http://127.0.0.1:8080/wrong-name │ 503: its certificate is for      │
│                                          │ old.example                      │
Admin page: http://127.0.0.1:19000/
"""
    assert expectations(output) == [("http://127.0.0.1:8080/right", 200), ("http://127.0.0.1:8080/wrong-name", 503)]


def test_a_plain_user_runs_the_files_whose_tests_need_a_program() -> None:
    files = needy()
    assert {"tests/importers/test_with_nginx.py", "tests/web/test_page.py", "tests/proxy/test_systemd.py"} <= set(files)
    assert "tests/unit/test_engine.py" not in files


def test_the_last_lines_are_those_of_the_demo() -> None:
    demo = (Path(quickstart.__file__).parent / "__main__.py").read_text()
    assert [demo.count(line) for line in (READY, NOT_READY)] == [1, 1]
