"""``e2llm-opt completion``: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import sys

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

PROGRAM = "e2llm-opt"
VARIABLE = "_E2LLM_OPT_COMPLETE"
"""Set while the shell asks for completions; click's own mechanism."""
_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> None:
    """Print the completion script of a SHELL: bash, zsh or fish.

    It completes commands, options, files, models, weight formats, runtimes, and the devices of
    the inventory that is named before.

    \b
    Examples:
      e2llm-opt completion bash > ~/.local/share/bash-completion/completions/e2llm-opt
      e2llm-opt completion zsh > "${fpath[1]}/_e2llm-opt"
      e2llm-opt completion fish > ~/.config/fish/completions/e2llm-opt.fish
    """
    group = click.get_current_context().find_root().command
    script = _SHELLS[shell](group, {}, PROGRAM, VARIABLE)
    # Not bash's own source(): it starts a bash to look at its version.
    sys.stdout.write(ShellComplete.source(script).strip() + "\n")
