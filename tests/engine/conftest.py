"""The built engine, models with random weights, and where results go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.engine.programs import ROOT, programs
from tests.engine.results import Results

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.programs import Programs


@pytest.fixture(scope="session")
def engine() -> Programs:
    """The programs of llama.cpp; where nobody named or built any, the test is left out."""
    try:
        return programs()
    except FileNotFoundError as error:
        if os.environ.get("LLAMA_CPP_BIN_DIR"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def folder() -> Path:
    """Where models, measurements and results are kept."""
    path = ROOT / "build" / "engine"
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def results(folder: Path) -> Results:
    return Results(folder / "results.json")
