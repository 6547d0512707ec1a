"""How many small faults put into the code on purpose do the tests find?

A seeded random sample of mutants runs against the target's tests, with the kernels as plain Python,
on copies of the tree. Results also go to build/mutation-<target>.json.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, replace
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.mutants import ROOT, Mutant, equivalents, mutants, mutated

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW = (
    "prefill_bottleneck_is_exact or close_to_the_best or more_devices "
    "or (unlike_layers_over and not DECODE)"
)
TARGETS = {
    "partition": (
        [
            "e2llm_opt/partition/**/*.py",
            "e2llm_opt/cost/stages/kernel.py",
            "e2llm_opt/cost/spill.py",
        ],
        [
            "tests/partition/test_programs.py",
            "tests/cost/test_stages.py",
            "tests/cost/test_formulas.py::test_as_few_layers_spill_as_memory_needs",
            "tests/partition/paper",
            "tests/partition/test_brute_force.py",
            "tests/partition/test_kernel.py",
            "-k",
            f"not ({SLOW})",
        ],
    ),
    "queueing": (
        ["e2llm_opt/cost/kernel.py"],
        ["tests/cost/test_queueing.py", "tests/cost/test_pools.py"],
    ),
    "check": (["e2llm_opt/check/*.py"], ["tests/check"]),
}
"""Globs of the code, and its tests, the quickest to tell first."""
COPIED = ("e2llm_opt", "tests", "examples", "docs", "benchmarks", "pyproject.toml", "README.md")
LOADED = ("numpy", "numba", "scipy.optimize", "networkx", "hypothesis", "pytest")
"""Loaded once; each mutant runs in a fork: Python with these takes seconds to start."""
PATIENCE_S = 8
"""A test that takes so long hangs: the slowest takes a second or two."""
OUTCOMES = ("killed", "timed out", "survived")


class Patience:
    """A pytest plugin: no test keeps the processor busy for long, however busy that is."""

    def pytest_runtest_setup(self) -> None:
        stop_at = int(time.process_time()) + PATIENCE_S
        resource.setrlimit(resource.RLIMIT_CPU, (stop_at, resource.RLIM_INFINITY))


class Bench:
    """One copy of the tree, with at most one mutant under test."""

    def __init__(self, tree: Path, tests: list[str]) -> None:
        ignore = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tree / name, ignore=ignore)
            else:
                shutil.copy2(ROOT / name, tree / name)
        self.tree, self.tests = tree, tests

    def start(self, mutant: Mutant | None) -> None:
        self.mutant = mutant
        if mutant is not None:
            (self.tree / mutant.path).write_text(mutated(mutant)[1], encoding="utf-8")
        self.run = get_context("fork").Process(target=self._test)
        self.run.start()

    def outcome(self) -> str:
        """Return how it ended; nothing as long as it runs."""
        if self.run.is_alive():
            return ""
        if self.mutant is not None:
            shutil.copy2(ROOT / self.mutant.path, self.tree / self.mutant.path)
        if self.run.exitcode == -signal.SIGXCPU:
            return "timed out"
        return "killed" if self.run.exitcode else "survived"

    def _test(self) -> None:
        """Run the tests in this process and leave it with their exit code."""
        import pytest  # noqa: PLC0415 - after numba's switch is set

        sys.dont_write_bytecode = self.mutant is not None
        log = os.open(self.tree / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log, stream.fileno())
        os.chdir(self.tree)
        sys.path[0] = str(self.tree)
        options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider"]
        options += ["-W", "ignore::RuntimeWarning"]  # compiled code tells nobody of overflows
        os._exit(pytest.main([*options, *self.tests], plugins=[Patience()]))


def measured(benches: list[Bench], chosen: list[Mutant]) -> Iterator[Mutant]:
    """Yield each mutant with its outcome as it ends."""
    waiting, free, busy = list(chosen), list(benches), list[Bench]()
    while waiting or busy:
        while waiting and free:
            busy.append(free.pop())
            busy[-1].start(waiting.pop(0))
        time.sleep(0.02)
        for bench in list(busy):
            outcome = bench.outcome()
            if outcome and bench.mutant is not None:
                busy.remove(bench)
                free.append(bench)
                yield replace(bench.mutant, outcome=outcome)


def plain_seconds(bench: Bench) -> float:
    """Return how long the tests keep the processor busy where nothing is changed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    bench.start(None)
    bench.run.join()
    if bench.run.exitcode:
        print((bench.tree / "tests.log").read_text(encoding="utf-8"))
        raise click.ClickException(f"{' '.join(bench.tests)} fail without any mutant.")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def drawn(globs: list[str], seed: int, num: int | None) -> tuple[list[Mutant], int]:
    """Return a sample of the mutants that are not known to be equivalent, and how many exist."""
    paths = sorted({str(p.relative_to(ROOT)) for glob in globs for p in ROOT.glob(glob)})
    everything = [mutant for path in paths for mutant in mutants(path)]
    total = len(everything)
    random.Random(seed).shuffle(everything)  # noqa: S311 - no secret
    if num is not None:  # one a place, or the seven of every operator crowd out the rest
        everything = list({(m.path, m.line, m.column): m for m in everything}.values())
    known = equivalents()
    told = (mutated(mutant)[0] for mutant in everything)
    return list(islice((m for m in told if m.key not in known), num)), total


def run(target: str, seed: int, num: int | None, jobs: int) -> str:
    """Measure one target, and return its line of the table."""
    globs, tests = TARGETS[target]
    chosen, exist = drawn(globs, seed, num)
    found = []
    with tempfile.TemporaryDirectory() as room:
        benches = [Bench(Path(room, str(job)), tests) for job in range(jobs)]
        seconds = [plain_seconds(bench) for bench in benches][-1]
        print(f"{target}: {exist} mutants exist, {len(chosen)} chosen; tests take {seconds:.1f} s")
        for mutant in measured(benches, chosen):
            found.append(asdict(mutant))
            click.echo(f"{len(found)}/{len(chosen)}\r", nl=False, err=True)
            if mutant.outcome != "killed":
                place = f"{mutant.path}:{mutant.line} {mutant.function}"
                print(f"{len(found)}/{len(chosen)} {place}: {mutant.outcome}")
                print(f"- {mutant.old}\n+ {mutant.new}", flush=True)
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    (build / f"mutation-{target}.json").write_text(json.dumps(found, indent=1))
    counts = Counter(mutant["outcome"] for mutant in found)
    rate = 1.0 - counts["survived"] / max(1, len(found))
    figures = "".join(f"{counts[outcome]:>11}" for outcome in OUTCOMES)
    return f"{target:<11}{len(found):>8}{figures}{rate:>8.1%}"


@click.command(context_settings={"show_default": True})
@click.option(
    "--target", "targets", type=click.Choice([*TARGETS]), multiple=True, default=[*TARGETS]
)
@click.option("--sample", default=120, help="Mutants a target.")
@click.option("--all", "is_all", is_flag=True, help="Every mutant: hours.")
@click.option("--seed", default=0)
@click.option("--jobs", default=2, help="Mutants at a time.")
def main(targets: list[str], *, sample: int, is_all: bool, seed: int, jobs: int) -> None:
    """Change the code in random places and see whether the tests notice."""
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "mutation"}
    for name in LOADED:
        import_module(name)
    lines = [run(target, seed, None if is_all else sample, jobs) for target in targets]
    print(f"\n{'target':<11}{'mutants':>8}{''.join(f'{o:>11}' for o in OUTCOMES)}{'rate':>8}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
