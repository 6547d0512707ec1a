"""``e2llm-opt calibrate``: measured speeds into an inventory file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.problem import Amount
from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from e2llm_opt.calibrate.calibration import Calibration
    from e2llm_opt.loading.measured_run import Run

_SPEED = Amount(min=0, min_open=True)


@click.command("calibrate")
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "--measured",
    multiple=True,
    help="What llama-bench -o json, jsonl or csv printed, or a CSV table; may be repeated.",
    shell_complete=words.files,
)
@click.option(
    "--device",
    help="The device that ran, where a file does not say; of a table, take its rows only.",
    shell_complete=words.devices,
)
@click.option("--decode", type=_SPEED, help="Measured decode speed of one stream [tokens/s].")
@click.option("--prefill", type=_SPEED, help="Measured prefill speed [tokens/s].")
@click.option(
    "--model",
    help="Model that ran, where a file does not say; that of INVENTORY unless given.",
    shell_complete=words.catalogue("models"),
)
@click.option(
    "--weights",
    help="Its weight format, where a file does not say.",
    shell_complete=words.catalogue("weights"),
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(min=1, max=100_000_000),
    help="Length of the prompt of --prefill; 512 unless given.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=0, max=100_000_000),
    default=0,
    show_default=True,
    help="Tokens in the KV cache before --prefill or --decode began.",
)
@click.option(
    "-o",
    "--output",
    help="Write the inventory here instead of into INVENTORY; - is standard output.",
    shell_complete=words.files,
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report.")
@click.option("-y", "--yes", is_flag=True, help="Accept speeds that look like another unit.")
def command(
    inventory: str,
    measured: tuple[str, ...],
    output: str | None,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Fit the devices of INVENTORY to measured speeds, and write that into it.

    Prefill and decode efficiency and layer overhead of each measured device are fitted; with few
    measurements they stay near those of its kind. Comments and order of the file stay.

    \b
    Examples:
      e2llm-opt calibrate homelab.yaml --measured bench.json --device desktop
      e2llm-opt calibrate homelab.yaml --measured all.csv --dry-run
      e2llm-opt calibrate homelab.yaml --device pi --decode 2.1 --prefill 9.5
    """
    from e2llm_opt.calibrate.calibrate import calibrate
    from e2llm_opt.calibrate.write import write_calibration
    from e2llm_opt.loading.measurements import Named, read_measurements
    from e2llm_opt.loading.setup import load_setup
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.plan.output import STANDARD_OUTPUT, refuse_unwritable
    from e2llm_opt.report.calibration import print_calibration

    target = inventory if output is None else output
    if not dry_run:
        refuse_unwritable(target)
    named = Named(**{key: options[key] or "" for key in ("device", "model", "weights")})
    runs = _runs(options)
    if not measured and not runs:
        raise click.UsageError("give --measured FILE, --decode or --prefill.")
    setup = load_setup(inventory)
    readings = read_measurements(measured, setup, named=named, runs=runs)
    found = calibrate(setup.inventory, readings.measurements, engine=setup.engine)
    _ask(found, is_accepted=yes)
    is_shown = not (as_json or quiet or (target == STANDARD_OUTPUT and not dry_run))
    if is_shown:
        print_calibration(found, readings.notes, sys.stdout)
    if not dry_run:
        write_calibration(found, inventory, target)
    if as_json:
        notes = [*readings.notes, *found.notes]
        written = None if dry_run else target
        sys.stdout.write(dump_json({**found.to_dict(), "notes": notes, "written": written}))
    elif is_shown:
        click.echo("nothing is written (--dry-run)" if dry_run else f"written into {target}")


def _runs(options: dict[str, Any]) -> list[Run]:
    """Return the speeds on the command line."""
    from e2llm_opt.loading.document import COMMAND_LINE
    from e2llm_opt.loading.measured_run import OUTPUT_TOKENS, PROMPT_TOKENS, Run
    from e2llm_opt.speed import Phase

    if options["prompt_tokens"] is not None and options["prefill"] is None:
        raise click.UsageError("--prompt-tokens is the length of --prefill; give both.")
    lengths = {Phase.PREFILL: options["prompt_tokens"] or PROMPT_TOKENS}
    return [
        Run(
            file=COMMAND_LINE,
            line=0,
            phase=phase,
            tokens_per_s=options[phase],
            tokens=lengths.get(phase, OUTPUT_TOKENS),
            depth=options["depth"],
        )
        for phase in Phase
        if options[phase] is not None
    ]


def _ask(found: Calibration, *, is_accepted: bool) -> None:
    """Ask about measurements that look wrong; without a terminal to answer, refuse them.

    Raises
    ------
    InputError
        When they are not accepted.
    """
    if is_accepted or not found.doubts:
        return
    if not sys.stdin.isatty():
        doubts = "\n".join(found.doubts)
        raise InputError(f"{doubts}\nIf it is right, give --yes; nothing is written.")
    try:
        for doubt in found.doubts:
            if not click.confirm(f"{doubt}\nUse it all the same?", err=True):
                raise InputError("Nothing is written.")
    except click.Abort:
        raise KeyboardInterrupt from None
