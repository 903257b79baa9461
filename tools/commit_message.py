"""Checks the subject of a commit message: a git hook (commit-msg), installed by `pre-commit install`.

python -m tools.commit_message .git/COMMIT_EDITMSG
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

LONGEST: Final = 72
BY_GIT: Final = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
"""Subjects that git writes itself."""
SCISSORS: Final = re.compile(r"^# -+ >8 -+$.*", re.MULTILINE | re.DOTALL)
"""`git commit --verbose` puts the diff below this line."""
OTHER_MOOD: Final = re.compile(
    r"(?!(?:embed|feed|need|seed|speed|bring)$)"
    r"(?:the|an?|this|that|these|those|its?|we|i|all|no|not|every|each|some|when|if|in|on|for|to|with|from|of"
    r"|\w{2,}ed|\w{3,}ing|\w{2,}[^aus]s)",
    re.IGNORECASE,
)
"""First words that are no imperative, as far as a spelling can show: articles and prepositions, added, adding, adds."""


def faults(message: str) -> list[str]:
    """Returns the problems of a commit message, each with the remedy."""
    lines = [line.rstrip() for line in SCISSORS.sub("", message).splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        lines.pop(0)
    subject = lines[0] if lines else ""
    if not subject or subject.startswith(BY_GIT):
        return []
    first = re.split(r"[\s:,]", subject, maxsplit=1)[0]
    problems = []
    if len(subject) > LONGEST:
        problems.append(f"the subject has {len(subject)} characters, of at most {LONGEST}; move the reason into the body")
    if not first[0].isupper() or OTHER_MOOD.fullmatch(first):
        problems.append(f'the subject starts with "{first}"; start with a capital and an imperative, such as Add, Fix, Keep')
    if subject.endswith("."):
        problems.append("the subject ends with a full stop; remove it")
    if len(lines) > 1 and lines[1]:
        problems.append("the second line is not blank; leave a blank line between subject and body")
    return problems


def main() -> int:
    path = Path(sys.argv[1])
    problems = faults(path.read_text())
    for problem in problems:
        print(f"{path}: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
