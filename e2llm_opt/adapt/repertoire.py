"""Plans for many regimes, made before they are needed; a folder of JSON files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from e2llm_opt.adapt.regime import Regime
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.json_file import load_plan
from e2llm_opt.plan.output import replaced
from e2llm_opt.plan.plan import Plan

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from e2llm_opt.problem import Problem

    Tell = Callable[[int, int], None]

_INDEX: Final = "repertoire.json"
_SCHEMA: Final = "e2llm-opt/repertoire/v1"
FACTORS: Final = (0.25, 1.0, 4.0)
"""Where the grid lies unless told otherwise, as multiples of the workload's own figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repertoire:
    """Plans, each made for a regime; several regimes may have the same one.

    Parameters
    ----------
    entries
        Regimes and their plans.
    """

    entries: tuple[tuple[Regime, Plan], ...]

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The different plans."""
        found: dict[object, Plan] = {}
        for _, plan in self.entries:
            found.setdefault(shape_of(plan), plan)
        return tuple(found.values())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write one plan a file, and an index of their regimes, into a folder.

        Raises
        ------
        InputError
            When it cannot be written.
        """
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError([Fault(file=str(path), wrong=f"no folder: {error}")]) from None
        index = []
        for number, (regime, plan) in enumerate(self.entries):
            name = f"plan-{number:03}.json"
            with replaced(path / name) as file:
                file.write(plan.to_json().encode())
            index.append({"plan": name, **regime.to_dict()})
        with replaced(path / _INDEX) as file:
            file.write(json.dumps({"schema": _SCHEMA, "entries": index}, indent=1).encode())

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Repertoire:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            When there is no such folder, or a file in it is not what it should be.
        """
        path = Path(folder) / _INDEX
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            rows = [(Regime.from_dict(row), str(row["plan"])) for row in given["entries"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            right = "write it with Repertoire.save"
            raise InputError(
                [Fault(file=str(path), wrong=f"no repertoire: {error}", right=right)]
            ) from None
        return Repertoire(
            entries=tuple((regime, load_plan(path.parent / name)) for regime, name in rows)
        )


def shape_of(plan: Plan) -> frozenset[object]:
    """Return what two plans have in common that run alike: roles, layers, slots, spills."""
    return frozenset(
        (r.role, r.slots, tuple((s.devices, s.layers, s.spilled_layers) for s in r.stages))
        for r in plan.replicas
    )


def repertoire(
    problem: Problem,
    *,
    rates_per_s: Sequence[float] = (),
    prompts: Sequence[float] = (),
    outputs: Sequence[float] = (),
    tell: Tell | None = None,
) -> Repertoire:
    """Make a plan for each point of a grid of regimes, by the formulas.

    Parameters
    ----------
    problem
        Gives devices, model and limits; lengths keep its cv, and slots hold what its slots hold.
    rates_per_s, prompts, outputs
        Mean rates [1/s] and lengths [tokens] of the grid; none: a quarter of the workload's own,
        that, and four times as much.
    tell
        Called with the points done and all points.

    Raises
    ------
    InputError
        When the grid has no sensible point, or there is a plan for none.
    """
    from e2llm_opt.search.rank_by_simulation import Finals  # noqa: PLC0415 - numba takes long
    from e2llm_opt.solve import plan  # noqa: PLC0415 - the same

    own = Regime.of(problem)
    grid = [
        replace(
            own,
            rate_per_s=rate,
            prompt=replace(own.prompt, mean=prompt),
            output=replace(own.output, mean=output),
        )
        for rate, prompt, output in product(
            rates_per_s or [factor * own.rate_per_s for factor in FACTORS],
            prompts or [factor * own.prompt.mean for factor in FACTORS],
            outputs or [factor * own.output.mean for factor in FACTORS],
        )
    ]
    entries = []
    for done, regime in enumerate(grid):
        if tell is not None:
            tell(done, len(grid))
        found = plan(regime.problem(problem), finals=Finals(arrivals=()))
        if isinstance(found, Plan):
            entries.append((regime, found))
    if tell is not None:
        tell(len(grid), len(grid))
    if not entries:
        raise InputError("there is no plan for any regime: try shorter requests, or more devices.")
    return Repertoire(entries=tuple(entries))
