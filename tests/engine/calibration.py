"""What llama-bench measured → an inventory, by ``e2llm-opt calibrate``; and what it predicts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from e2llm_opt import model_facts, predict, runtime
from e2llm_opt.inventory.inventory import Inventory
from tests.engine.bench import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from e2llm_opt.predict.prediction import Prediction
    from e2llm_opt.runtime import Runtime
    from tests.engine.bench import Row


def calibrated(measured: Mapping[str, Iterable[Row]], folder: Path, links: str = "[]") -> Inventory:
    """Return an inventory of the devices *measured*, each fitted to its rows.

    Parameters
    ----------
    measured
        Device -> rows of llama-bench; what a core can do at most is a rough guess, as a user's.
    folder
        Where the inventory and the measurements are written.
    links
        As the inventory file says it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    inventory = folder / "machines.yaml"
    devices = "".join(
        f"  - {{name: {name}, memory_gib: 4, memory_bandwidth_gb_s: 10, fp16_tflops: 0.1}}\n"
        for name in measured
    )
    text = f"runtime: llama.cpp\nlinks: {links}\ndevices:\n{devices}"
    inventory.write_text(text, encoding="utf-8")
    for name, rows in measured.items():
        bench = write_rows(list(rows), folder / f"{name}.json")
        command = ("calibrate", inventory, "--device", name, "--measured", bench, "--quiet")
        subprocess.run((sys.executable, "-m", "e2llm_opt", *command), check=True)
    return Inventory.load(inventory)


def predicted(
    devices: Inventory, row: Row, layers: Sequence[int] | None = None, engine: Runtime | None = None
) -> float:
    """Return the speed predicted for the run of a *row* of llama-bench [tokens/s]."""
    found = prediction(devices, row, layers, engine)
    return (found.prefill if row["n_prompt"] else found.decode).tokens_per_s


def prediction(
    devices: Inventory, row: Row, layers: Sequence[int] | None = None, engine: Runtime | None = None
) -> Prediction:
    """Return what is predicted for the model of a *row*, of its prompt or at its mean context."""
    return predict(
        devices,
        model_facts(row["model_filename"]),
        engine or runtime("llama.cpp"),
        prompt=row["n_prompt"] or 1,
        context=max(1, row["n_gen"] // 2),
        layers=layers,
    )
