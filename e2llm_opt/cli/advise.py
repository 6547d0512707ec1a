"""``e2llm-opt advise``: what to buy, give up or retire; or the cheapest devices for a target."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.names import Names
from e2llm_opt.cli.problem import Amount, Pair, load_problem, overrides, problem_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.advise.network import Wire
    from e2llm_opt.advise.sizing import Sizing
    from e2llm_opt.problem import Problem

_KINDS = ("add", "link", "format", "context", "retire")
_BY = ("money", "power", "capacity", "waiting_time")


@click.command("advise")
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "--kinds", type=Names("kind", _KINDS), help=f"Some of {','.join(_KINDS)}: all unless given."
)
@click.option(
    "--by",
    type=click.Choice(_BY),
    default="money",
    show_default=True,
    help="Rank by gain in capacity a dollar, a watt, or in all, or by gain in waiting time.",
)
@click.option("--top", type=click.IntRange(min=1), help="So many ranked changes; 5 unless given.")
@click.option(
    "--type",
    "types",
    multiple=True,
    help="Catalogue type that can be bought; may be repeated; all unless given.",
    shell_complete=words.catalogue("devices"),
)
@click.option(
    "--price",
    "prices",
    type=Pair("TYPE=USD"),
    multiple=True,
    help="Price that wins over the catalogue's; may be repeated.",
)
@click.option(
    "--link-mbit-s",
    type=Amount(min=0, min_open=True),
    help="Of the link of a device that is bought; as the others, else 940.",
)
@click.option("--link-latency-ms", type=Amount(min=0), help="Of that link; as the others, or 0.2.")
@click.option(
    "--target-rate",
    type=Amount(min=0, min_open=True),
    help="Sizing: the cheapest catalogue devices that serve so many requests/s.",
)
@click.option("--max-devices", type=click.IntRange(min=1), help="Of a sizing; 32 unless given.")
@click.option(
    "-o",
    "--output",
    help="Write the devices of a sizing as an inventory to this file; - is stdout.",
    shell_complete=words.files,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--time-limit", type=Amount(min=0, min_open=True), help="For all searches together [s]."
)
@click.option("--max-evaluations", type=click.IntRange(min=1), help="Stop each search after.")
@problem_options
def command(inventory: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Say which change of INVENTORY gains most: a device, a link, a format, the context.

    Each change is planned again. Devices that can be retired come last, those first whose loss
    costs nothing. With --target-rate, the devices of INVENTORY are not used: the cheapest set of
    catalogue devices is found that serves its model at that rate, within --ttft and --tpot.
    Prices are assumed unless given with --price. Ctrl-C shows what is done.

    \b
    Examples:
      e2llm-opt advise homelab.yaml
      e2llm-opt advise homelab.yaml --kinds add,retire --by power --top 3
      e2llm-opt advise homelab.yaml --kinds add --type rtx-3090 --price rtx-3090=650
      e2llm-opt advise homelab.yaml --target-rate 2 --ttft 3 --tpot 0.1
      e2llm-opt advise homelab.yaml --target-rate 2 -o shopping.yaml
    """
    _refuse(options)
    if options["target_rate"] is None:
        _advise(inventory, options, as_json=as_json, quiet=quiet)
    else:
        _size(inventory, options, as_json=as_json, quiet=quiet)


def _refuse(options: Mapping[str, Any]) -> None:
    """Refuse options that have no meaning together."""
    is_sizing = options["target_rate"] is not None
    others = ("kinds", "top", "max_evaluations", "rate") if is_sizing else ("max_devices", "output")
    for option in others:
        if options[option] is not None:
            name = f"--{option.replace('_', '-')}"
            verb = "contradicts" if is_sizing else "needs"
            raise click.UsageError(f"{name} {verb} --target-rate.")
    kinds = options["kinds"]
    for option in ("types", "link_mbit_s", "link_latency_ms"):
        if kinds is not None and "add" not in kinds and options[option] not in {None, ()}:
            name = "--type" if option == "types" else f"--{option.replace('_', '-')}"
            raise click.UsageError(f"{name} contradicts --kinds {','.join(kinds)}: no add.")
    if is_sizing and options["by"] not in {"money", "power"}:
        raise click.UsageError(f"--by {options['by']} contradicts --target-rate: money or power.")


def _advise(inventory: str, options: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    from e2llm_opt.advise.advice import AdviceTerms
    from e2llm_opt.advise.advise import advise
    from e2llm_opt.cli.interruption import interruptible
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.report.advice import print_advice
    from e2llm_opt.search.stop import Stop

    problem = load_problem(inventory, options)
    most = options["max_evaluations"]
    given = {name: options[name] for name in ("kinds", "top") if options[name] is not None}
    terms = AdviceTerms(
        by=options["by"],
        prices=_prices(options),
        types=options["types"] or None,
        wire=_wire(options),
        seed=options["seed"],
        stop=Stop() if most is None else Stop(max_evaluations=most),
        time_limit_s=options["time_limit"],
        **given,
    )
    with (
        progress_line(sys.stderr, quiet=quiet, doing="preparing") as line,
        interruptible(line) as progress,
    ):
        answer = advise(problem, terms=terms, progress=progress)
    if as_json:
        sys.stdout.write(dump_json(answer.to_dict()))
    elif not quiet:
        print_advice(answer, sys.stdout)
    if answer.plan is None and not answer.rows:
        click.get_current_context().exit(EXIT_NO)


def _size(inventory: str, options: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    from e2llm_opt.advise.size import size
    from e2llm_opt.advise.sizing import DEFAULT_MAX_DEVICES, Sizing, SizingTarget
    from e2llm_opt.cli.interruption import interruptible
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.plan.output import STANDARD_OUTPUT, refuse_unwritable
    from e2llm_opt.report.advice import print_sizing

    problem = load_problem(inventory, options)
    output = options["output"]
    if output not in {None, STANDARD_OUTPUT}:
        refuse_unwritable(output)
    target = SizingTarget(
        rate_per_s=options["target_rate"],
        by=options["by"],
        max_devices=options["max_devices"] or DEFAULT_MAX_DEVICES,
        prices=_prices(options),
        types=options["types"] or None,
        wire=_wire(options),
        seed=options["seed"],
        time_limit_s=options["time_limit"],
    )
    with (
        progress_line(sys.stderr, quiet=quiet, doing="preparing") as line,
        interruptible(line) as progress,
    ):
        answer = size(problem, target, progress=progress)
    if isinstance(answer, Sizing) and output is not None:
        _write(answer, problem, inventory, options)
    if as_json:
        sys.stdout.write(dump_json(answer.to_dict()))
    elif isinstance(answer, Sizing) and not quiet and output != STANDARD_OUTPUT:
        print_sizing(answer, sys.stdout)
    elif not isinstance(answer, Sizing):
        click.echo(f"No devices: {answer.reason}.", err=True)
    if not isinstance(answer, Sizing):
        click.get_current_context().exit(EXIT_NO)


def _write(answer: Sizing, problem: Problem, inventory: str, options: dict[str, Any]) -> None:
    """Write the devices of *answer* with what the inventory file, and the options, say beside."""
    from pathlib import Path

    from e2llm_opt.advise.inventory_text import inventory_text
    from e2llm_opt.loading.document import merged
    from e2llm_opt.loading.yaml_file import read_document
    from e2llm_opt.plan.output import STANDARD_OUTPUT, write_text_atomically

    document = merged(read_document(inventory)[0], overrides(options))
    served = dict(document.value)
    if isinstance(served.get("model"), str):
        path = document.beside(("model",), served["model"])
        served["model"] = str(Path(path).resolve()) if path.is_file() else served["model"]
    served.setdefault("weights", problem.weights)
    if problem.facts.weights:  # a .gguf has its own
        served.pop("weights")
    text = inventory_text(answer, served)
    if options["output"] == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_text_atomically(options["output"], text)


def _prices(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the prices that were given, or fail as a usage error."""
    found = {}
    for name, text in options["prices"]:
        try:
            found[name] = float(text)
        except ValueError:
            message = f"--price {name}={text}: {text!r} is not a number."
            raise click.UsageError(message) from None
    return found


def _wire(options: Mapping[str, Any]) -> Wire:
    from e2llm_opt.advise.network import Wire

    return Wire(mbit_s=options["link_mbit_s"], latency_ms=options["link_latency_ms"])
