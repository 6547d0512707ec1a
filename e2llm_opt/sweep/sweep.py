"""A sweep: every row of a file planned by many workers, each kept as soon as it is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2llm_opt.catalogue.names import UnknownNameError, nearest_keys
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.output import write_text_atomically
from e2llm_opt.plan.plan import OURS
from e2llm_opt.plan.table_file import refuse_table_file
from e2llm_opt.planners import PLANNERS
from e2llm_opt.sweep.journal import Journal
from e2llm_opt.sweep.question import FAILED, PLANNED, Answer, Question, answer
from e2llm_opt.sweep.table import SweepRow, write_table
from e2llm_opt.workers.workers import open_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.loading.sweep_file import Scenario, SweepFile
    from e2llm_opt.search.stop import Stop

JOURNAL_ENDING = ".journal"
"""Behind the name of the table: the file that a sweep goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """How far a sweep is.

    Parameters
    ----------
    rows
        Of the whole sweep.
    done
        Rows with an answer, whatever it is.
    resumed, failed
        Of these, rows that an earlier run had answered, and rows that failed.
    workers
        Processes that plan.
    """

    rows: int
    done: int
    resumed: int
    failed: int
    workers: int


SweepCallback = Callable[[SweepProgress], None]


def sweep(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    seed: int = 0,
    stop: Stop | None = None,
    workers: int | None = None,
    dask: str | None = None,
    plans: str | os.PathLike[str] | None = None,
    progress: SweepCallback | None = None,
) -> tuple[SweepRow, ...]:
    """Plan every row of a sweep file, and write one table.

    Each answer is on disk, in a journal beside *output*, before the next is waited for. A sweep
    that was interrupted, or whose file has grown, goes on: rows that have an answer are not
    planned again, unless anything that decides it has changed, an inventory file for instance.
    Rows that failed are tried again.

    Parameters
    ----------
    path
        The sweep file (docs/file-formats.md).
    output
        The table, ``….csv`` or ``….parquet``; it appears when all is done, or at an interrupt
        with the rows that are done.
    seed
        Of the genetic algorithm, where the file gives none.
    stop
        Limits of each search.
    workers
        Processes on this machine; None: as many as it has cores. A program that starts some needs
        ``if __name__ == "__main__":`` around what it does.
    dask
        Address of a Dask scheduler, whose workers plan instead.
    plans
        Folder that takes every plan as JSON; the table names the files.
    progress
        Called several times a second; where it raises KeyboardInterrupt the sweep ends as after
        Ctrl-C.

    Returns
    -------
    tuple of SweepRow
        In the order of the file.

    Raises
    ------
    InputError
        When the file as a whole is no sweep, an output cannot be written, or there are no workers.
        What is wrong with a row is the reason why that row failed.
    KeyboardInterrupt
        When interrupted; what is done is kept.
    """
    from e2llm_opt.loading.sweep_file import SweepFile  # noqa: PLC0415 - pydantic takes long
    from e2llm_opt.search.stop import Stop  # noqa: PLC0415 - numba comes with its package

    refuse_table_file(output, "a table")
    file, name = SweepFile(path), os.fspath(output)
    folder = None if plans is None else _made(plans)
    with Journal(name + JOURNAL_ENDING) as journal:
        run = _Run(file, journal, (seed, stop or Stop()), folder, progress)
        try:
            with open_workers(num=workers, dask=dask) as pool:
                run.num_workers = lambda: pool.num
                for done in pool.map_unordered(answer, run.questions(), run.tell):
                    run.take(done.index, done.answer, done.error)
        except KeyboardInterrupt:
            write_table(run.rows, name)
            raise
        write_table(run.rows, name)
    return run.rows


class _Run:
    """Which rows wait for an answer, and which have one."""

    def __init__(
        self,
        file: SweepFile,
        journal: Journal,
        how: tuple[int, Stop],
        folder: Path | None,
        progress: SweepCallback | None,
    ) -> None:
        self._file, self._journal, self._folder = file, journal, folder
        self._seed, self._stop = how
        self._progress = progress
        self._rows: dict[int, SweepRow] = {}
        self._asked: list[Question] = []
        self._waiting: dict[str, list[tuple[int, Scenario]]] = {}
        self._num_resumed = 0
        self.num_workers: Callable[[], int] = lambda: 0

    @property
    def rows(self) -> tuple[SweepRow, ...]:
        """The rows that are done, in the order of the file."""
        return tuple(row for _, row in sorted(self._rows.items()))

    def questions(self) -> Iterator[Question]:
        """Yield what is still to be planned; rows that ask the same are planned once."""
        for number, scenario in enumerate(self._file.scenarios, start=1):
            try:
                question = self._question(scenario)
            except InputError as error:
                self._keep(number, scenario, None, FAILED, {"reason": str(error)})
                self.tell()
                continue
            key, known = question.key, self._journal.records.get(question.key)
            is_there = self._folder is None or (self._folder / _file_name(key)).exists()
            if known is not None and (is_there or known["status"] != PLANNED):
                self._num_resumed += 1
                self._keep(number, scenario, question, **known)
                self.tell()
                continue
            self._waiting.setdefault(key, []).append((number, scenario))
            if len(self._waiting[key]) == 1:
                self._asked.append(question)
                yield question

    def take(self, index: int, found: Answer | None, error: str) -> None:
        """Keep the answer to the question with this index, on disk first."""
        question = self._asked[index]
        if found is None:
            found = Answer(status=FAILED, figures={"reason": error})
        if found.plan and self._folder is not None:
            write_text_atomically(self._folder / _file_name(question.key), found.plan)
        if found.status != FAILED:
            self._journal.add(question.key, {"status": found.status, "figures": found.figures})
        for number, scenario in self._waiting.pop(question.key):
            self._keep(number, scenario, question, found.status, found.figures)
        self.tell()

    def tell(self) -> None:
        """Say how far the sweep is, if anybody listens."""
        if self._progress is not None:
            failed = sum(1 for row in self._rows.values() if row.status == FAILED)
            self._progress(
                SweepProgress(
                    rows=len(self._file.scenarios),
                    done=len(self._rows),
                    resumed=self._num_resumed,
                    failed=failed,
                    workers=self.num_workers(),
                )
            )

    def _question(self, scenario: Scenario) -> Question:
        problem = self._file.problem(scenario)
        asked = scenario.asked.get("planner")
        planner = OURS if asked is None else asked.value
        if planner not in PLANNERS:
            nearest = nearest_keys(str(planner), {key: key for key in PLANNERS}) or PLANNERS
            unknown = UnknownNameError("planner", str(planner), nearest)
            raise InputError([_placed(unknown, scenario)]) from None
        seed = scenario.said("seed")
        return Question(
            problem=problem,
            planner=planner,
            seed=self._seed if seed is None else seed,
            stop=self._stop,
            wants_plan=self._folder is not None,
        )

    def _keep(
        self,
        number: int,
        scenario: Scenario,
        question: Question | None,
        status: str,
        figures: dict[str, Any],
    ) -> None:
        asked = _said(scenario) if question is None else _resolved(scenario, question)
        has_plan = self._folder is not None and status == PLANNED
        plan = _file_name(asked["key"]) if has_plan else ""
        self._rows[number] = SweepRow(row=number, status=status, plan=plan, **asked, **figures)


def _placed(error: InputError, scenario: Scenario) -> Fault:
    place, fault = scenario.asked["planner"].place, error.faults[0]
    return replace(fault, path="planner", file=place.file, line=place.line)


def _said(scenario: Scenario) -> dict[str, Any]:
    """Return what was asked as the file says it, where that is no problem."""
    words = ("inventory", "model", "weights", "kv_cache", "runtime", "workload", "objective")
    rate, seed = scenario.said("rate_per_s"), scenario.said("seed")
    return {
        "name": scenario.name,
        **{key: scenario.label(key) for key in (*words, "constraints", "planner")},
        "rate_per_s": rate if isinstance(rate, int | float) else None,
        "seed": seed,
    }


def _resolved(scenario: Scenario, question: Question) -> dict[str, Any]:
    """Return what was asked, with what the inventory says where the sweep does not."""
    problem, workload = question.problem, question.problem.workload
    return {
        **_said(scenario),
        "model": problem.facts.name,
        "weights": problem.weights,
        "kv_cache": problem.kv_cache,
        "runtime": problem.runtime.name,
        "rate_per_s": workload.rate_per_s,
        "prompt_tokens": workload.prompt.mean,
        "output_tokens": workload.output.mean,
        "objective": str(problem.objective),
        "planner": question.planner,
        "seed": question.seed,
        "key": question.key,
    }


def _file_name(key: str) -> str:
    return f"{key[:16]}.json"


def _made(folder: str | os.PathLike[str]) -> Path:
    """Return *folder*, made where it is missing.

    Raises
    ------
    InputError
        When that is refused.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = f"cannot be a folder of plans: {(error.strerror or str(error)).lower()}"
        raise InputError([Fault(file=str(path), wrong=wrong)]) from None
    return path
