"""Loads that change abruptly: a plan that stays, the controller, who knows it all, and Splitwise.

``python benchmarks/adaptation.py`` simulates the E2LLM paper's testbed under loads that change, and
change back, on the same requests for everybody and with the same costs of a switch. It ends with
the figures that were promised, each reached or missed, and with exit code 1 where one is missed.
"""

from __future__ import annotations

import heapq
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click
import numpy as np

if __name__ == "__main__":  # started as a file: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reproduction.choice import ADAPTED, SPLITWISE
from benchmarks.reproduction.contenders import OVERLOAD_PER_S, searched
from benchmarks.reproduction.setting import at_rate, joined, later, testbed, with_workload
from e2llm_opt import Caution, Changes, Controller, Lengths, Plan, plan, repertoire, simulate
from e2llm_opt.workload.arrivals import draw_arrivals
from e2llm_opt.workload.trace import read_trace
from e2llm_opt.workload.workload import context_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt import Problem, Repertoire, Simulation
    from e2llm_opt.workload.trace import Trace

PAGE: Final = Path(__file__).parents[1] / "docs" / "adaptation.md"
PICTURE: Final = PAGE.with_suffix(".svg")
MARK: Final = "<!-- written by benchmarks/adaptation.py -->"
HOP_MS: Final = 0.3
LOAD_BYTES_PER_S: Final = 0.7e9
"""Assumed: a local disk, as docs/headline.md has it."""
SHARE, LOW = 0.9, 0.25
"""Arrivals as shares of what `splitwise-adapted` can serve of the same lengths."""
STATIC, OURS, KNOWING, POOLS = "static", "controller", "clairvoyant", "splitwise"
WHO: Final = (STATIC, OURS, KNOWING, POOLS)
LIMITS: Final = ((STATIC, 0.5), (KNOWING, 1.25), (POOLS, 0.5))
"""The controller's mean wait after the first change, at most so many times that of another."""
LONG_ANSWERS = Lengths(mean=256), Lengths(mean=1024)
LONG_PROMPTS = Lengths(mean=3072), Lengths(mean=128)
RATES, PROMPTS, OUTPUTS = (0.2, 0.9), (200, 900, 4000), (64, 200, 1200)
"""The grid of the repertoire: mean rates [1/s] and lengths [tokens]."""
DRAWN: Final = "there and back"
"""Scenario of the picture."""
Pair = tuple[Lengths, Lengths]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Phases that follow each other: lengths or a trace, and the share of the capacity."""

    name: str
    phases: tuple[tuple[Pair | Path, float], ...]


SCENARIOS: Final = (
    Scenario(name="lengths", phases=((LONG_PROMPTS, SHARE), (LONG_ANSWERS, SHARE))),
    Scenario(name="lengths, the other way", phases=((LONG_ANSWERS, SHARE), (LONG_PROMPTS, SHARE))),
    Scenario(name="rate", phases=((LONG_PROMPTS, LOW), (LONG_PROMPTS, SHARE))),
    Scenario(name="both", phases=((LONG_ANSWERS, LOW), (LONG_PROMPTS, SHARE))),
    Scenario(
        name="there and back",
        phases=((LONG_PROMPTS, SHARE), (LONG_ANSWERS, SHARE), (LONG_PROMPTS, SHARE)),
    ),
)


class Setting(NamedTuple):
    """A scenario as it is run."""

    problems: list[Problem]
    """One a phase, at its rate."""
    arrivals: Trace
    starts_s: list[float]
    """When each phase begins."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one scenario came to: mean waits of the requests after the first change [s]."""

    scenario: str
    rates_per_s: list[float]
    waits_s: dict[str, float]
    unserved: dict[str, int]
    decisions: list[str]
    noticed_s: float | None
    """From the change to the first switch."""
    is_fit: bool
    """Whether the clairvoyant plan is stable, and another one than the static plan."""
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Wait over time, for the picture."""

    def missed(self) -> list[str]:
        """Return what is missed."""
        own = self.waits_s[OURS]
        return [
            f"{own:.2f} s are {own / self.waits_s[who]:.2f} of {who}, wanted {most}"
            for who, most in LIMITS
            if own > most * self.waits_s[who]
        ]


def setting_of(scenario: Scenario, num: int, draw: int = 0) -> Setting:
    """Return the problems and requests of *scenario*, *num* a phase."""
    drawn = [
        _requests(kind, num, 10 * draw + seed) for seed, (kind, _) in enumerate(scenario.phases)
    ]
    own = [(one.prompt_p95, one.output_p95) for one in drawn]
    given = [(prompt.p95, output.p95) for prompt, output in (LONG_ANSWERS, LONG_PROMPTS)]
    context = max(context_for(*pair) for pair in [*own, *given])
    problems, whole, starts = [], None, []
    for one, (kind, share) in zip(drawn, scenario.phases, strict=True):
        prompt, output = kind if not isinstance(kind, Path) else one.workload_lengths()
        workload = replace(
            testbed().workload,
            prompt=prompt,
            output=output,
            context_tokens=context,
            rate_per_s=OVERLOAD_PER_S,
        )
        problem = with_workload(workload, HOP_MS)
        rate = share * searched(ADAPTED, problem)[0].capacity_per_s
        problems.append(at_rate(problem, rate))
        begin = 0.0 if whole is None else float(whole.arrival_s[-1]) + 1 / rate
        part = later(one.at_rate(rate), begin)
        whole = part if whole is None else joined(whole, part)
        starts.append(begin)
    assert whole is not None
    return Setting(problems, whole, starts)


def _requests(kind: Pair | Path, num: int, seed: int) -> Trace:
    if isinstance(kind, Path):
        return read_trace(kind, most=num)
    workload = replace(testbed().workload, prompt=kind[0], output=kind[1], rate_per_s=1.0)
    return draw_arrivals(workload, num, seed=seed)


def planned(problem: Problem, planner: str = "e2llm-opt") -> Plan:
    """Return a planner's plan for *problem*."""
    found = plan(problem, planner=planner)
    if not isinstance(found, Plan):
        raise SystemExit(found.reason)
    return found


def run_controller(
    setting: Setting, first: Plan, caution: Caution
) -> tuple[Simulation, list[tuple[float, Plan, str]]]:
    """Let a controller see each request when it comes, and each answer when it is finished.

    After each decision to move, everything is simulated anew with it: the past stays as it was.
    """
    problem = setting.problems[0]
    controller = Controller(problem, first, grid(problem), caution)
    moves: list[tuple[float, Plan, str]] = []
    arrivals = setting.arrivals
    run = simulate(first, problem, arrivals)
    events = _events(run, 0.0)
    while events:
        time_s, kind, i = heapq.heappop(events)
        if kind == 1:
            controller.finished(i, float(arrivals.output_tokens[i]))
            continue
        controller.observe(time_s, float(arrivals.prompt_tokens[i]))
        for k, written in _written(run, time_s):
            controller.progress(k, written)
        decision = controller.decide(time_s)
        if decision.action != "stay":
            moves.append((time_s, decision.plan, decision.reason))
            run = simulate(first, problem, arrivals, changes=_changes([m[:2] for m in moves]))
            events = _events(run, time_s, i)
    return run, moves


def _written(run: Simulation, time_s: float) -> list[tuple[int, float]]:
    """Return requests whose answers are being written, and how many tokens there are."""
    join, finish = run.join_s, run.finish_s
    open_ = np.flatnonzero((join < time_s) & (finish > time_s))
    share = (time_s - join[open_]) / (finish[open_] - join[open_])
    tokens = np.floor(share * run.arrivals.output_tokens[open_])
    return list(zip(open_.tolist(), tokens.tolist(), strict=True))


def _events(run: Simulation, after_s: float, last: int = -1) -> list[tuple[float, int, int]]:
    """Return what happens after a time: arrivals (0) behind *last*, and ends of answers (1)."""
    found = [(float(run.arrivals.arrival_s[i]), 0, i) for i in range(last + 1, len(run.entry))]
    ends = run.finish_s
    found += [(float(ends[i]), 1, int(i)) for i in np.flatnonzero(ends > after_s)]
    heapq.heapify(found)
    return found


def _changes(plans: Sequence[tuple[float, Plan]]) -> Changes:
    return Changes(plans=plans, load_bytes_per_s=LOAD_BYTES_PER_S)


def grid(problem: Problem) -> Repertoire:
    """Return plans for a grid that covers all scenarios; none of its points is one of theirs."""
    usual = Lengths(mean=1000), Lengths(mean=300)
    load = replace(problem.workload, prompt=usual[0], output=usual[1], rate_per_s=1.0)
    return _grid(replace(problem, workload=load))


@cache
def _grid(problem: Problem) -> Repertoire:
    return repertoire(
        problem,
        rates_per_s=RATES,
        prompts=PROMPTS,
        outputs=OUTPUTS,
        tell=lambda done, num: print(f"plan {done} of {num} …", file=sys.stderr, flush=True),
    )


def row_of(scenario: Scenario, num: int, draw: int = 0) -> Row:
    """Run everybody through *scenario*."""
    setting = setting_of(scenario, num, draw)
    problem, arrivals = setting.problems[0], setting.arrivals
    plans = [planned(one) for one in setting.problems]
    caution = Caution(load_bytes_per_s=LOAD_BYTES_PER_S, replans=True)
    ours, moves = run_controller(setting, plans[0], caution)
    pools = planned(problem, SPLITWISE)
    knowing = list(zip(setting.starts_s[1:], plans[1:], strict=True))
    runs = {
        STATIC: simulate(plans[0], problem, arrivals),
        OURS: ours,
        KNOWING: simulate(plans[0], problem, arrivals, changes=_changes(knowing)),
        POOLS: min(
            (simulate(pools, problem, arrivals, routing=way) for way in ("jsq", "shortest-wait")),
            key=lambda run: _wait(run, setting),
        ),
    }
    return Row(
        scenario=scenario.name if draw == 0 else f"{scenario.name} ({draw + 1})",
        rates_per_s=[one.workload.rate_per_s for one in setting.problems],
        waits_s={who: _wait(run, setting) for who, run in runs.items()},
        unserved={who: run.num_unserved + run.num_rejected for who, run in runs.items()},
        decisions=[f"{at_s - setting.starts_s[1]:+.0f} s: {reason}" for at_s, _, reason in moves],
        noticed_s=next(
            (m[0] - setting.starts_s[1] for m in moves if m[0] >= setting.starts_s[1]), None
        ),
        is_fit=all(bool(one.predicted.stable) for one in plans[1:])
        and plans[1].replicas != plans[0].replicas,
        lines={who: _line(run) for who, run in runs.items()},
    )


def _wait(run: Simulation, setting: Setting) -> float:
    after = run.arrivals.arrival_s >= setting.starts_s[1]
    return float(np.nanmean(run.waiting_time_s[after]))


def _line(run: Simulation, bins: int = 60) -> list[tuple[float, float]]:
    """Return the mean wait of requests by when they came."""
    at, wait = run.arrivals.arrival_s, run.waiting_time_s
    edges = np.linspace(at[0], at[-1], bins + 1)
    where = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, bins - 1)
    found = []
    for k in range(bins):
        own = wait[(where == k) & np.isfinite(wait)]
        if len(own):
            found.append((float((edges[k] + edges[k + 1]) / 2), float(own.mean())))
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the waits as Markdown."""
    of = " | ".join(f"of {who}" for who, _ in LIMITS)
    lines = [
        f"| scenario | rates [1/s] | {' | '.join(WHO)} | {of} | first move after |",
        "|---|---|" + "---:|" * 8,
    ]
    for row in rows:
        own = row.waits_s[OURS]
        shares = " | ".join(f"{own / row.waits_s[who]:.2f}" for who, _ in LIMITS)
        waits = " | ".join(f"{row.waits_s[who]:.2f}" for who in WHO)
        rates = ", ".join(f"{rate:.3f}" for rate in row.rates_per_s)
        noticed = "-" if row.noticed_s is None else f"{row.noticed_s:.0f} s"
        lines.append(f"| {row.scenario} | {rates} | {waits} | {shares} | {noticed} |")
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """Return what was reached and missed, as Markdown."""
    lines = []
    for row in rows:
        missed = row.missed()
        fit = (
            "" if row.is_fit else " (not a fair case: the clairvoyant plan is unstable or the same)"
        )
        lines.append(f"* **{row.scenario}**{fit}: {'missed' if missed else 'reached'}")
        lines += [f"    * {line}" for line in missed]
        lines += [f"    * moves at {line}" for line in row.decisions]
    return "\n".join(lines)


def draw(row: Row, path: Path) -> None:
    """Draw waits over time."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional

    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for who in WHO:
        at, wait = zip(*row.lines[who], strict=True)
        axes.plot(np.array(at) / 3600.0, np.maximum(wait, 1e-3), label=who)
    axes.set(yscale="log", xlabel="time of arrival [h]", ylabel="mean wait [s]", title=row.scenario)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def write_page(rows: Sequence[Row]) -> None:
    """Write the tables of the page anew, and its picture."""
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    text = "\n\n".join([before + MARK, table(rows), verdict(rows), ""])
    PAGE.write_text(text, encoding="utf-8")
    draw(next((row for row in rows if row.scenario == DRAWN), rows[-1]), PICTURE)


@click.command()
@click.option("--quick", is_flag=True, help="Two scenarios, short.")
@click.option("--requests", "num", type=click.IntRange(100), default=2000, help="A phase.")
@click.option(
    "--draws", type=click.IntRange(1), default=1, help="Times, each time with other requests."
)
@click.option("--only", multiple=True, help="Scenarios of this name.")
@click.option("--azure-conversation", type=click.Path(exists=True, path_type=Path))
@click.option("--azure-code", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures.")
@click.option(
    "--from-json", type=click.Path(exists=True, path_type=Path), help="Show a former run."
)
@click.option("--write-docs", is_flag=True, help="Write the tables of docs/adaptation.md anew.")
def main(  # noqa: PLR0913, PLR0917 - one parameter an option
    quick: bool,  # noqa: FBT001 - click calls by keyword
    num: int,
    draws: int,
    only: tuple[str, ...],
    azure_conversation: Path | None,
    azure_code: Path | None,
    json_file: Path | None,
    from_json: Path | None,
    write_docs: bool,  # noqa: FBT001 - the same
) -> None:
    """Simulate loads that change under plans that stay or follow."""
    if (azure_conversation is None) != (azure_code is None):
        raise click.UsageError("--azure-conversation and --azure-code belong together")
    every = list(SCENARIOS)
    if azure_conversation is not None and azure_code is not None:
        phases = (azure_conversation, SHARE), (azure_code, SHARE)
        every.append(Scenario(name="Azure: conversation turns into code", phases=phases))
    chosen = [one for one in every if not only or one.name in only]
    chosen = chosen if from_json is None else []
    if quick:
        chosen, num = chosen[:2], min(num, 500)
    rows = [] if from_json is None else [Row(**row) for row in json.loads(from_json.read_text())]
    for scenario, number in product(chosen, range(draws)):
        print(f"{scenario.name} …", file=sys.stderr, flush=True)
        rows.append(row_of(scenario, num, number))
        if json_file is not None:
            text = json.dumps([asdict(row) for row in rows], indent=1)
            json_file.write_text(text, encoding="utf-8")
    print(table(rows), verdict(rows), sep="\n\n")
    if write_docs:
        write_page(rows)
    if any(row.missed() for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
