"""One row's question and its answer: what is sent to a worker, and what comes back."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from e2llm_opt import __version__
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.stop import Stop

PLANNED = "planned"
INFEASIBLE = "infeasible"
FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A problem, and how it is to be planned.

    Parameters
    ----------
    problem, planner, seed, stop
        As for :func:`e2llm_opt.plan`.
    wants_plan
        Whether the plan itself is to come back.
    """

    problem: Problem
    planner: str
    seed: int
    stop: Stop
    wants_plan: bool = False

    @property
    def key(self) -> str:
        """SHA-256 of everything that decides the answer, as 64 hexadecimal digits."""
        parts = {item.name: getattr(self.problem, item.name) for item in fields(self.problem)}
        del parts["model"]  # follows from the facts
        parts["inventory"] = inventory_sha256(self.problem.inventory)
        how = {"planner": self.planner, "seed": self.seed, "stop": self.stop}
        text = json.dumps(
            _plain({"e2llm_opt": __version__, **parts, **how}), sort_keys=True, allow_nan=False
        )
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a row's question came to: figures by name, and the plan as JSON where it was wanted."""

    status: str
    figures: dict[str, Any]
    plan: str = ""


def answer(question: Question) -> Answer:
    """Plan; what is wrong with the question is an answer, too."""
    from e2llm_opt.solve import plan  # noqa: PLC0415 - numba comes with it, in workers only

    began = time.monotonic()
    try:
        found = plan(
            question.problem, planner=question.planner, seed=question.seed, stop=question.stop
        )
    except InputError as error:
        return Answer(status=FAILED, figures={"reason": str(error)})
    elapsed = {"elapsed_s": round(time.monotonic() - began, 3)}
    if not isinstance(found, Plan):
        return Answer(status=INFEASIBLE, figures={"reason": found.reason, **elapsed})
    text = found.to_json() if question.wants_plan else ""
    return Answer(status=PLANNED, figures={**_figures(found), **elapsed}, plan=text)


def _figures(plan: Plan) -> dict[str, Any]:
    predicted, roles = plan.predicted, [replica.role for replica in plan.replicas]
    names = (
        *("capacity_per_s", "stable", "waiting_time_s", "ttft_s", "tpot_s", "latency_s"),
        *("power_w", "cost_per_hour"),
    )
    return {
        **{name: getattr(predicted, name) for name in names},
        **{f"{role.lower()}_replicas": roles.count(role) for role in Role},
        "devices": sum(len(replica.stages) for replica in plan.replicas),
        "bound_per_s": plan.bound.capacity_per_s,
        "gap": plan.bound.gap,
        "proof": str(plan.bound.proof),
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field of a problem
    """Return *value* as JSON has it; whole numbers as floats, so that 12 and 12.0 are one."""
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
