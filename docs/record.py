"""Write the output of commands into Markdown, so that no figure is typed by hand.

Below a ``console`` block of one ``$ command``, the line ``<!-- output -->`` is replaced by what the
command prints; a later run replaces it again. Run ``make docs``.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_RECORDED = re.compile(
    r"(```console\n\$ (?P<command>[^\n]+)\n```\n\n<!-- output -->)"
    r"(\n\n```text\n.*?\n```\n<!-- end of output -->)?",
    re.DOTALL,
)

_ANSWERS = {0, 3}
"""Exit codes of an answer: a plan, or the reason why there is none."""


def recorded(text: str) -> str:
    """Return Markdown *text* with the output of its commands."""
    return _RECORDED.sub(_with_output, text)


def _with_output(match: re.Match[str]) -> str:
    program, *arguments = shlex.split(match["command"])
    if program != "e2llm-opt":
        sys.exit(f"only e2llm-opt is run, not {program}")
    done = subprocess.run(
        [sys.executable, "-m", "e2llm_opt", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in _ANSWERS:
        sys.exit(f"{match['command']}: exit code {done.returncode}\n{done.stderr}")
    return f"{match[1]}\n\n```text\n{done.stdout.rstrip()}\n```\n<!-- end of output -->"


def main() -> None:
    """Rewrite README.md and the pages of docs/ in place."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        old = path.read_text(encoding="utf-8")
        new = recorded(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} rewritten")


if __name__ == "__main__":
    main()
