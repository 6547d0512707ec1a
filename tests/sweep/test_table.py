"""The table of a sweep: what is read back is what was written."""

from __future__ import annotations

import csv
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import InputError, SweepRow
from e2llm_opt.plan.table_file import refuse_table_file
from e2llm_opt.sweep.table import COLUMNS, write_table

if TYPE_CHECKING:
    from pathlib import Path

ROWS = (
    SweepRow(row=1, name='a,"b"', status="planned", stable=True, gap=0.1, seed=3, devices=2),
    SweepRow(row=2, status="failed", reason="two\nlines"),
)


def test_csv_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_table(ROWS, str(path))
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert tuple(found[0]) == COLUMNS == tuple(item.name for item in fields(SweepRow))
    assert [row["name"] for row in found] == ['a,"b"', ""]
    assert [row["stable"] for row in found] == ["1", ""]
    assert [row["gap"] for row in found] == ["0.1", ""]
    assert found[1]["reason"] == "two\nlines"


@pytest.mark.parametrize("rows", [ROWS, ()])
def test_parquet_reads_back(tmp_path: Path, rows: tuple[SweepRow, ...]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    write_table(rows, str(path))
    found = parquet.read_table(path)
    assert tuple(found.column_names) == COLUMNS
    assert found.to_pylist() == [{name: getattr(row, name) for name in COLUMNS} for row in rows]


def test_parquet_without_pyarrow_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'e2llm-opt\[parquet\]', or write .csv"):
        refuse_table_file(tmp_path / "t.parquet", "a table")
