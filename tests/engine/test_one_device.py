"""A size of model that was not measured is predicted from two that were."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Final

import pytest

from tests.engine.bench import PLAIN, Job, measured
from tests.engine.calibration import calibrated, predicted
from tests.engine.random_models import LARGE, MIDDLE, SMALL, written
from tests.engine.results import HEADING, Pair, shown
from tests.engine.workers import on_core

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.bench import Row
    from tests.engine.programs import Programs
    from tests.engine.results import Results

pytestmark = pytest.mark.engine

SHAPES: Final = {shape.name: shape for shape in (SMALL, MIDDLE, LARGE)}
WEIGHTS: Final = ("f16", "q8_0")
PROMPT_TOKENS, ANSWER_TOKENS = 128, 12
ROUNDS: Final = 5
DECODE_WITHIN, PREFILL_WITHIN = 0.15, 0.25

Speeds = dict[tuple[str, str], list["Row"]]
"""Size and weight format -> rows of llama-bench."""


@pytest.fixture(scope="module")
def speeds(engine: Programs, folder: Path) -> Speeds:
    """Every size in every format, measured on one core."""
    lengths = ("-p", str(PROMPT_TOKENS), "-n", str(ANSWER_TOKENS))
    models = {
        f"{size} {weights}": written(shape, weights, folder / "models")
        for size, shape in SHAPES.items()
        for weights in WEIGHTS
    }
    jobs = {
        name: Job(model=model, place=on_core(0), options=(*PLAIN, *lengths))
        for name, model in models.items()
    }
    found = measured(engine, jobs, rounds=ROUNDS)
    return {(size, form): found[f"{size} {form}"] for size in SHAPES for form in WEIGHTS}


@pytest.fixture(scope="module")
def pairs(speeds: Speeds, folder: Path, results: Results) -> dict[tuple[str, str, str], Pair]:
    """Of each size and format as the one held out: decode and prefill."""
    found = {}
    for size, weights in speeds:
        others = [
            s for (other, form), s in speeds.items() if (other == size, form) == (False, weights)
        ]
        rows = {"core": chain.from_iterable(others)}
        device = calibrated(rows, folder / f"without-{size}-{weights}")
        for row in speeds[size, weights]:
            phase = "prefill" if row["n_prompt"] else "decode"
            found[phase, size, weights] = Pair(
                predicted=predicted(device, row), measured=row["avg_ts"]
            )
    table = [
        {"phase": phase, "size": size, "weights": weights, **pair.to_dict()}
        for (phase, size, weights), pair in found.items()
    ]
    some = next(iter(speeds.values()))[0]
    facts = {"date": f"{datetime.now(tz=UTC):%Y-%m-%d}", "cpu": some["cpu_info"]}
    results.add("held_out_size", facts, table)
    lines = [f"{' '.join(key):<22} {pair}" for key, pair in sorted(found.items())]
    shown("a size that was left out, tokens/s", [f"{'':<22} {HEADING}", *lines])
    return found


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_size_that_was_left_out_is_predicted(
    pairs: dict[tuple[str, str, str], Pair], phase: str, size: str, weights: str
) -> None:
    within = DECODE_WITHIN if phase == "decode" else PREFILL_WITHIN
    assert abs(pairs[phase, size, weights].error) <= within
