"""Every Python block of the pages runs: `python scripts/run_blocks.py README.md docs`.

The blocks of a page run one after the other in one process, in an empty folder, and share their names. A block that cannot run
here says why in a comment on the line above it: <!-- not run: needs an hour -->.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

BLOCK = re.compile(r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of Python in a page."""

    line: int
    code: str
    why: str | None
    """Why it is not run, if it is not."""


def main(places: list[str]) -> int:
    pages = [page for place in places for page in found(pathlib.Path(place))]
    failed = [str(page) for page in pages if not runs(page)]
    print(f"{len(pages)} pages; " + (f"failed: {', '.join(failed)}" if failed else "all blocks run"))
    return bool(failed)


def found(place: pathlib.Path) -> list[pathlib.Path]:
    """The page, or all pages in a folder."""
    return sorted(place.rglob("*.md")) if place.is_dir() else [place]


def blocks(page: pathlib.Path) -> list[Block]:
    """The Python blocks of a page, with the lines on which their code begins."""
    text = page.read_text()
    return [Block(text.count("\n", 0, one.start("code")) + 1, one["code"], one["why"]) for one in BLOCK.finditer(text)]


def runs(page: pathlib.Path) -> bool:
    """Whether the blocks of a page run; says how long they took, or how they failed."""
    every = blocks(page)
    asked = [block for block in every if block.why is None]
    if not asked:
        return True
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-W", "error::SyntaxWarning", "-c", script(page, asked)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    print(f"{page}: {len(asked)} of {len(every)} blocks, {time.monotonic() - begun:.1f} s", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", flush=True)
    return done.returncode == 0


def script(page: pathlib.Path, asked: list[Block]) -> str:
    """One program of all blocks, each on the lines on which it stands in the page, so that tracebacks name them."""
    parts = [("\n" * (block.line - 1) + block.code, f"{page}") for block in asked]
    return f"names = {{'__name__': '__main__'}}\nfor code, page in {parts!r}: exec(compile(code, page, 'exec'), names)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
