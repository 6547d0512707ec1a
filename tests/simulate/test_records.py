"""Records of requests in files: what is read back is what was simulated."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import InputError
from e2llm_opt.plan.table_file import refuse_table_file
from e2llm_opt.simulate import records
from e2llm_opt.simulate.records import COLUMNS
from e2llm_opt.simulate.simulate import simulate
from tests.simulate.small import ON_DESKTOP, ON_MAC, plan, problem, trace

if TYPE_CHECKING:
    from pathlib import Path

    from e2llm_opt.simulate.simulate import Simulation

REQUESTS = trace((0, 100, 10), (0.5, 300, 400), (1, 900, 10), (1.5, 120, 30))


@pytest.fixture(scope="module")
def run() -> Simulation:
    found = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC), longest=400)
    return simulate(found, problem(), REQUESTS, warmup=1)


@pytest.mark.parametrize("block", [1, 3, 65536])
def test_csv_reads_back_to_the_same_numbers(
    run: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(records, "_BLOCK", block)
    path = tmp_path / "requests.csv"
    run.write_records(path)
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [float(row["arrival_s"]) for row in rows] == run.arrivals.arrival_s.tolist()
    assert [int(row["output_tokens"]) for row in rows] == [10, 400, 10, 30]
    assert [row["counted"] for row in rows] == ["0", "1", "0", "1"]
    assert [row["decode"] for row in rows] == ["r1", "r1", "", "r1"]
    for name in ("waiting_time_s", "wait_kv_s", "ttft_s", "tpot_s", "latency_s"):
        values = getattr(run, name).tolist()
        found = [float(row[name]) if row[name] else None for row in rows]
        assert found == [values[0], values[1], None, values[3]]


def test_parquet_reads_back_to_the_same_numbers(run: Simulation, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "requests.parquet"
    run.write_records(path)
    found = parquet.read_table(path)
    assert tuple(found.column_names) == COLUMNS
    assert found["prefill"].to_pylist() == ["r0", "r0", None, "r0"]
    assert found["counted"].to_pylist() == [False, True, False, True]
    latency = run.latency_s.tolist()
    assert found["latency_s"].to_pylist() == [latency[0], latency[1], None, latency[3]]


def test_a_file_of_another_kind_is_refused_and_nothing_is_written(
    run: Simulation, tmp_path: Path
) -> None:
    path = tmp_path / "requests.xlsx"
    with pytest.raises(InputError, match=r"use \.csv or \.parquet"):
        run.write_records(path)
    assert not path.exists()


def test_a_folder_that_is_not_there_is_refused_before_the_simulation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or directory"):
        refuse_table_file(tmp_path / "absent" / "requests.csv", "records")


def test_parquet_without_pyarrow_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'e2llm-opt\[parquet\]'"):
        refuse_table_file(tmp_path / "requests.parquet", "records")
