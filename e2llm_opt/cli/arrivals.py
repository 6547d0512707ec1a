"""Options about what arrives, the same for every command that simulates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.problem import Amount
from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from e2llm_opt.workload.arrivals import Pattern
    from e2llm_opt.workload.trace import Trace
    from e2llm_opt.workload.workload import Workload

AnyFunction = TypeVar("AnyFunction", bound="Callable[..., Any]")

DEFAULT_REQUESTS = 20_000
_MOST_REQUESTS = 5_000_000
_PATTERNS = ("poisson", "fixed", "bursty")
_ROUTINGS = ("shortest-wait", "jsq", "plan")


def arrival_options(function: AnyFunction) -> AnyFunction:
    """Add the options of this module to a command."""
    options = (
        click.option(
            "--arrivals",
            "pattern",
            type=click.Choice(_PATTERNS),
            help="Gaps between requests: poisson unless given; fixed; bursty (gamma, cv 3).",
        ),
        click.option(
            "--requests",
            type=click.IntRange(min=1, max=_MOST_REQUESTS),
            help=f"So many: {DEFAULT_REQUESTS} unless given, or a whole trace.",
        ),
        click.option(
            "--trace",
            help="CSV file of requests, instead of drawing them.",
            shell_complete=words.files,
        ),
        click.option(
            "--scale",
            type=Amount(min=0, min_open=True),
            help="Stretch a trace to this rate [requests/s].",
        ),
        click.option(
            "--warmup",
            type=click.IntRange(min=0),
            help="First requests that statistics leave out: 5 % unless given, 0 below 1000.",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option(
            "--routing",
            type=click.Choice(_ROUTINGS),
            default="shortest-wait",
            show_default=True,
            help="Where a request goes: jsq is fewest pending tokens, plan the planned rates.",
        ),
        click.option(
            "--mean-context",
            is_flag=True,
            help="Every step takes as long as at the mean context: faster, less exact.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def read_arrivals(options: Mapping[str, Any]) -> Trace | None:
    """Return the requests of ``--trace``; None where they are to be drawn.

    Raises
    ------
    click.UsageError
        When options contradict each other.
    InputError
        When the trace cannot be used.
    """
    from e2llm_opt.workload.trace import read_trace

    if options["trace"] is None:
        if options["scale"] is not None:
            raise click.UsageError("--scale stretches a trace: give --trace, or use --rate.")
        return None
    for name, option in (("rate", "--rate"), ("pattern", "--arrivals")):
        if options[name] is not None:
            raise click.UsageError(
                f"{option} is for requests that are drawn; with --trace use --scale."
            )
    trace = read_trace(options["trace"], most=options["requests"])
    return trace if options["scale"] is None else trace.at_rate(options["scale"])


def draw(workload: Workload, options: Mapping[str, Any]) -> Trace:
    """Return requests drawn from *workload*.

    Raises
    ------
    InputError
        When no rate is given.
    """
    from e2llm_opt.workload.arrivals import draw_arrivals

    if workload.rate_per_s <= 0:
        raise InputError(
            "there is no arrival rate: give --rate, or workload.rate_per_s in the file."
        )
    num = DEFAULT_REQUESTS if options["requests"] is None else options["requests"]
    pattern: Pattern = options["pattern"] or "poisson"
    return draw_arrivals(workload, num, pattern=pattern, seed=options["seed"])


def warmup_of(options: Mapping[str, Any], num_requests: int, num_simulated: int) -> int:
    """Return the first requests to leave out of the statistics, fewer where fewer were simulated.

    Raises
    ------
    click.UsageError
        When nothing would be left.
    """
    from e2llm_opt.simulate.simulate import default_warmup

    given: int | None = options["warmup"]
    if given is None:
        return default_warmup(num_simulated)
    if given >= num_requests:
        raise click.UsageError(f"--warmup must leave some of {num_requests} requests.")
    return given if given < num_simulated else 0


def described(options: Mapping[str, Any], arrivals: Trace) -> dict[str, Any]:
    """Return how the simulation was asked for, for the JSON answer."""
    is_drawn = options["trace"] is None
    return {
        "arrivals": (options["pattern"] or "poisson") if is_drawn else "trace",
        "requests": arrivals.num_requests,
        "seed": options["seed"] if is_drawn else None,
        "trace": options["trace"],
        "routing": options["routing"],
        "mean_context": options["mean_context"],
    }
