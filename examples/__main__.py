"""`python -m examples NAME`: the certificates and backends of a story, and `lasthop run` on its folder, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from examples.stories import HERE, STORIES, prepare, serving


async def run(name: str) -> int:
    folder, story = HERE / name, STORIES[name]
    prepare(folder, story)
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    async with serving(folder, story):
        print(
            f"Backends are running. In another terminal, see {shown}/README.md, or try:", *story.tries, sep="\n  ", flush=True
        )
        # A separate process group, so that one Ctrl-C reaches it once: through this process.
        command = (sys.executable, "-m", "lasthop.cli.main", "run", str(shown))
        lasthop = await asyncio.create_subprocess_exec(*command, process_group=0)

        def stop() -> None:
            with contextlib.suppress(ProcessLookupError):
                lasthop.send_signal(signal.SIGINT)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        return await lasthop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples", description="Try one of the examples on this machine.")
    parser.add_argument("name", choices=sorted(STORIES), help="the folder in examples/")
    parser.add_argument("--prepare", action="store_true", help="only make its certificates, for lasthop check")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(HERE / arguments.name, STORIES[arguments.name])
        return 0
    try:
        return asyncio.run(run(arguments.name))
    except OSError as error:
        print(f"{error.strerror or error}: is another example, or another program, using a port of this one?", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
