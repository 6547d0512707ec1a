"""The one optional package that writes Parquet, or the sentence that says how to get it."""

from __future__ import annotations

from typing import Any

from e2llm_opt.errors import Fault, InputError


def pyarrow_for(name: str) -> Any:  # noqa: ANN401 - a module that may be missing
    """Return pyarrow, with ``pyarrow.parquet`` loaded, to write the file *name*.

    Raises
    ------
    InputError
        When it is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: PLC0415 - optional
    except ImportError:
        right = "pip install 'e2llm-opt[parquet]', or write .csv"
        raise InputError([Fault(file=name, wrong="Parquet needs pyarrow", right=right)]) from None
    return pyarrow
