"""`make setup`: one line of progress for pip's output."""

from __future__ import annotations

import hashlib
import re

from tools.setup import LOCK as LOCK_FILE
from tools.setup import WHEEL, packages, steps

LOCK = "click==8.5.1 \\\n    --hash=sha256:00\ncolorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:01\n"


def test_packages_are_counted_and_not_their_hashes() -> None:
    assert packages(LOCK) == 2


def test_each_package_has_one_step() -> None:
    output = (
        "Looking in links: /opt/wheels\n",
        "Collecting click==8.5.1 (from -r requirements.lock (line 1))\n",
        "  Downloading click-8.5.1-py3-none-any.whl (126 kB)\n",
        "Ignoring colorama: markers 'sys_platform == \"win32\"' don't match your environment\n",
        "Requirement already satisfied: rich==15.0.0 in ./.venv (from -r requirements.lock (line 3)) (15.0.0)\n",
        "Installing collected packages: click\n",
        "Successfully installed click-8.5.1\n",
    )
    assert list(steps(iter(output), 3)) == ["1 of at most 3 packages, click", "2 of at most 3 packages, rich", "unpacking"]


def test_the_wheel_of_pip_is_the_one_of_the_lock() -> None:
    """If not, `make lock` has found a newer one: pip download --no-deps --dest tools pip==VERSION, and delete the older."""
    version = WHEEL.name.split("-")[1]
    (pinned,) = re.findall(
        rf"^pip=={re.escape(version)} ((?:\\\n    --hash=sha256:\w+ ?)+)$", LOCK_FILE.read_text(), re.MULTILINE
    )
    assert f"sha256:{hashlib.sha256(WHEEL.read_bytes()).hexdigest()}" in pinned
