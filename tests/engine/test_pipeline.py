"""Two RPC workers, unequal and with a slow link between them: which cut is the best one?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from e2llm_opt import runtime
from tests.engine.bed import TooSmallError, bed
from tests.engine.bench import PLAIN, Job, Row, measured
from tests.engine.calibration import calibrated, predicted, prediction
from tests.engine.random_models import MIDDLE, SMALL, Shape, written
from tests.engine.results import HEADING, Pair, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.runtime import Runtime
    from tests.engine.bed import Bed
    from tests.engine.programs import Programs
    from tests.engine.results import Results

pytestmark = pytest.mark.engine

WEIGHTS: Final = "q8_0"
DEEP: Final = Shape(name="deep", layers=16, width=1024, ffn=2816, kv_heads=4)
"""The model that is cut; of a size that neither worker was calibrated with."""
CUTS: Final = ((2, 14), (5, 11), (8, 8), (11, 5), (14, 2))
"""Layers on the slow worker, and on the other."""
HOP_CUT: Final = (4, 4)
"""Of the small model, which tells what a hop costs."""
LENGTHS: Final = ("-p", "64", "-n", "10")
ROUNDS: Final = 5

Cut = tuple[int, int]


@pytest.fixture(scope="module")
def workers(engine: Programs, folder: Path) -> Iterator[Bed]:
    try:
        with bed(engine, folder) as made:
            yield made
    except TooSmallError as reason:
        pytest.skip(str(reason))


def split(cut: Cut) -> str:
    """Return *cut* as ``-ts`` wants it: the last device has one more, the output head."""
    return f"{cut[0]}/{cut[1] + 1}"


@pytest.fixture(scope="module")
def rows(engine: Programs, folder: Path, workers: Bed) -> dict[str, list[Row]]:
    """Each worker alone with two sizes, one cut of the small model, all cuts of the deep one."""
    models = {s.name: written(s, WEIGHTS, folder / "models") for s in (SMALL, MIDDLE, DEEP)}
    options = (*PLAIN, *LENGTHS)
    alone = {
        f"{name} {size}": Job(model=models[size], place=place, options=options, repetitions=1)
        for name, place in (("slow", workers.slow_place), ("fast", workers.fast_place))
        for size in ("small", "middle")
    }
    together = {
        f"{size} {cut[0]}+{cut[1]}": Job(
            model=models[size],
            place=workers.hosts.second.command(),
            options=(*options, *workers.rpc(), "-ts", split(cut)),
            repetitions=1,
        )
        for size, cut in (("small", HOP_CUT), *(("deep", cut) for cut in CUTS))
    }
    return measured(engine, {**alone, **together}, rounds=ROUNDS)


@pytest.fixture(scope="module")
def devices(rows: dict[str, list[Row]], workers: Bed, folder: Path) -> Inventory:
    """Both workers, each calibrated alone, with the link as a probe measured it."""
    link = (
        f"[{{between: [slow, fast], latency_ms: {1e3 * workers.latency_s:.4f}, "
        f"bandwidth_mbit_s: {8e-6 * workers.bandwidth_bytes_per_s:.1f}}}]"
    )
    own = {name: rows[f"{name} small"] + rows[f"{name} middle"] for name in ("slow", "fast")}
    return calibrated(own, folder / "pipeline", link)


@pytest.fixture(scope="module")
def llama_cpp(rows: dict[str, list[Row]], devices: Inventory) -> Runtime:
    """The engine with the fixed cost of a hop that the small model shows.

    A token makes two hops, to the other device and back.
    """
    free = runtime("llama.cpp", hop_overhead_s=0.0)
    row = next(row for row in rows[f"small {HOP_CUT[0]}+{HOP_CUT[1]}"] if row["n_gen"])
    without_s = prediction(devices, row, HOP_CUT, free).decode.seconds
    return runtime("llama.cpp", hop_overhead_s=max(0.0, 1 / row["avg_ts"] - without_s) / 2)


@pytest.fixture(scope="module")
def pairs(
    rows: dict[str, list[Row]],
    devices: Inventory,
    llama_cpp: Runtime,
    workers: Bed,
    results: Results,
) -> dict[str, dict[Cut, Pair]]:
    """Phase and cut -> what was predicted and measured."""
    found: dict[str, dict[Cut, Pair]] = {"decode": {}, "prefill": {}}
    for cut in CUTS:
        for row in rows[f"deep {cut[0]}+{cut[1]}"]:
            pair = Pair(predicted=predicted(devices, row, cut, llama_cpp), measured=row["avg_ts"])
            found["prefill" if row["n_prompt"] else "decode"][cut] = pair
    facts = {
        "workers": workers.words,
        "bandwidth_mbit_s": 8e-6 * workers.bandwidth_bytes_per_s,
        "latency_ms": 1e3 * workers.latency_s,
        "hop_overhead_ms": 1e3 * llama_cpp.hop_overhead_s,
    }
    table = [
        {"phase": phase, "layers": list(cut), **pair.to_dict()}
        for phase, of in found.items()
        for cut, pair in of.items()
    ]
    results.add("pipeline", facts, table)
    lines = [
        f"{phase:<10} {f'{cut[0]} + {cut[1]} layers':<14} {pair}"
        for phase, of in found.items()
        for cut, pair in of.items()
    ]
    said = [f"{name}: {value}" for name, value in facts.items()]
    shown("two workers, tokens/s", [*said, f"{'':<25} {HEADING}", *lines])
    return found


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_the_best_cut_is_among_the_predicted_best_two(
    pairs: dict[str, dict[Cut, Pair]], phase: str
) -> None:
    of = pairs[phase]
    best = max(of, key=lambda cut: of[cut].measured)
    assert best in sorted(of, key=lambda cut: of[cut].predicted)[-2:]
