"""What an export wrote, or would start: commands by device, and what must be known."""

from __future__ import annotations

import shlex
import textwrap
from typing import IO, TYPE_CHECKING

from e2llm_opt.export.names import one_line
from e2llm_opt.report.screen import section, show
from e2llm_opt.report.width import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from e2llm_opt.export.exported import Export

_LEAST_WIDTH = 72


def print_export(answer: Export, folder: str | None, file: IO[str]) -> None:
    """Print an export; *folder* is where its files were written, if they were."""
    from rich.text import Text  # noqa: PLC0415 - slow to import

    if answer.not_expressible is not None:
        reason = one_line(answer.not_expressible)
        show(file, Text(f"{answer.engine} cannot express the plan.", style="bold red"))
        file.write("\n".join(_wrapped(reason, file)) + "\n")
        for name, text in answer.files.items():
            file.write(f"\n{name}:\n{text}")
        return
    if folder is None:
        for command in answer.commands:
            words = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
            line = " ".join([*words, shlex.join(command.argv)])
            file.write(f"# {one_line(command.device)}\n{one_line(line)}\n")
        file.write(f"\n{len(answer.files)} files are written with --out DIR.\n")
    else:
        number = len(answer.files)
        file.write(f"{number} files for {answer.engine} in {folder}: begin with its README.md.\n")
    show(file, *_warnings(answer, file))


def _warnings(answer: Export, file: IO[str]) -> Iterator[RenderableType]:
    from rich.text import Text  # noqa: PLC0415 - slow to import

    if answer.warnings:
        lines = [line for text in answer.warnings for line in _wrapped(one_line(text), file)]
        yield from section("Warnings", Text("\n".join(lines), style="yellow"))


def _wrapped(text: str, file: IO[str]) -> list[str]:
    width = max(columns(file), _LEAST_WIDTH) - 2
    return textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False)
