"""What became of each request as a table in a file: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

from e2llm_opt.plan.output import replaced
from e2llm_opt.plan.table_file import csv_writer, is_csv, pyarrow_for, refuse_table_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from e2llm_opt.simulate.simulate import Simulation

COLUMNS: Final = (
    *("arrival_s", "prompt_tokens", "output_tokens", "prefill", "decode", "counted"),
    *("waiting_time_s", "wait_prefill_s", "wait_kv_s", "wait_decode_s"),
    *("ttft_s", "tpot_s", "latency_s", "retries", "tokens_twice"),
)
"""Columns, in their order; ``prefill`` and ``decode`` name replicas. Rejected: no value."""
_WHOLE = ("retries", "tokens_twice")
_TIMES = tuple(name for name in COLUMNS[3:] if name.endswith("_s"))
_BLOCK = 65536
"""Rows at once, so that memory stays small."""


def write_records(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Write one row a request, in the order of arrival, whole or not at all.

    Parameters
    ----------
    simulation
        What to write.
    path
        ``….csv`` or ``….parquet``; times in seconds.

    Raises
    ------
    InputError
        When it ends in neither, cannot be written, or pyarrow is missing for Parquet.
    """
    refuse_table_file(path, "records")
    write = _write_csv if is_csv(path) else _write_parquet
    with replaced(path) as file:
        write(simulation, file)


def _blocks(simulation: Simulation) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of some rows each, as Python values; None where there is no value."""
    arrivals = simulation.arrivals
    names = (*simulation.names, None)  # -1 is the last
    counted = simulation.counted
    for start in range(0, arrivals.num_requests, _BLOCK):
        rows = slice(start, start + _BLOCK)
        served = (simulation.entry[rows] >= 0).tolist()
        block: dict[str, list[Any]] = {
            "arrival_s": arrivals.arrival_s[rows].tolist(),
            "prompt_tokens": arrivals.prompt_tokens[rows].tolist(),
            "output_tokens": arrivals.output_tokens[rows].tolist(),
            "prefill": [names[r] for r in simulation.entry[rows].tolist()],
            "decode": [names[r] for r in simulation.decoder[rows].tolist()],
            "counted": counted[rows].tolist(),
        }
        for name in _TIMES:
            values = getattr(simulation, name)[rows]
            pairs = zip(values.tolist(), served, strict=True)
            block[name] = [value if is_served else None for value, is_served in pairs]
        course = simulation.course
        for name in _WHOLE:
            again = [0] * len(served) if course is None else getattr(course, name)[rows].tolist()
            block[name] = again
        yield block


def _write_csv(simulation: Simulation, file: IO[bytes]) -> None:
    with csv_writer(file) as writer:
        writer.writerow(COLUMNS)
        for block in _blocks(simulation):
            block["counted"] = [int(value) for value in block["counted"]]
            writer.writerows(zip(*(block[name] for name in COLUMNS), strict=True))


def _write_parquet(simulation: Simulation, file: IO[bytes]) -> None:
    pyarrow = pyarrow_for("")
    kinds = dict.fromkeys(COLUMNS, pyarrow.float64())
    kinds |= dict.fromkeys(("prompt_tokens", "output_tokens", *_WHOLE), pyarrow.int64())
    kinds |= dict.fromkeys(("prefill", "decode"), pyarrow.string())
    schema = pyarrow.schema(list({**kinds, "counted": pyarrow.bool_()}.items()))
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for block in _blocks(simulation):
            writer.write_table(pyarrow.table(block, schema=schema))
