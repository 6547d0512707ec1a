"""A small inventory file, and a planner that answers what a test wants."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner, Result

from e2llm_opt.cli import command_line
from e2llm_opt.plan.plan import Plan
from e2llm_opt.search.progress import Progress
from tests.samples import sample_plan

if TYPE_CHECKING:
    from pathlib import Path

    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.islands import Islands
    from e2llm_opt.search.stop import Stop

LAB = """\
devices:
  - {name: tower, type: rtx-3060-12gb}
  - {name: laptop, type: apple-m1, memory_gib: 16}
links:
  - {between: [tower, laptop], bandwidth_mbit_s: 940, latency_ms: 0.2}
model: llama-3.1-8b
weights: q4_k_m
workload: {rate_per_s: 0.1, prompt_tokens: 500, output_tokens: 200}
"""


@pytest.fixture
def lab(tmp_path: Path) -> str:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB, encoding="utf-8")
    return str(path)


class Run(Protocol):
    """Run ``e2llm-opt`` with these arguments; a bug is raised, not reported."""

    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture
def run() -> Run:
    def run_command(*arguments: str) -> Result:
        result = CliRunner().invoke(command_line, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_command


@dataclass
class Planner:
    """Stands for :func:`e2llm_opt.plans` and remembers how it was called."""

    answer: Plan | Infeasible | BaseException = field(default_factory=sample_plan)
    problems: list[Problem] = field(default_factory=list)
    name: str = ""
    seed: int = -1
    stop: Stop | None = None
    islands: Islands | None = None

    def __call__(
        self,
        problem: Problem,
        *,
        top: int,
        planner: str,
        seed: int,
        stop: Stop | None,
        islands: Islands | None,
        progress: Any,
    ) -> tuple[Plan, ...] | Infeasible:
        progress(Progress(evaluations=1, elapsed_s=0.1, best="none yet"))
        self.problems.append(problem)
        self.name, self.seed, self.stop, self.islands = planner, seed, stop, islands
        if isinstance(self.answer, BaseException):
            raise self.answer
        return (self.answer,) * top if isinstance(self.answer, Plan) else self.answer


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    fake = Planner()
    module = ModuleType("e2llm_opt.solve")
    module.plans = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "e2llm_opt.solve", module)
    return fake
