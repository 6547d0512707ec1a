"""``examples/trade_offs.py`` works and picks what it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from e2llm_opt import Front, Plan, Problem, pareto

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

ROOT = Path(__file__).parents[1]


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trade_offs", ROOT / "examples/trade_offs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_prices_its_devices_and_picks_the_cheapest_quick_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = program()
    monkeypatch.setattr(example, "TESTBED", ROOT / "examples" / "homelab.yaml")
    example.main()
    said = capsys.readouterr().out
    assert "<- knee" in said
    assert "Cheapest with waits below 2 s: mac-mini" in said


def test_where_nothing_is_quick_enough_there_is_no_choice() -> None:
    example = program()
    problem = example.with_prices(Problem.load(ROOT / "examples" / "homelab.yaml"))
    front = pareto(problem, objectives=("waiting_time", "cost_per_hour"))
    assert isinstance(front, Front)
    assert example.cheapest(front, -1.0) is None
    assert isinstance(example.cheapest(front, 100.0), Plan)
