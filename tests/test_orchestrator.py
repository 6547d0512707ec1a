"""``examples/orchestrator.py`` works, says what is so, and is typed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2llm_opt import Infeasible, Plan

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "examples" / "orchestrator.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("orchestrator", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["orchestrator"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_day_of_the_cluster(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[Plan | Infeasible] = []
    plan = program.plan

    def remembered(*arguments: Any, **options: Any) -> Plan | Infeasible:
        answers.append(plan(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(program, "plan", remembered)
    program.main()
    whole, without, alone, again = answers
    assert isinstance(whole, Plan)
    assert isinstance(without, Plan)
    assert isinstance(alone, Infeasible)
    assert isinstance(again, Plan)
    assert "tower" in program.held(whole)
    assert set(program.held(without)) == {"orin-1", "orin-2"}
    assert "orin-2" not in program.held(again)
    told = capsys.readouterr().out
    assert told.count("==") == 4
    assert "no plan: not enough memory" in told
    for device, layers in program.to_load(without, again).items():
        start, stop = layers
        assert f"{device} has to load layers {start} to {stop - 1}" in told.split("==")[-1]


def test_only_devices_whose_layers_change_have_to_load(program: ModuleType) -> None:
    cluster = program.Cluster(
        facts=program.model_facts("qwen3-8b"),
        workload=program.Workload(
            prompt=program.Lengths(mean=600), output=program.Lengths(mean=250), rate_per_s=0.01
        ),
        links=(program.cable("a", 940), program.cable("b", 940)),
    )
    first = cluster.joined(program.device_of_type("rtx-3090", name="a"))
    assert cluster.problem().inventory.links == ()
    assert program.to_load(None, first) == {"a": (0, 36)}
    second = cluster.joined(program.device_of_type("rtx-3060-12gb", name="b"))
    assert len(cluster.problem().inventory.links) == 2
    assert program.to_load(second, second) == {}
    assert cluster.plan is second


@pytest.mark.parametrize("path", [PROGRAM, ROOT / "tests" / "typing" / "program.py"])
def test_a_user_s_program_is_typed(path: Path) -> None:
    pytest.importorskip("mypy", reason="pip install -e '.[lint]'")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
