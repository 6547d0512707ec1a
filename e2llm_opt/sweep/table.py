"""The rows of a sweep as one table in a file: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import typing
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.plan.output import replaced
from e2llm_opt.plan.table_file import csv_writer, is_csv, pyarrow_for, refuse_table_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One row of a sweep; None and empty text where there is nothing to say.

    Parameters
    ----------
    row
        Its number in the sweep file, from 1: the grid first, then the rows.
    name … constraints
        What was asked: as the sweep file names it, else as the inventory says.
    status
        ``planned``, ``infeasible``, or ``failed``.
    capacity_per_s … proof
        Of the plan [1/s, s, W]; ``bound_per_s`` is what no plan can exceed.
    elapsed_s
        What planning took in its worker [s].
    reason
        Why there is no plan.
    key
        SHA-256 of everything that decides the answer.
    plan
        File name of the plan, where plans were asked for.
    """

    row: int
    name: str = ""
    inventory: str = ""
    model: str = ""
    weights: str = ""
    kv_cache: str = ""
    runtime: str = ""
    workload: str = ""
    rate_per_s: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    objective: str = ""
    constraints: str = ""
    planner: str = ""
    seed: int | None = None
    status: str
    capacity_per_s: float | None = None
    stable: bool | None = None
    waiting_time_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    mixed_replicas: int | None = None
    devices: int | None = None
    power_w: float | None = None
    cost_per_hour: float | None = None
    bound_per_s: float | None = None
    gap: float | None = None
    proof: str = ""
    elapsed_s: float | None = None
    reason: str = ""
    key: str = ""
    plan: str = ""


COLUMNS: Final = tuple(item.name for item in fields(SweepRow))
"""Columns of the table, in their order."""


def write_table(rows: Sequence[SweepRow], path: str) -> None:
    """Write *rows*, whole or not at all.

    Raises
    ------
    InputError
        As :func:`refuse_table_file`, or when the system refuses.
    """
    refuse_table_file(path, "a table")
    write = _write_csv if is_csv(path) else _write_parquet
    with replaced(path) as file:
        write(rows, file)


def _write_csv(rows: Sequence[SweepRow], file: IO[bytes]) -> None:
    with csv_writer(file) as writer:
        writer.writerow(COLUMNS)
        for row in rows:
            values = (getattr(row, name) for name in COLUMNS)
            writer.writerow([int(v) if isinstance(v, bool) else v for v in values])


def _write_parquet(rows: Sequence[SweepRow], file: IO[bytes]) -> None:
    pyarrow = pyarrow_for("")
    types = {
        "str": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
    }
    hints = typing.get_type_hints(SweepRow)
    schema = pyarrow.schema([(name, types[_bare(hints[name])]) for name in COLUMNS])
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        writer.write_table(pyarrow.table(columns, schema=schema))


def _bare(hint: Any) -> str:  # noqa: ANN401 - a type form
    """Return the name of the type inside ``float | None``."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    return str(kinds[0].__name__)
