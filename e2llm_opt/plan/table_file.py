"""A table in a file: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.output import STANDARD_OUTPUT, refuse_unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether the ending of *path* asks for CSV; the other one is Parquet."""
    return PurePath(path).suffix.lower() == ".csv"


def refuse_table_file(path: str | os.PathLike[str], what: str) -> None:
    """Refuse what cannot become a file of *what*, before long work is spent on it.

    Raises
    ------
    InputError
        When *path* ends in neither ``.csv`` nor ``.parquet``, is standard output, surely cannot be
        written, or pyarrow is missing for Parquet.
    """
    name, ending = os.fspath(path), PurePath(path).suffix.lower()
    if name == STANDARD_OUTPUT or ending not in {".csv", ".parquet"}:
        fault = Fault(file=name, wrong=f"no format for {what}", right="use .csv or .parquet")
        raise InputError([fault])
    if not is_csv(path):
        pyarrow_for(name)
    refuse_unwritable(path)


@contextmanager
def csv_writer(file: IO[bytes]) -> Iterator[Any]:
    """Write CSV to an open *file*, which stays open."""
    import csv  # noqa: PLC0415 - only where it is asked for
    import io  # noqa: PLC0415

    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    yield csv.writer(text, lineterminator="\n")
    text.detach()  # who opened the file closes it


def pyarrow_for(name: str) -> Any:  # noqa: ANN401 - a module that may be missing
    """Return pyarrow, with ``pyarrow.parquet`` loaded, to write the file *name*.

    Raises
    ------
    InputError
        When it is not installed: the sentence that says how to get it.
    """
    try:
        import pyarrow.parquet  # noqa: PLC0415 - optional
    except ImportError:
        right = "pip install 'e2llm-opt[parquet]', or write .csv"
        raise InputError([Fault(file=name, wrong="Parquet needs pyarrow", right=right)]) from None
    return pyarrow
