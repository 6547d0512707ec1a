"""Predicted against measured speeds: ``python benchmarks/accuracy.py --measured CSV --multi CSV``.

Fits nothing: the constants are those of the catalogue. With ``--leave-out device`` (or ``model``)
the constants are fitted anew for each device (model), on all others.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import fit
from benchmarks.measured import engine_of, model_of, read
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.catalogue.silicon import silicon
from e2llm_opt.inventory.device import device_of_type
from e2llm_opt.runtime import runtime
from e2llm_opt.speed import Z80, Phase, Setting, decode_speed, prefill_speed, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measured import Measurement

DOCS = Path(__file__).parents[1] / "docs" / "accuracy.md"
RUNTIMES = {"llama.cpp-2024": "llama.cpp", "llama.cpp": "llama.cpp"}
"""Runtime of the catalogue whose hop between cards of a host is all that a pipeline adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One speed, predicted and measured.

    Parameters
    ----------
    kind, group, engine, device, name
        Decode, prefill or multi; whose; of what.
    predicted, measured
        Tokens a second [1/s].
    sigma
        Of the prediction's logarithm.
    """

    kind: str
    group: str
    engine: str
    device: str
    name: str
    predicted: float
    measured: float
    sigma: float

    @property
    def error(self) -> float:
        """Absolute error as a share of the measured speed."""
        return abs(self.predicted / self.measured - 1.0)

    @property
    def log(self) -> float:
        """Logarithm of predicted over measured."""
        return math.log(self.predicted / self.measured)

    @property
    def is_covered(self) -> bool:
        """Whether the measured speed lies in the 80 % interval."""
        return abs(self.log) <= Z80 * self.sigma


def points(runs: Sequence[Measurement], leave_out: str | None) -> Iterator[Point]:
    """Yield every measured speed of single devices with its prediction."""
    for phase in fit.PHASES:
        own = fit.runs_of(phase, runs)
        if not own:
            continue
        times = _left_out(phase, own, leave_out) if leave_out else None
        for i, run in enumerate(own):
            group = silicon(run.setting.device.type).group
            speed = (
                decode_speed(run.setting, run.context)
                if phase is Phase.DECODE
                else prefill_speed(run.setting, run.prompt)
            )
            seconds = speed.seconds if times is None else times[i]
            yield Point(
                kind=phase,
                group=group,
                engine=run.setting.engine,
                device=run.key,
                name=f"{run.key}, {run.model}",
                predicted=run.tokens(phase) / seconds,
                measured=run.per_s(phase) or math.nan,
                sigma=speed.sigma,
            )


def _left_out(phase: Phase, runs: Sequence[Measurement], what: str) -> list[float]:
    arrays = fit.design(phase, runs)
    groups = arrays.keys if what == "device" else np.array([run.model for run in runs])
    found: list[float] = np.exp(arrays.left_out(groups)).tolist()
    return found


def calibrated(found: Sequence[Point]) -> Iterator[Point]:
    """Yield each point as it is predicted once one other run of its device is known."""
    keys = [(one.kind, one.device, one.engine) for one in found]
    off = np.array([one.log for one in found])
    sigmas = np.array([one.sigma for one in found])
    for i, log in fit.after_one(keys, off, sigmas):
        yield replace(found[i], predicted=found[i].measured * math.exp(log))


def pipelines(path: str) -> tuple[list[Point], int]:
    """Return decode speeds of equal devices that share the layers, and how many rows were not."""
    found, other = [], 0
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            point = _pipeline(row)
            found += [point] if point else []
            other += not point
    return found, other


def _pipeline(row: dict[str, str]) -> Point | None:
    matched = re.fullmatch(r"(\d+) x (.+)", row["cluster"])
    is_layered = "layer" in row["split"] or "pipeline" in row["split"]
    if not (matched and is_layered and row["decode_tok_s"] and (row["batch"] or "1") == "1"):
        return None
    num, name = int(matched[1]), matched[2]
    try:
        device = device_of_type(_type(name), name=name)
        model = model_of(row["model"], row["quant"])
    except UnknownNameError:
        return None
    engine = "llama.cpp-2024" if "-sm layer" in row["engine"] else engine_of(row["engine"])
    if engine not in RUNTIMES:
        return None
    hop_s = runtime(RUNTIMES[engine]).bus_hop_overhead_s
    # Each device reads its own layers, one after another: together, what one that held all would.
    whole = Setting(device=device, model=model, engine=engine, has_flash=False)
    context = float(row["prefill_or_ctx_len"] or 512) / 2.0
    seconds = decode_speed(whole.without_limit(), context).seconds + (num - 1) * hop_s
    group = silicon(device.type).group
    return Point(
        kind="multi",
        group=group,
        engine=engine,
        device=name,
        name=f"{row['cluster']}, {row['model']}",
        predicted=1.0 / seconds,
        measured=float(row["decode_tok_s"]),
        sigma=spread(Phase.DECODE, group, engine),
    )


def _type(name: str) -> str:
    """Return the catalogue's spelling of a card in a table: ``3090 24GB`` is ``rtx-3090``."""
    for form in (name, re.sub(r" \d+GB$", "", name)):
        for prefix in ("", "rtx-", "nvidia-"):
            try:
                return device_of_type(f"{prefix}{form}", name=name).type
            except UnknownNameError:
                continue
    raise UnknownNameError("device", name, ())


def summary(found: Sequence[Point]) -> dict[str, float]:
    """Return count, median and P90 of the absolute error, bias, and coverage."""
    if not found:
        return {"n": 0}
    errors = np.array([point.error for point in found])
    return {
        "n": len(found),
        "median_ape": round(float(np.median(errors)), 4),
        "p90_ape": round(float(np.quantile(errors, 0.9)), 4),
        "bias": round(float(np.median([point.log for point in found])), 4),
        "coverage_80": round(float(np.mean([point.is_covered for point in found])), 4),
    }


def table(found: Sequence[Point]) -> str:
    """Return one line a kind, group and engine."""
    kinds: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for point in found:
        kinds[point.kind, "all", "all"].append(point)
        kinds[point.kind, point.group, "all"].append(point)
        kinds[point.kind, point.group, point.engine].append(point)
    lines = [
        "| speed | devices | engine | runs | median error | P90 | bias | in the 80 % interval |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for (kind, group, engine), own in sorted(kinds.items()):
        one = summary(own)
        lines.append(
            f"| {kind} | {group} | {engine} | {one['n']} | {one['median_ape']:.1%} "
            f"| {one['p90_ape']:.1%} | {one['bias']:+.3f} | {one['coverage_80']:.0%} |"
        )
    return "\n".join(lines)


def scatter(found: Sequence[Point], file: Path) -> None:
    """Draw predicted against measured speed, one colour a group."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(figsize=(5, 5))
    for i, group in enumerate(sorted({point.group for point in found})):
        own = [point for point in found if point.group == group]
        x, y = [point.measured for point in own], [point.predicted for point in own]
        axes.scatter(x, y, s=8, alpha=0.6, color=f"C{i}", label=group)
    low = min(min(point.measured, point.predicted) for point in found)
    high = max(max(point.measured, point.predicted) for point in found)
    axes.plot([low, high], [low, high], color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured [tokens/s]", ylabel="predicted")
    axes.legend(fontsize="small")
    figure.savefig(file, bbox_inches="tight")
    plt.close(figure)


def overall(rows: Sequence[tuple[str, str, Sequence[Point], str]]) -> str:
    """Return a table of (speed, what was left out, points, goal)."""
    lines = [
        "| speed | left out | runs | median error | P90 | in the 80 % interval | goal |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for kind, left_out, own, goal in rows:
        one = summary(own)
        lines.append(
            f"| {kind} | {left_out} | {one['n']} | {one['median_ape']:.1%} | {one['p90_ape']:.0%} "
            f"| {one['coverage_80']:.0%} | {goal} |"
        )
    return "\n".join(lines)


def write_docs(measured: str, multi: str) -> None:
    """Write the tables and pictures of docs/accuracy.md anew; some minutes."""
    runs = read(measured)
    device, model = (list(points(runs, what)) for what in ("device", "model"))
    several, _ = pipelines(multi)
    by_kind = {kind: [p for p in device if p.kind == kind] for kind in fit.PHASES}
    other = {kind: [p for p in model if p.kind == kind] for kind in fit.PHASES}
    first, second = fit.PHASES
    tables = (
        overall(
            (
                ("decode", "the device", by_kind[first], "7 %, 25 %"),
                ("prefill", "the device", by_kind[second], "13 %, 50 %"),
                ("decode", "the device but for one run", [*calibrated(by_kind[first])], "5 %"),
                ("decode", "the model", other[first], ""),
                ("prefill", "the model", other[second], ""),
                ("decode of several cards in one host", "nothing", several, "20 %"),
            )
        ),
        table([*device, *several]),
    )
    text = DOCS.read_text(encoding="utf-8")
    for name, new in zip(("overall", "by group"), tables, strict=True):
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{new}\n\n{end}{rest.partition(end)[2]}"
    DOCS.write_text(text, encoding="utf-8")
    drawn = {str(kind): own for kind, own in by_kind.items()} | {"multi": several}
    for kind, own in drawn.items():
        scatter(own, DOCS.with_suffix("") / f"{kind}.svg")


def main() -> None:
    """Predict, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--measured", help="speeds of single devices")
    parser.add_argument("--multi", help="speeds of several devices together")
    parser.add_argument("--leave-out", choices=("device", "model"), help="fit anew without each")
    parser.add_argument("--json", action="store_true", help="the figures and nothing else")
    parser.add_argument("--write-docs", action="store_true", help="write docs/accuracy.md anew")
    parser.add_argument("--plots", help="folder for scatter plots (SVG)")
    asked = parser.parse_args()
    if not asked.measured and not asked.multi:
        parser.error("give --measured or --multi")
    if asked.write_docs:
        if not (asked.measured and asked.multi):
            parser.error("--write-docs needs --measured and --multi")
        write_docs(asked.measured, asked.multi)
        return
    found = list(points(read(asked.measured), asked.leave_out)) if asked.measured else []
    several, other = pipelines(asked.multi) if asked.multi else ([], 0)
    found += several
    kinds = (*fit.PHASES, "multi")
    if asked.json:
        parts = {kind: summary([p for p in found if p.kind == kind]) for kind in kinds}
        if asked.leave_out == "device":
            parts["decode_calibrated"] = summary(
                list(calibrated([p for p in found if p.kind == "decode"]))
            )
        json.dump(parts, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        print(table(found))
        if other:
            print(f"\n{other} rows of --multi are no pipelines of equal, known devices.")
    if asked.plots:
        Path(asked.plots).mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            own = [point for point in found if point.kind == kind]
            if own:
                scatter(own, Path(asked.plots) / f"{kind}.svg")


if __name__ == "__main__":
    main()
