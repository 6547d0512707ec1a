"""The group of all commands: what each exit code means, and imports only what is called."""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from e2llm_opt import __version__
from e2llm_opt.cli.interruption import GivenUp
from e2llm_opt.cli.streams import answered_output
from e2llm_opt.errors import InputError

EXIT_BAD_INPUT: Final = 2
"""Bad input or usage."""
EXIT_NO: Final = 3
"""No plan exists, or the plan breaks a rule."""
EXIT_INTERRUPTED: Final = 130
"""Interrupted with nothing to show."""
_COMMANDS = {
    "init": "Write a first inventory, by questions or by options.",
    "import": "Turn what other tools print into an inventory.",
    "probe": "Describe this machine as an entry of an inventory.",
    "plan": "Find the best plan for an inventory.",
    "pareto": "Find many plans: from the fastest to the cheapest.",
    "check": "Recompute a plan and list what is wrong with it.",
    "explain": "Say in plain sentences what a plan does and why.",
    "report": "Show a plan as an HTML page and as pictures.",
    "simulate": "Run a plan on arrivals, request by request.",
    "replan": "Change a plan that runs, as far as it pays.",
    "failures": "Say what each loss of a device or link does to a plan.",
    "export": "Turn a plan into commands and files that start a real engine.",
    "compare": "Simulate the plans of several planners on the same arrivals.",
    "predict": "Say how fast given devices serve a model, without planning.",
    "advise": "Say what to add, upgrade or retire, or what to buy.",
    "sweep": "Plan a grid of inventories, models and workloads, on many workers.",
    "calibrate": "Fit an inventory's speeds to measured ones.",
    "catalog": "List known devices, models, weight formats and runtimes.",
    "schema": "Print the JSON Schema of a plan, or of an inventory.",
    "completion": "Print what a shell needs to complete commands and options.",
}
"""Command: its help in the list of commands. Its code stands in the module of its name."""
_MODULES = {"import": "importing"}
"""Command: its module, where its name is a word of Python."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and the meaning of exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order a newcomer meets them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"e2llm_opt.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where there is none, say which one was meant."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from e2llm_opt.loading.validate import nearest

            hint = nearest(args[0], _COMMANDS, 2).capitalize()
            ctx.fail(f"No such command '{args[0]}'. {hint}".rstrip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing one."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse; here the help is printed."""
        with answered_output():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what it raises into an exit code."""
        try:
            with answered_output():
                return super().invoke(ctx)
        except InputError as error:
            for fault in error.faults:
                click.echo(str(fault) if fault.file else f"Error: {fault}", err=True)
            ctx.exit(EXIT_BAD_INPUT)
        except (KeyboardInterrupt, GivenUp, SystemError) as error:
            # Compiled code that is interrupted ends in a SystemError caused by the Ctrl-C.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, KeyboardInterrupt | GivenUp):
                raise
            click.echo("Interrupted; there is nothing to show yet.", err=True)
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="e2llm-opt")
def command_line() -> None:
    """Place a large language model on unequal machines.

    \b
    Examples:
      e2llm-opt plan homelab.yaml
      e2llm-opt plan homelab.yaml -o plan.json
      e2llm-opt pareto homelab.yaml
      e2llm-opt check plan.json homelab.yaml
      e2llm-opt simulate plan.json homelab.yaml --rate 0.5
      e2llm-opt replan plan.json homelab.yaml --rate 2 -o next.json
      e2llm-opt export plan.json --to llama.cpp --out run
      e2llm-opt compare homelab.yaml
      e2llm-opt predict --device rtx-4090 --model llama-3.1-8b --weights q4_k_m
      e2llm-opt advise homelab.yaml
      e2llm-opt calibrate homelab.yaml --measured bench.json
      e2llm-opt import nvidia-smi tower.csv --into homelab.yaml
      e2llm-opt catalog devices jetson

    Exit codes: 0 done, 2 bad input, 3 no plan or violations, 130 interrupted, 1 a bug.
    """
