"""Installs the wheel into a new virtual environment, like pipx and `uv tool`, and tests it: `make wheel-check`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import version
from pathlib import Path

from release.dist import FOLDER
from release.trial import trial


def main() -> int:
    (wheel,) = FOLDER.glob("*.whl")
    with tempfile.TemporaryDirectory(prefix="lasthop-venv-") as folder:
        program = installed(wheel, Path(folder))
        # Nothing of this repository: not its source, not its environment.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        output = subprocess.run([program, "version"], env=env, check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout
        print(output, end="")
        assert f"Lasthop      {version('lasthop')}\n" in output
        trial(lambda _: [program], env)
        asking: list[str | Path] = [program, "install"]
        failed = subprocess.run(asking, env=env | {"KUBECONFIG": "/dev/null"}, stderr=subprocess.PIPE, text=True, cwd="/")
        assert failed.returncode == 1 and "no context is the current one" in failed.stderr, failed.stderr
        print(f"It reads kubeconfigs; of an empty one it says: {failed.stderr}", end="")
        print(f"It takes {size(Path(folder)) / 1e6:.0f} MB.")
    return 0


def installed(wheel: Path, folder: Path) -> Path:
    venv.create(folder, symlinks=True)  # without pip, as those two do it
    pip_install(folder / "bin" / "python", wheel)
    return folder / "bin" / "lasthop"


def pip_install(python: Path, *arguments: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, *arguments], check=True)


def size(folder: Path) -> int:
    """Returns the bytes that a folder takes on a disk."""
    return sum(512 * file.lstat().st_blocks for file in folder.rglob("*"))


if __name__ == "__main__":
    sys.exit(main())
