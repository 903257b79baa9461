"""An image of other code than the folder's is known as such."""

from __future__ import annotations

from pathlib import Path

from release.places import differing


def test_changed_missing_and_additional_files_are_reported(tmp_path: Path) -> None:
    source, image = tmp_path / "src", tmp_path / "root"
    packages = image / "opt/lasthop/lib/python3.11/site-packages"
    for folder in (source, packages):
        for name in ("same.py", "other.py"):
            (folder / "lasthop" / "cli").mkdir(parents=True, exist_ok=True)
            (folder / "lasthop" / "cli" / name).write_text(name)
    (packages / "lasthop" / "__pycache__").mkdir()
    (packages / "lasthop" / "__pycache__" / "same.cpython-311.pyc").touch()
    assert differing(source, image) == []
    (source / "lasthop/cli/other.py").write_text("edited")
    (source / "lasthop/new.py").touch()
    (packages / "lasthop/old.py").touch()
    assert differing(source, image) == [Path("lasthop/cli/other.py"), Path("lasthop/new.py"), Path("lasthop/old.py")]
