"""Maps image names to files of this machine and their command, by the last part of the name.

`lasthop` is this repository: its virtual environment (with Envoy's binary in site-packages) and its source tree, read-only at
their own paths, so that pods run exactly the code that is being worked on. Or it is the image that ships (`make image`): its
own file system, and nothing of this machine's. `lasthop:before` is another version, to upgrade from: the virtual environment
that its wheel is installed in.
"""

from __future__ import annotations

import compileall
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
BACKENDS = ("echo-basic", "coredns")  # images of one program, which is the whole image
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    entrypoint: tuple[str, ...]
    files: dict[Path, str] = field(default_factory=dict)  # host path -> path in the container
    env: dict[str, str] = field(default_factory=dict)
    user: int = 0
    working_dir: str = "/"
    root: Path | None = None  # a whole file system; without it, the machine's /usr and the files


class Images:
    def __init__(
        self,
        programs: Mapping[str, Path],
        source: Path = SOURCE,
        shipped: Path | None = None,
        before: Path | None = None,
    ) -> None:
        """`shipped` is the file system of the image that `make image` has built, if that is to be run; `before` the virtual
        environment of another version."""
        own = {name: Image((f"/{name}",), {programs[name]: f"/{name}"}) for name in BACKENDS if name in programs}
        older = {"lasthop:before": _installed(before)} if before else {}
        self.known = {**own, **older, "lasthop": _shipped(shipped) if shipped else _lasthop(source)}

    def find(self, name: str) -> Image | None:
        return next((image for known, image in self.known.items() if re.search(rf"(^|/){known}(:|@|$)", name)), None)


def _shipped(root: Path) -> Image:
    """Returns the image's settings in deploy/Dockerfile."""
    env = {"PATH": f"/opt/lasthop/bin:{DEFAULT_PATH}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return Image(entrypoint=(), env={**env, "LASTHOP_RUN_DIR": "/run/lasthop"}, user=65532, root=root)


def _lasthop(source: Path) -> Image:
    # Compiled here once: the pods see the folder read-only and would compile it anew at each start.
    compileall.compile_dir(source, quiet=2, workers=1)
    return _installed(Path(sys.prefix), source)


def _installed(venv: Path, *sources: Path) -> Image:
    folders = [venv, *sources]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/usr"):  # for example an interpreter of pyenv or uv in a home folder
        folders.append(base)
    search = {"PYTHONPATH": ":".join(map(str, sources))} if sources else {}
    return Image(
        entrypoint=(str(venv / "bin" / "lasthop"),),
        files={folder: str(folder) for folder in folders},
        env={"PATH": f"{venv / 'bin'}:{DEFAULT_PATH}", "PYTHONUNBUFFERED": "1", **search},
        user=65532,  # as in the Dockerfile: non-root
    )
