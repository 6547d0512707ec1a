"""A sweep: every row once, whatever ends in the middle, and only once again where it must."""

from __future__ import annotations

import csv
import errno
import multiprocessing
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import e2llm_opt
from e2llm_opt import InputError, Problem, Stop, SweepProgress, SweepRow
from e2llm_opt.sweep import sweep as module
from e2llm_opt.sweep.question import Question
from e2llm_opt.sweep.sweep import sweep
from e2llm_opt.sweep.table import COLUMNS
from tests.workers.clusters import kill_a_worker
from tests.workers.tasks import counted_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sweep.conftest import Write

RATES = [round(0.01 * i, 2) for i in range(1, 13)]
TWELVE = f"inventories: [lab.yaml]\nrates_per_s: {RATES}\n"


def table(path: str | Path) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()))


def capacities(rows: tuple[SweepRow, ...]) -> list[float | None]:
    return [row.capacity_per_s for row in rows]


@pytest.fixture
def output(tmp_path: Path) -> str:
    return str(tmp_path / "results.csv")


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a file for every question that a worker was asked."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("E2LLM_TEST_MARKS", str(folder))
    monkeypatch.setattr(module, "answer", counted_answer)
    return folder


def num_marks(folder: Path) -> int:
    return len(list(folder.iterdir()))


def after(num: int, act: Callable[[], None]) -> Callable[[SweepProgress], None]:
    """Return a callback that acts once, when *num* rows are done."""
    acted: list[SweepProgress] = []

    def tell(state: SweepProgress) -> None:
        if state.done >= num and not acted:
            acted.append(state)
            act()

    return tell


def stop_now() -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("quick")
def test_rows_come_out_in_the_order_of_the_file(write: Write, output: str) -> None:
    rows = sweep(write(TWELVE), output, workers=2)
    assert capacities(rows) == [2 * rate for rate in RATES]
    found = table(output)
    assert tuple(found[0]) == COLUMNS
    assert [float(row["capacity_per_s"]) for row in found] == [2 * rate for rate in RATES]
    assert [row["row"] for row in found] == [str(i) for i in range(1, 13)]


ROWS = """\
rows:
  - {inventory: lab.yaml, objective: throughput}
  - {inventory: lab.yaml, model: lama-3.1-8b}
  - {inventory: lab.yaml, modell: x}
  - {inventory: nowhere.yaml}
  - {inventory: lab.yaml, planner: hexgenn}
  - {inventory: lab.yaml, weights: f16, constraints: {exclude: [tower]}}
  - just text
  - {inventory: lab.yaml, objective: throughput, rate_per_s: 0.2}
"""


@pytest.mark.needs_jit
def test_a_row_is_what_plan_says_and_a_bad_one_fails_with_its_reason(
    write: Write, output: str, tmp_path: Path
) -> None:
    """In a real worker that plans, with the plans themselves beside the table."""
    stop = Stop(gap=0.1)
    rows = sweep(write(ROWS), output, workers=1, plans=tmp_path / "plans", stop=stop)
    assert [row.status for row in rows] == [
        *("planned", "failed", "failed", "failed", "failed", "infeasible", "failed", "planned")
    ]
    assert "sweep.yaml:3: model: unknown model 'lama-3.1-8b'; did you mean llama" in rows[1].reason
    assert "sweep.yaml:4: rows[2].modell: unknown key; did you mean model" in rows[2].reason
    assert "nowhere.yaml: cannot be read: no such file" in rows[3].reason
    assert "sweep.yaml:6: planner: unknown planner 'hexgenn'; did you mean hexg" in rows[4].reason
    assert rows[5].reason.startswith("not enough memory")
    assert "sweep.yaml:8: rows[6]: must be a mapping" in rows[6].reason
    assert [row["status"] for row in table(output)] == [row.status for row in rows]
    for row, rate in ((rows[0], 0.1), (rows[7], 0.2)):
        problem = Problem.load(
            tmp_path / "lab.yaml", objective="throughput", workload={"rate_per_s": rate}
        )
        plan = e2llm_opt.plan(problem, stop=stop)
        assert isinstance(plan, e2llm_opt.Plan)
        assert row.capacity_per_s == plan.predicted.capacity_per_s
        assert row.waiting_time_s == plan.predicted.waiting_time_s
        assert (row.gap, row.proof) == (plan.bound.gap, plan.bound.proof)
        assert row.mixed_replicas == [one.role for one in plan.replicas].count("MIXED")
        assert (row.model, row.prompt_tokens, row.seed) == ("llama-3.1-8b", 500, 0)
        kept = e2llm_opt.load_plan(tmp_path / "plans" / row.plan)
        assert kept.replicas == plan.replicas
        assert kept.problem == plan.problem


@pytest.mark.usefixtures("marks")
def test_rows_that_ask_the_same_are_planned_once(write: Write, output: str, marks: Path) -> None:
    text = "rows:\n  - {name: a, inventory: lab.yaml}\n  - {name: b, inventory: lab.yaml}\n"
    rows = sweep(write(text), output, workers=1)
    assert num_marks(marks) == 1
    assert [row.name for row in rows] == ["a", "b"]
    assert rows[0].key == rows[1].key


@pytest.mark.usefixtures("quick")
def test_an_interrupt_keeps_what_is_done_and_the_next_run_goes_on(
    write: Write, output: str, marks: Path
) -> None:
    path = write(TWELVE)
    with pytest.raises(KeyboardInterrupt):
        sweep(path, output, workers=2, progress=after(5, stop_now))
    partly = table(output)
    assert 5 <= len(partly) < 12
    assert not multiprocessing.active_children()
    asked = num_marks(marks)
    states: list[SweepProgress] = []
    rows = sweep(path, output, workers=2, progress=states.append)
    assert capacities(rows) == [2 * rate for rate in RATES]
    assert [row["row"] for row in table(output)] == [str(i) for i in range(1, 13)]
    assert states[-1].resumed == len(partly)
    assert num_marks(marks) - asked == 12 - len(partly)


def test_what_is_done_is_not_planned_again_and_a_changed_inventory_is(
    write: Write, output: str, tmp_path: Path, marks: Path
) -> None:
    path = write(TWELVE)
    first = sweep(path, output, workers=1)
    assert sweep(path, output, workers=1) == first
    assert num_marks(marks) == 12
    lab = tmp_path / "lab.yaml"
    lab.write_text(lab.read_text(encoding="utf-8").replace("940", "100"), encoding="utf-8")
    again = sweep(path, output, workers=1)
    assert num_marks(marks) == 24
    assert not {row.key for row in first} & {row.key for row in again}
    assert len(table(output)) == 12


def test_a_sweep_that_grows_plans_only_what_is_new(write: Write, output: str, marks: Path) -> None:
    sweep(write(TWELVE), output, workers=1)
    rows = sweep(write(TWELVE + "seeds: [0, 1]\n"), output, workers=1)
    assert len(rows) == len(table(output)) == 24
    assert num_marks(marks) == 24


def test_failed_rows_are_tried_again(write: Write, output: str, marks: Path) -> None:
    path = write("rows:\n  - {inventory: lab.yaml}\n  - {inventory: late.yaml}\n")
    assert [row.status for row in sweep(path, output, workers=1)] == ["planned", "failed"]
    lab = Path(path).parent / "lab.yaml"
    text = lab.read_text(encoding="utf-8").replace("0.1,", "0.2,")
    (lab.parent / "late.yaml").write_text(text, encoding="utf-8")
    assert [row.status for row in sweep(path, output, workers=1)] == ["planned", "planned"]
    assert num_marks(marks) == 2


def test_a_plan_that_is_missing_is_made_again(
    write: Write, output: str, tmp_path: Path, marks: Path
) -> None:
    path, plans = write("rows: [{inventory: lab.yaml}]"), tmp_path / "plans"
    sweep(path, output, workers=1)
    (row,) = sweep(path, output, workers=1, plans=plans)
    assert (plans / row.plan).read_text(encoding="utf-8") == '{"rate": 0.1}'
    sweep(path, output, workers=1, plans=plans)
    assert num_marks(marks) == 2


def test_a_worker_killed_in_mid_run_loses_no_row(write: Write, output: str, marks: Path) -> None:
    def kill() -> None:
        pid = multiprocessing.active_children()[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    rows = sweep(write(TWELVE), output, workers=2, progress=after(4, kill))
    assert capacities(rows) == [2 * rate for rate in RATES]
    assert [row["row"] for row in table(output)] == [str(i) for i in range(1, 13)]
    assert 12 <= num_marks(marks) <= 13


@pytest.mark.usefixtures("quick")
def test_a_cluster_worker_killed_in_mid_run_loses_no_row(
    write: Write, output: str, dask: str
) -> None:
    rows = sweep(write(TWELVE), output, dask=dask, progress=after(4, lambda: kill_a_worker(dask)))
    assert capacities(rows) == [2 * rate for rate in RATES]
    assert {row.status for row in rows} == {"planned"}
    found = table(output)
    assert [row["row"] for row in found] == [str(i) for i in range(1, 13)]
    assert len({row["key"] for row in found}) == 12
    journal = Path(f"{output}.journal").read_text(encoding="utf-8").splitlines()
    assert len(journal) == 13


@pytest.mark.slow
def test_a_cluster_plans_what_this_machine_plans(write: Write, output: str, dask: str) -> None:
    """With real plans."""
    path = write("inventories: [lab.yaml]\nobjectives: [throughput, latency]\n")
    here = sweep(path, output, workers=1)
    there = sweep(path, f"{output}.csv", dask=dask)
    assert _without_time(here) == _without_time(there)


def _without_time(rows: tuple[SweepRow, ...]) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in COLUMNS if name != "elapsed_s"} for row in rows]


@pytest.mark.usefixtures("quick")
def test_a_full_disk_keeps_what_is_done_and_the_next_run_goes_on(
    write: Write, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, left = write(TWELVE), os.pwrite, [5]

    def filling(file: int, data: bytes, offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            real(file, data[:7], offset)  # a part still fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", filling)
    with pytest.raises(InputError, match="no space left on device; what is done is kept; the same"):
        sweep(path, output, workers=2)
    assert not Path(output).exists()
    monkeypatch.setattr(os, "pwrite", real)
    states: list[SweepProgress] = []
    rows = sweep(path, output, workers=2, progress=states.append)
    assert capacities(rows) == [2 * rate for rate in RATES]
    assert states[-1].resumed == 4  # five writes, one of them the head
    assert [row["row"] for row in table(output)] == [str(i) for i in range(1, 13)]


@pytest.mark.usefixtures("quick")
def test_a_torn_journal_is_repaired(write: Write, output: str) -> None:
    path = write(TWELVE)
    first = sweep(path, output, workers=1)
    journal = Path(f"{output}.journal")
    journal.write_bytes(journal.read_bytes()[:-20])
    states: list[SweepProgress] = []
    assert sweep(path, output, workers=1, progress=states.append) == first
    assert states[-1].resumed == 11


def test_an_output_that_is_no_table_is_refused_before_anything_runs(
    write: Write, tmp_path: Path
) -> None:
    path = write(TWELVE)
    for name in ("results.txt", "-", "results"):
        with pytest.raises(InputError, match="no format for a table; use"):
            sweep(path, name)
    with pytest.raises(InputError, match="cannot be written"):
        sweep(path, tmp_path / "nowhere" / "results.csv")
    with pytest.raises(InputError, match="cannot be a folder of plans"):
        sweep(path, tmp_path / "results.csv", plans=path)
    assert {file.name for file in tmp_path.iterdir()} == {"lab.yaml", "sweep.yaml"}


def test_the_key_is_of_all_that_decides_the_answer(write: Write, tmp_path: Path) -> None:
    write(TWELVE)
    lab = tmp_path / "lab.yaml"

    def key(
        *, planner: str = "e2llm-opt", seed: int = 0, stop: Stop | None = None, **more: Any
    ) -> str:
        problem = Problem.load(lab, **more)
        return Question(problem=problem, planner=planner, seed=seed, stop=stop or Stop()).key

    keys = [
        key(),
        key(planner="hexgen"),
        key(seed=1),
        key(stop=Stop(gap=0.5)),
        key(stop=Stop(time_limit_s=9)),
        key(objective="cost"),
        key(weights="q8_0"),
        key(kv_cache="q8_0"),
        key(model="llama-3.2-3b"),
        key(runtime="vllm"),
        key(runtime={"hop_overhead_ms": 7}),
        key(workload={"rate_per_s": 0.3}),
        key(workload={"slo": {"ttft_s": 3}}),
        key(constraints={"exclude": ["laptop"]}),
        key(constraints={"layers": {"laptop": 2}}),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0] == key(workload={"rate_per_s": 0.1})
    text = lab.read_text(encoding="utf-8")
    lab.write_text(text.replace("latency_ms: 0.2", "latency_ms: 0.3"), encoding="utf-8")
    assert key() not in keys
