"""Fit the effects of e2llm_opt/speed.py to measured speeds: ``python benchmarks/fit.py CSV``.

Logarithms of times, a Cauchy loss, since one crowd-sourced run in twenty is off by a factor of
two or more, and a ridge prior on every effect: few effects are free, most are pulled to nothing.
Writes e2llm_opt/catalogue/speeds.csv (effects: unit, runs that they rest on), speed_runs.csv (runs
and sources of each device) and speed_spreads.csv (from residuals of devices that were left out).
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import least_squares

from benchmarks.measured import Measurement, read
from e2llm_opt.catalogue.silicon import silicon
from e2llm_opt.speed import FACTORS, STATED, Z80, Phase, decode_terms, prefill_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

CATALOGUE = Path(__file__).parents[1] / "e2llm_opt" / "catalogue"
PHASES = (Phase.DECODE, Phase.PREFILL)
"""In the order in which they are shown."""
NOISE = 0.1
"""Of one measurement's logarithm: the scale of the Cauchy loss."""
START = {
    "decode.read": -math.log(0.7),
    "decode.cache": -math.log(0.6),
    "decode.unpack": 0.0,
    "decode.layer": math.log(2e-5),
    "decode.spill": 0.0,
    "prefill.compute": -math.log(0.45),
    "prefill.attention": -math.log(0.3),
    "prefill.layer": math.log(3e-5),
    "prefill.read": -math.log(0.7),
    "prefill.spill": 0.0,
}
"""Where the term itself starts: the planning defaults."""
STIFFNESS: dict[tuple[str, str], float] = {
    ("decode.read", "base"): 0.01,
    ("decode.read", "group"): 2.0,
    ("decode.read", "generation"): 7.0,
    ("decode.read", "engine"): 4.0,
    ("decode.read", "wide"): 4.0,
    ("decode.read", "moe"): 4.0,
    ("decode.read", "group+engine"): 4.0,
    ("decode.cache", "base"): 0.3,
    ("decode.cache", "engine"): 1.0,
    ("decode.unpack", "base"): 0.3,
    ("decode.unpack", "group"): 1.0,
    ("decode.unpack", "generation"): 5.0,
    ("decode.unpack", "engine"): 3.5,
    ("decode.unpack", "wide"): 1.0,
    ("decode.layer", "base"): 0.01,
    ("decode.layer", "group"): 1.0,
    ("decode.layer", "engine"): 1.5,
    ("decode.layer", "generation"): 8.0,
    ("decode.layer", "group+engine"): 2.0,
    ("decode.spill", "base"): 1.0,
    ("prefill.compute", "base"): 0.01,
    ("prefill.compute", "group"): 1.0,
    ("prefill.compute", "generation"): 2.5,
    ("prefill.compute", "engine"): 2.5,
    ("prefill.compute", "group+engine"): 3.0,
    ("prefill.compute", "group+wide"): 1.75,
    ("prefill.compute", "flash"): 3.0,
    ("prefill.compute", "size"): 6.0,
    ("prefill.attention", "base"): 0.3,
    ("prefill.attention", "engine"): 1.0,
    ("prefill.attention", "flash"): 1.0,
    ("prefill.attention", "group"): 2.0,
    ("prefill.layer", "base"): 0.05,
    ("prefill.layer", "group"): 1.0,
    ("prefill.layer", "engine"): 1.5,
    ("prefill.layer", "generation"): 30.0,
    ("prefill.layer", "group+engine"): 3.0,
    ("prefill.read", "base"): 1.0,
    ("prefill.spill", "base"): 1.0,
}
"""1 / standard deviation of an effect's prior: how strongly it is pulled to nothing."""
_FEWEST = 6
"""Runs from which a group and engine have a spread of their own."""
_LEAST_SIGMA = 0.05
"""Two runs of one device differ by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One phase of all runs as arrays.

    Parameters
    ----------
    names
        (term, factor, level) of each effect [E].
    amounts
        Of each term in each run [T, N] [s].
    rows
        How much of each effect counts in each term and run [T, N, E].
    logs
        Logarithm of the measured time [N].
    keys
        Device of each run [N].
    """

    names: tuple[tuple[str, str, str], ...]
    amounts: Floats
    rows: Floats
    logs: Floats
    keys: NDArray[np.str_]

    def predicted(self, effects: Floats, which: Ints) -> Floats:
        """Return logarithms of the times that *effects* give [n]."""
        found: Floats = np.log(self._parts(effects, which).sum(axis=0))
        return found

    def _parts(self, effects: Floats, which: Ints) -> Floats:
        parts: Floats = self.amounts[:, which] * np.exp(self.rows[:, which] @ effects)
        return parts

    def fitted(self, which: Ints, start: Floats | None = None) -> Floats:
        """Return the effects that explain the runs *which* best [E]."""
        stiff = np.array([STIFFNESS[term, factor] for term, factor, _ in self.names])
        prior = np.array([START[t] if f == "base" else 0.0 for t, f, _ in self.names])

        def residuals(effects: Floats) -> Floats:
            off = (self.predicted(effects, which) - self.logs[which]) / NOISE
            return np.concatenate([off, stiff * (effects - prior)])

        def jacobian(effects: Floats) -> Floats:
            parts = self._parts(effects, which)
            share = parts / parts.sum(axis=0)
            slope = np.einsum("tn,tne->ne", share, self.rows[:, which]) / NOISE
            return np.vstack([slope, np.diag(stiff)])

        def loss(squares: Floats) -> Floats:
            """Cauchy for runs, plain squares for priors."""
            rho = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
            own = 1.0 + squares[: len(which)]
            rho[:, : len(which)] = np.log(own), 1.0 / own, -1.0 / own**2
            return rho

        begin = prior if start is None else start
        solver: Any = least_squares  # its stubs know no loss of one's own
        found: Floats = solver(residuals, begin, jac=jacobian, loss=loss, max_nfev=200).x
        return found

    def left_out(self, groups: NDArray[np.str_]) -> Floats:
        """Return the logarithms predicted for each run by a fit without its group [N]."""
        everything = np.arange(len(self.logs))
        full = self.fitted(everything)
        found = np.empty(len(self.logs))
        for group in sorted(set(groups.tolist())):
            own = groups == group
            found[own] = self.predicted(self.fitted(everything[~own], full), everything[own])
        return found


def runs_of(phase: Phase, runs: Sequence[Measurement]) -> list[Measurement]:
    """Return the runs in which *phase* was measured."""
    return [run for run in runs if run.per_s(phase)]


def design(phase: Phase, runs: Sequence[Measurement]) -> Design:
    """Return *runs*, all with this phase, as arrays."""
    terms = [term for term in FACTORS if term.startswith(f"{phase}.")]
    amounts = [
        decode_terms(run.setting, run.context)
        if phase is Phase.DECODE
        else prefill_terms(run.setting, run.prompt)
        for run in runs
    ]
    place: dict[tuple[str, str, str], int] = {}
    entries: list[tuple[int, int, int, float]] = []
    for t, term in enumerate(terms):
        for n, run in enumerate(runs):
            for name, weight in _levels(term, run):
                entries.append((t, n, place.setdefault(name, len(place)), weight))
    rows = np.zeros((len(terms), len(runs), len(place)))
    for t, n, e, weight in entries:
        rows[t, n, e] += weight
    times = [run.tokens(phase) / (run.per_s(phase) or math.nan) for run in runs]
    return Design(
        names=tuple(place),
        amounts=np.array([[own[term] for own in amounts] for term in terms]),
        rows=rows,
        logs=np.log(times),
        keys=np.array([run.key for run in runs]),
    )


def _levels(term: str, run: Measurement) -> Iterator[tuple[tuple[str, str, str], float]]:
    yield (term, "base", ""), 1.0
    for factor in FACTORS[term]:
        level, weight = run.setting.level(factor)
        if level:
            yield (term, factor, level), weight


def spread_rows(
    phase: Phase, runs: Sequence[Measurement], off: Floats
) -> Iterator[tuple[str, str, str, int, float]]:
    """Yield (phase, group, engine, runs, sigma): eight in ten residuals lie within Z80 sigma."""
    kinds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run, value in zip(runs, np.abs(off).tolist(), strict=True):
        group = silicon(run.setting.device.type).group
        for key in ((group, run.setting.engine), (group, ""), ("", "")):
            kinds[key].append(value)
    for (group, engine), values in sorted(kinds.items()):
        if len(values) >= _FEWEST or not group:
            sigma = max(_LEAST_SIGMA, float(np.quantile(values, 0.8)) / Z80)
            yield phase, group, engine, len(values), sigma


def after_one(keys: Sequence[object], off: Floats, sigmas: Floats) -> Iterator[tuple[int, float]]:
    """Yield each run and its residual once one other run of its device and engine is known.

    The residual of that other run is believed as far as it exceeds the noise of one run.

    Parameters
    ----------
    keys
        Device and engine of each run [N].
    off
        Logarithm of predicted over measured [N].
    sigmas
        Spread of such residuals [N].
    """
    alike: dict[object, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        alike[key].append(i)
    trust = sigmas**2 / (sigmas**2 + NOISE**2 / 4)
    for i, key in enumerate(keys):
        yield from ((i, float(off[i] - trust[i] * off[j])) for j in alike[key] if j != i)


def stated_row(
    phase: Phase, runs: Sequence[Measurement], off: Floats, sigmas: Mapping[tuple[str, str], float]
) -> tuple[str, str, str, int, float]:
    """Return the row of spreads for devices of which one run is known.

    Each run of the data counts once: its residual is the median over the other runs.
    """
    kinds = [(silicon(r.setting.device.type).group, r.setting.engine) for r in runs]
    own = [sigmas.get(kind, sigmas.get((kind[0], ""), sigmas["", ""])) for kind in kinds]
    keys = [(run.key, run.setting.engine) for run in runs]
    left: dict[int, list[float]] = defaultdict(list)
    for i, value in after_one(keys, off, np.array(own)):
        left[i].append(abs(value))
    values = [float(np.median(found)) for found in left.values()]
    sigma = max(_LEAST_SIGMA, float(np.quantile(values, 0.8)) / Z80)
    return phase, STATED, "", len(values), sigma


def run_rows(runs: Sequence[Measurement]) -> Iterator[tuple[str, int, int, str]]:
    """Yield (device, prefill runs, decode runs, addresses of their sources)."""
    by_device: dict[str, list[Measurement]] = defaultdict(list)
    for run in runs:
        by_device[run.setting.device.type].append(run)
    for key, own in sorted(by_device.items()):
        prefill, decode = (len(runs_of(phase, own)) for phase in (Phase.PREFILL, Phase.DECODE))
        sources = dict.fromkeys(address for run in own for address in run.source)
        yield key, prefill, decode, " ".join(sources)


def main() -> None:
    """Fit, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("measured", help="a table of measured speeds")
    options = parser.parse_args()
    runs = read(options.measured)
    effects: list[tuple[str, str, str, str, str, int]] = []
    spreads: list[tuple[str, str, str, int, str]] = []
    for phase in PHASES:
        own = runs_of(phase, runs)
        arrays = design(phase, own)
        found = arrays.fitted(np.arange(len(own)))
        num = np.count_nonzero(arrays.rows.any(axis=0), axis=0).tolist()
        for (term, factor, level), value, runs_with in zip(
            arrays.names, found.tolist(), num, strict=True
        ):
            effects.append((term, factor, level, f"{value:.4f}", unit(term, factor), runs_with))
        off = arrays.left_out(arrays.keys) - arrays.logs
        rows = list(spread_rows(phase, own, off))
        sigmas = {(group, engine): sigma for _, group, engine, _, sigma in rows}
        rows.append(stated_row(phase, own, off, sigmas))
        spreads += [(*row[:4], f"{row[4]:.3f}") for row in rows]
        error = np.abs(np.expm1(-off))
        print(
            f"{phase}: {len(own)} runs, {len(found)} effects, devices left out: median error "
            f"{np.median(error):.1%}, P90 {np.quantile(error, 0.9):.1%}"
        )
    _write("speeds.csv", ("term", "factor", "level", "effect", "unit", "runs"), sorted(effects))
    _write("speed_runs.csv", ("key", "prefill", "decode", "sources"), list(run_rows(runs)))
    _write("speed_spreads.csv", ("phase", "group", "engine", "runs", "sigma"), spreads)


def unit(term: str, factor: str) -> str:
    """Return what the exponential of an effect is in: a pure factor, or seconds a layer."""
    return "ln(s/layer)" if term.endswith(".layer") and factor == "base" else "ln(1)"


def _write(name: str, head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    with (CATALOGUE / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
