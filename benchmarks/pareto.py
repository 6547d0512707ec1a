"""How good a front is: against a weighted-sum search with the same budget, and how long it takes.

Both searches see the same judge, start from the same greedy groupings and judge equally many new
groupings. The weighted sum divides them among weights, evolves groupings by each, and its front is
the best plan of each weight; what it would have kept had it kept all it saw stands beside it.
``--write-docs`` writes the tables and the picture of docs/trade-offs.md.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np
from pymoo.util.ref_dirs import get_reference_directions

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import inventories
from benchmarks.inventories import EXAMPLES
from e2llm_opt import Problem, Stop, load_front
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.search import evolve as single
from e2llm_opt.search.quick import QuickJudge
from e2llm_opt.search.search import Search
from e2llm_opt.search.tradeoff import evolve as many
from e2llm_opt.search.tradeoff.aim import Aim
from e2llm_opt.search.tradeoff.aims import Aims
from e2llm_opt.search.tradeoff.front import Archive
from e2llm_opt.search.tradeoff.geometry import efficient
from e2llm_opt.search.tradeoff.judge import PackingJudge
from e2llm_opt.search.variant import all_variants

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from e2llm_opt.search.tradeoff.judge import Verdict

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

DOCS = Path(__file__).parents[1] / "docs"
TESTBED = EXAMPLES / "e2llm-testbed.yaml"
LEAST_PLANS, MOST_S = 20, 20.0
BUDGET, QUICK_BUDGET = 1200, 300
NUM_WEIGHTS = 10
_ASSIGNMENTS = 250
_BOX = 1.1
_MARKED = re.compile(r"(<!-- benchmark -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)
_AIMS = (Aim.WAITING_TIME, Aim.COST_PER_HOUR, Aim.POWER_W, Aim.LOST_CAPACITY)


class Instance(NamedTuple):
    """A problem, and what its front is about."""

    name: str
    problem: Callable[[], Problem]
    aims: tuple[Aim, ...] = _AIMS


INSTANCES = (
    Instance("testbed", inventories.testbed),
    Instance("testbed, wait and power", inventories.testbed, (Aim.WAITING_TIME, Aim.POWER_W)),
    Instance("10 distinct devices", lambda: inventories.distinct(10)),
    Instance("10 devices, unlike links", lambda: inventories.unlike(10)),
    Instance("14 devices of 5 classes", lambda: inventories.in_classes(14, 5)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Hypervolumes in the box to 1.1 times the worst of all three fronts, and groupings judged."""

    name: str
    objectives: int
    front: float
    weighted: float
    weighted_all: float
    num_plans: int
    num_weighted: int
    judged: int
    weighted_judged: int

    @property
    def is_kept(self) -> bool:
        """Whether the front is no worse than the weighted sum's."""
        return self.front >= self.weighted * (1 - 1e-9)


class Bed:
    """One instance: the judge that both searches ask, and how many new groupings it saw."""

    def __init__(self, instance: Instance, seed: int) -> None:
        self._problem = priced(instance.problem())
        self.seed = seed
        self.search = Search(costs_of(self._problem))
        aims = Aims(self.search.evaluator, instance.aims, is_stable=True)
        self.archive = Archive(self.search.evaluator, self.search.rules, aims)
        self.quick = QuickJudge(self.search, self.search.variant, Stop())
        self.judge = PackingJudge(self.search, self.archive, self.quick.evaluator, _ASSIGNMENTS)
        self.known: dict[object, Verdict] = {}

    def verdict(self, labels: Labels) -> Verdict:
        """Judge a grouping; once."""
        groups = self.quick.identity(labels)
        if groups not in self.known:
            self.known[groups] = self.judge.grouping(groups, all_variants(self._problem))
        return self.known[groups]

    def evolved(self, budget: int) -> Floats:
        """Return the front of NSGA-II or NSGA-III [N, M]."""
        many.evolve(
            self.quick.seeds,
            self.verdict,
            self.quick.identity,
            stop=Stop(max_evaluations=budget, stagnation=10**6),
            seed=self.seed,
            is_late=lambda: False,
            num_changes=lambda: self.archive.num_changes,
        )
        return self.archive.points

    def weighted(self, budget: int, scale: tuple[Floats, Floats]) -> Floats:
        """Return the best of each weight [W, M], objectives scaled by a low and a high end."""
        num = len(self.archive.aims.names)
        weights = np.maximum(get_reference_directions("energy", num, NUM_WEIGHTS, seed=1), 1e-3)
        low, high = scale
        best = []
        for turn, weight in enumerate(weights, start=1):
            most = budget * turn // len(weights)
            found: dict[float, Floats] = {}

            def worth(labels: Labels, weight: Floats = weight, found=found, most=most) -> float:  # type: ignore[no-untyped-def] # noqa: ANN001 - bound to this turn
                if len(self.known) >= most and self.quick.identity(labels) not in self.known:
                    return 1e18
                verdict = self.verdict(labels)
                if not len(verdict.points):
                    return 1e9 * (1 + verdict.amiss)
                values = ((verdict.points - low) / (high - low)) @ weight
                found[float(values.min())] = verdict.points[int(values.argmin())]
                return float(values.min())

            single.evolve(
                self.quick.seeds,
                worth,
                self.quick.identity,
                stop=Stop(max_evaluations=budget, stagnation=50),
                seed=self.seed + turn,
                is_late=lambda most=most: len(self.known) >= most,  # type: ignore[misc]
                between=lambda: None,
            )
            if found:
                best.append(found[min(found)])
        points = np.array(best)
        return points[efficient(points)]


def priced(problem: Problem) -> Problem:
    """Return *problem* with the powers and costs that it lacks: more for faster devices."""
    machines = tuple(
        replace(
            device,
            power_w=device.power_w or round(10 + 5e-11 * device.memory_bandwidth_bytes_per_s * 8),
            cost_per_hour=device.cost_per_hour
            or round(0.02 + 4e-15 * device.fp16_flop_per_s + 2e-13 * device.memory_bytes, 4),
        )
        for device in problem.devices
    )
    return replace(problem, inventory=replace(problem.inventory, devices=machines))


def compared(instance: Instance, budget: int, seed: int = 0) -> Compared:
    """Search both ways with equal budgets."""
    bed, rival = Bed(instance, seed), Bed(instance, seed)
    front = bed.evolved(budget)
    scale = front.min(axis=0), np.maximum(front.max(axis=0), front.min(axis=0) + 1e-9)
    # The weighted sum is even told where the front ends.
    weighted = rival.weighted(len(bed.known), scale)
    fronts = front, weighted, rival.archive.points
    worst = _BOX * np.concatenate(fronts).max(axis=0)
    volumes = [many.hypervolume(points, worst) for points in fronts]
    return Compared(
        name=instance.name,
        objectives=len(instance.aims),
        front=volumes[0],
        weighted=volumes[1],
        weighted_all=volumes[2],
        num_plans=len(front),
        num_weighted=len(weighted),
        judged=len(bed.known),
        weighted_judged=len(rival.known),
    )


def timed(runs: int, picture: Path | None) -> tuple[int, float, float]:
    """Return the plans of the testbed's front; fastest run of the command, and its CPU time [s]."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "e2llm_opt", "pareto", str(TESTBED), "-q", "-o", folder]
        subprocess.run(command, check=True)  # compiles
        for _ in range(runs):
            began, used = time.perf_counter(), _used_by_children()
            subprocess.run(command, check=True)
            times.append((time.perf_counter() - began, _used_by_children() - used))
        front = load_front(Path(folder) / "front.json")
        if picture is not None:
            front.plot(picture)
    return (len(front.plans), *min(times))


def _used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(rows: list[Compared]) -> str:
    """Return the comparison as a Markdown table."""
    heads = ("instance", "objectives", "front", "weighted sum", "all it saw", "plans")
    lines = [
        f"| {' | '.join((*heads, 'its plans', 'groupings'))} |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.name} | {row.objectives} | {row.front:.4f} | {row.weighted:.4f} | "
        f"{row.weighted_all:.4f} | {row.num_plans} | {row.num_weighted} | "
        f"{row.judged} / {row.weighted_judged} |"
        for row in rows
    ]
    return "\n".join(lines)


def text_of(rows: list[Compared], took: tuple[int, float, float], command: str) -> str:
    """Return what the page says."""
    kept, (plans, wall_s, cpu_s) = sum(row.is_kept for row in rows), took
    return (
        f"`{command}`: the testbed's front has {plans} plans, and the whole command takes "
        f"{wall_s:.1f} s, warm, of which {cpu_s:.1f} s on a core (promised: {LEAST_PLANS} plans in "
        f"{MOST_S:.0f} s on a machine with nothing else to do). Hypervolumes at equal "
        f"numbers of new groupings; the front is no worse than the weighted sum on {kept} of "
        f"{len(rows)} instances.\n\n{table(rows)}\n"
    )


@click.command()
@click.option("--quick", is_flag=True, help="A smaller budget, and the command is timed once.")
@click.option("--write-docs", is_flag=True, help="Write docs/trade-offs.md and its picture anew.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def main(*, quick: bool, write_docs: bool, seed: int) -> None:
    """Measure and print; exit 1 where a promised figure is missed."""
    took = plans, seconds, _ = timed(1, DOCS / "trade-offs.svg" if write_docs else None)
    rows = []
    for instance in INSTANCES:
        rows.append(compared(instance, QUICK_BUDGET if quick else BUDGET, seed))
        click.echo(f"{instance.name}: {rows[-1].front:.4f} / {rows[-1].weighted:.4f}", err=True)
    options = f"{' --quick' if quick else ''}{' --write-docs' if write_docs else ''}"
    text = text_of(rows, took, f"python -m benchmarks.pareto{options}")
    click.echo(text)
    if write_docs:
        page = DOCS / "trade-offs.md"
        old = page.read_text(encoding="utf-8")
        page.write_text(
            _MARKED.sub(lambda match: f"{match[1]}{text}{match[2]}", old), encoding="utf-8"
        )
    is_kept = plans >= LEAST_PLANS and seconds <= MOST_S and all(row.is_kept for row in rows)
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
