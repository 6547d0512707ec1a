"""The command line: one file a command, loaded when it is called."""

from __future__ import annotations

from e2llm_opt.cli.group import LazyGroup, command_line
from e2llm_opt.cli.streams import prepare_streams


def main() -> None:
    """Run ``e2llm-opt``; the console script's entry point."""
    prepare_streams()
    command_line.main(prog_name="e2llm-opt")


__all__ = ["LazyGroup", "command_line", "main"]
