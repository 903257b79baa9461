"""Lists sentences that are hard to read in the lines that a branch changed, as advice for authors and reviewers.

    python -m tools.prose --base main
    python -m tools.prose src/lasthop/engine/plan README.md

The first form reads the lines changed since a revision, the second form whole files. It reads docstrings, comments and texts
in Python files, and paragraphs in Markdown. It always succeeds, because a listed sentence can still be the best one.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final, NamedTuple

LONGEST: Final = 30
"""Words per sentence."""

PATTERNS: Final = (
    ("hidden subject", re.compile(r"^(?:What|Who|Whatever|Whoever|Which|How)\b(?!.*\?$)")),
    ("of which", re.compile(r"\bof (?:which|what|whom|whose)\b", re.IGNORECASE)),
    ("whatever, whoever", re.compile(r"\b(?:whatever|whoever|whichever)\b", re.IGNORECASE)),
    ("nobody, somebody", re.compile(r"\b(?:nobody|somebody|no one)\b", re.IGNORECASE)),
    ("is no X", re.compile(r"\b(?:is|are|was|were) (?:no(?! longer| more\b)|none)\b")),
    ("of X there is Y", re.compile(r"^Of\b.*\b(?:is|are|has|have)\b")),
    ("said, told, asked", re.compile(r"\b(?:sa(?:ys?|id)|tells?|told|ask(?:s|ed)?)\b", re.IGNORECASE)),
)
PASSIVE: Final = re.compile(
    r"\b(?:is|are|was|were|be|been|being) (?:\w+ly |not |never |also )?"
    r"(?:\w{2,}ed|known|made|read|sent|written|given|taken|found|kept|left|lost|held|put|set|shown|built|bound|cut|seen|chosen)\b"
)
SENTENCE: Final = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\"'(])")
MARKUP: Final = re.compile(r"^\s*(?:#+ |[-*>·] |\d+\. |\|)")


class Line(NamedTuple):
    number: int
    text: str


class Advice(NamedTuple):
    line: int
    reasons: tuple[str, ...]
    sentence: str


def judge(sentence: str) -> tuple[str, ...]:
    """Returns the reasons why a sentence is hard to read."""
    words = len(sentence.split())
    reasons = [f"{words} words"] if words > LONGEST else []
    reasons += [name for name, pattern in PATTERNS if pattern.search(sentence)]
    return (*reasons, *(("passive chain",) if len(PASSIVE.findall(sentence)) > 1 else ()))


def advise(path: Path, changed: Set[int] | None = None) -> list[Advice]:
    """Lists the sentences of a file that have reasons, only those on changed lines if given."""
    blocks = markdown_blocks(path.read_text()) if path.suffix == ".md" else python_blocks(path.read_text())
    return sorted(
        Advice(numbers[0], reasons, sentence)
        for block in blocks
        for numbers, sentence in sentences(block)
        if (reasons := judge(sentence)) and (changed is None or not changed.isdisjoint(numbers))
    )


def sentences(block: list[Line]) -> Iterator[tuple[range, str]]:
    """Splits a block of lines into sentences, each with the numbers of its lines."""
    text = " ".join(line.text.strip() for line in block)
    starts = [0]
    for line in block:
        starts.append(starts[-1] + len(line.text.strip()) + 1)

    def line_at(offset: int) -> int:
        return next(line.number for line, end in zip(block, starts[1:], strict=True) if offset < end)

    begin = 0
    for end in (*(gap.start() for gap in SENTENCE.finditer(text)), len(text)):
        if sentence := text[begin:end].strip():
            yield range(line_at(text.index(sentence, begin)), line_at(end - 1) + 1), sentence
        begin = end


def paragraphs(lines: list[Line]) -> Iterator[list[Line]]:
    """Splits lines at empty lines, list items, table rows, and indented or fenced blocks, which are code."""
    block: list[Line] = []
    fenced = False
    for line in lines:
        fence = line.text.lstrip().startswith("```")
        if fence or fenced or not line.text.strip() or line.text.startswith("    ") or MARKUP.match(line.text):
            yield block
            block = []
        fenced ^= fence
        if not (fence or fenced or line.text.startswith("    ")):
            block.append(Line(line.number, MARKUP.sub("", line.text)))
    yield block


def markdown_blocks(text: str) -> Iterator[list[Line]]:
    return paragraphs([Line(*pair) for pair in enumerate(text.splitlines(), 1)])


def python_blocks(text: str) -> Iterator[list[Line]]:
    yield from _comments(text)
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) in docstrings:
            yield from paragraphs(_docstring(node.value, node.lineno, node.col_offset))
        elif isinstance(node, ast.JoinedStr):
            pieces = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield from _texts("".join(map(str, pieces)), node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield from _texts(node.value, node.lineno)


def _docstring(text: str, first: int, margin: int) -> list[Line]:
    return [Line(first + number, line[margin:] if number else line) for number, line in enumerate(text.splitlines())]


def _texts(text: str, first: int) -> Iterator[list[Line]]:
    """Yields a string that reads like a sentence, so no name and no format."""
    if len(text.split()) > 3:
        yield [Line(first, line) for line in text.splitlines()]


def _comments(text: str) -> Iterator[list[Line]]:
    block: list[Line] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        number, own_line = token.start[0], token.line.lstrip().startswith("#")
        if not own_line or not block or block[-1].number != number - 1:
            yield block
            block = []
        block.append(Line(number, token.string.lstrip("#: ")))
    yield block


def changed_lines(base: str) -> dict[Path, set[int]]:
    """Maps each Python and Markdown file to the lines added or changed since a revision, uncommitted ones too."""
    fork = _git("merge-base", base, "HEAD").strip()
    lines: dict[Path, set[int]] = {}
    path = Path()
    for line in _git("diff", "--unified=0", "--no-renames", "--diff-filter=d", fork, "--", "*.py", "*.md").splitlines():
        if line.startswith("+++ b/"):
            path = Path(line.removeprefix("+++ b/"))
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(start, start + count))
    return lines


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="make prose", description="Lists sentences that are hard to read.")
    parser.add_argument("--base", default="main", help="read the lines changed since this revision")
    parser.add_argument("paths", nargs="*", type=Path, help="read these files and folders whole instead")
    arguments = parser.parse_args()
    whole = [file for path in arguments.paths for file in (sorted(path.rglob("*.[pm][yd]")) if path.is_dir() else [path])]
    files: dict[Path, set[int] | None] = dict.fromkeys(whole) if whole else {**changed_lines(arguments.base)}
    count = 0
    for path, lines in files.items():
        for advice in advise(path, lines):
            count += 1
            print(f"{path}:{advice.line}: {', '.join(advice.reasons)}: {advice.sentence}")
    print(f"{count} sentences to look at again; this is advice (CONTRIBUTING.md, How we write).")


if __name__ == "__main__":
    main()
