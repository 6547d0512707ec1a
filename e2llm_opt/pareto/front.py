"""A front: plans, what each is worth in every objective, and the knee; as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.json_file import dump_json, plan_from_dict, read_json_document

if TYPE_CHECKING:
    import os

    from e2llm_opt.plan.plan import Plan

FRONT_SCHEMA: Final = "e2llm-opt/front/v1"
DEFAULT_SIZE = 30
"""Plans of a front, unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Plans of which none is better than another in everything.

    Parameters
    ----------
    plans
        By the first objective, the best first.
    knee
        Index of the plan that is a good compromise, see docs/trade-offs.md.
    objectives
        What the front is about.
    figures
        Of each plan the value of each objective: times [s], ``capacity`` [requests/s],
        ``cost_per_hour``, ``power_w`` [W], ``devices``, ``lost_capacity`` as a share.
    explain
        Why the knee, and what does not trade against each other.
    """

    schema: Literal["e2llm-opt/front/v1"] = FRONT_SCHEMA
    plans: tuple[Plan, ...]
    knee: int
    objectives: tuple[str, ...]
    figures: tuple[Mapping[str, float], ...]
    explain: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the front as it stands in the JSON answer."""
        return {
            "schema": self.schema,
            "plans": self.plans,
            "knee": self.knee,
            "objectives": self.objectives,
            "figures": self.figures,
            "explain": self.explain,
        }

    def to_json(self) -> str:
        """Return the front as JSON text, fields in a fixed order."""
        return dump_json(self.to_dict())

    @property
    def heading(self) -> str:
        """How many plans there are, in words."""
        num = len(self.plans)
        if num == 1:
            return "One plan: none is better in anything"
        return f"{num} plans, none better than another in everything"

    def place_of(self, plan: Plan) -> int | None:
        """Return the index of *plan*, by its replicas; None where it is not on the front."""
        wanted = _shape(plan)
        return next((i for i, one in enumerate(self.plans) if _shape(one) == wanted), None)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:  # noqa: ANN401 - matplotlib's
        """Return a matplotlib figure of the front, the knee marked.

        Parameters
        ----------
        path
            A .svg or .png file that it is written to; None: none.

        Raises
        ------
        InputError
            When matplotlib is missing, or *path* is of another format or not writable.
        """
        from e2llm_opt.report.front import draw_front  # noqa: PLC0415 - optional, and above
        from e2llm_opt.report.plots import save_plot  # noqa: PLC0415 - the same

        figure = draw_front(self)
        if path is not None:
            save_plot(figure, path)
        return figure


def load_front(path: str | os.PathLike[str]) -> Front:
    """Read a front that this program wrote.

    Raises
    ------
    InputError
        When the file cannot be read, is no JSON, or is no front of this schema version.
    """
    name, document = str(path), read_json_document(path)
    if not isinstance(document, Mapping) or document.get("schema") != FRONT_SCHEMA:
        right = f"e2llm-opt pareto --json writes one ('{FRONT_SCHEMA}')"
        raise InputError([Fault(file=name, path="schema", wrong="not a front", right=right)])
    faults = [Fault(file=name, path=path, wrong=wrong) for path, wrong in _faults(document)]
    if faults:
        raise InputError(faults)
    return Front(
        plans=tuple(plan_from_dict(plan, file=name) for plan in document["plans"]),
        knee=document["knee"],
        objectives=tuple(document["objectives"]),
        figures=tuple(document["figures"]),
        explain=tuple(document["explain"]),
    )


def _faults(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the keys that are wrong, and how."""
    found = [
        (key, "must be a list with something in it")
        for key in ("plans", "objectives", "figures")
        if not isinstance(document.get(key), list) or not document[key]
    ]
    if not isinstance(document.get("explain"), list):
        found.append(("explain", "must be a list of sentences"))
    if found:
        return found
    num, knee = len(document["plans"]), document.get("knee")
    if isinstance(knee, bool) or not isinstance(knee, int) or not 0 <= knee < num:
        found.append(("knee", f"must be the index of one of the {num} plans"))
    if len(document["figures"]) != num:
        found.append(("figures", f"must be as many as there are plans, {num}"))
    for i, row in enumerate(document["figures"]):
        lacking = [
            name
            for name in document["objectives"]
            if not isinstance(row, Mapping) or not isinstance(row.get(name), int | float)
        ]
        found += [(f"figures[{i}].{name}", "must be a number") for name in lacking]
    return found


def _shape(plan: Plan) -> list[tuple[object, ...]]:
    """Return who holds which layers in which role."""
    return sorted(
        (replica.role, replica.slots, *((stage.devices, stage.layers) for stage in replica.stages))
        for replica in plan.replicas
    )
