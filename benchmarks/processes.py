"""What a user waits for: whole processes of ``e2llm-opt``, from start to exit."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from benchmarks.inventories import EXAMPLES

_TESTBED = str(EXAMPLES / "e2llm-testbed.yaml")
_CAMPUS = str(EXAMPLES / "campus-fog.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, how often it is run, and the median it should not exceed [s]."""

    name: str
    arguments: tuple[str, ...]
    runs: int
    target_s: float
    is_first_run: bool = False
    """Every run finds no compiled kernel, as the first one on a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A command and the time of each of its runs [s]."""

    command: Command
    runs_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median of the runs [s]."""
        return statistics.median(self.runs_s)


COMMANDS = (
    Command(name="`e2llm-opt --help`", arguments=("--help",), runs=15, target_s=0.25),
    Command(
        name="plan of the testbed, warm",
        arguments=("plan", _TESTBED, "--quiet"),
        runs=7,
        target_s=1.5,
    ),
    Command(
        name="plan of the testbed, first run ever (kernels are compiled)",
        arguments=("plan", _TESTBED, "--quiet"),
        runs=3,
        target_s=20.0,
        is_first_run=True,
    ),
    Command(
        name="plan of `campus-fog.yaml`, 40 devices",
        arguments=("plan", _CAMPUS, "--quiet"),
        runs=3,
        target_s=30.0,
    ),
)


def measured(most_runs: int | None = None) -> list[Timing]:
    """Run every command several times, once before to warm up, and return the times."""
    return [
        Timing(
            command=command,
            runs_s=tuple(_run(command) for _ in range(min(command.runs, most_runs or 100))),
        )
        for command in COMMANDS
        if command.is_first_run or _run(command) > 0
    ]


def _run(command: Command) -> float:
    with tempfile.TemporaryDirectory() as empty:
        environment = dict(os.environ)
        if command.is_first_run:
            environment["NUMBA_CACHE_DIR"] = empty
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "e2llm_opt", *command.arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - began


def table(timings: list[Timing]) -> str:
    """Return the medians beside their targets as a Markdown table."""
    lines = [
        "| command | median [s] | target [s] | fastest [s] | runs |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {timing.command.name} | {timing.median_s:.3g} | {timing.command.target_s:g} "
        f"| {min(timing.runs_s):.3g} | {len(timing.runs_s)} |"
        for timing in timings
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    print(table(measured()))


if __name__ == "__main__":
    main()
