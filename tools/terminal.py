"""Records docs/images/terminal.svg (`python -m tools.terminal`): examples/failing-policy in a terminal, from real output.

Needs the ports of that example, and curl.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from examples.stories import HERE, STORIES, prepare, serving

NAME: Final = "failing-policy"
TARGET: Final = HERE.parent / "docs" / "images" / "terminal.svg"
WIDTH: Final = 118
PATIENCE: Final = 120
"""Seconds."""
CURL: Final = r"curl -w '%{http_code}\n' http://127.0.0.1:8080/"
STEPS: Final = (
    CURL,
    f"lasthop check examples/{NAME}",
    f"sed -i s/shop-cas/shop-ca/ examples/{NAME}/policy.yaml",
    CURL,
    "lasthop probe api",
    f"sed -i s/api.shop.example/api.internal.example/ examples/{NAME}/policy.yaml",
    CURL,
)
ANSWERS: Final = {0: "500", 3: "503", 6: "200"}
"""What a step shows once the edit before it is in force."""
FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich's template loads fonts from elsewhere; readers have a monospaced one."""


def typed(command: str, folder: Path, env: dict[str, str]) -> str:
    """Returns the output of a command on a terminal, including colours."""
    main, other = pty.openpty()
    with contextlib.closing(open(main, "rb", buffering=0)) as reading:
        process = subprocess.Popen(
            ["sh", "-c", f"stty cols {WIDTH}; {command.replace('curl', 'curl -s')}"],
            cwd=folder,
            env=env,
            stdin=other,
            stdout=other,
            stderr=subprocess.DEVNULL,  # where it reads from, which is a folder of this recording
        )
        os.close(other)
        received = b""
        with contextlib.suppress(OSError):  # how Linux reports the end of a terminal
            while piece := reading.read(65536):
                received += piece
        process.wait()
    return received.decode().replace("\r\n", "\n")


def recorded(folder: Path, env: dict[str, str]) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for number, command in enumerate(STEPS):
        output, end = typed(command, folder, env), time.monotonic() + PATIENCE
        while ANSWERS.get(number, "") not in output and time.monotonic() < end:
            output = typed(command, folder, env)
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(output.rstrip("\n")), end="\n" if output else "")
    return FONTS.sub("", console.export_svg(title="lasthop", theme=MONOKAI, unique_id="lasthop"))


async def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "examples" / NAME
        shutil.copytree(HERE / NAME, folder, ignore=shutil.ignore_patterns("certs"))
        prepare(folder, STORIES[NAME])
        programs = Path(sys.executable).parent
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
        env |= {"LASTHOP_RUN_DIR": f"{root}/r", "LASTHOP_STATE_DIR": f"{root}/s"}
        async with serving(folder, STORIES[NAME]):
            command = (programs / "lasthop", "run", folder)
            lasthop = await asyncio.create_subprocess_exec(
                *command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                TARGET.write_text(await asyncio.to_thread(recorded, Path(root), env))
            finally:
                lasthop.terminate()
                await lasthop.wait()


if __name__ == "__main__":
    asyncio.run(main())
