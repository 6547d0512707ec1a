"""The public names are the objects they claim to be, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import e2llm_opt

ROOT = Path(__file__).parents[1]
HEAVY = (
    "distributed",
    "matplotlib",
    "networkx",
    "numba",
    "numpy",
    "pydantic",
    "pymoo",
    "rich",
    "scipy",
    "yaml",
)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", e2llm_opt.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(e2llm_opt, name) is getattr(e2llm_opt, name)
    assert name in dir(e2llm_opt)


def test_types_and_names_agree() -> None:
    """What the type checker sees is what there is."""
    source = Path(e2llm_opt.__file__).read_text(encoding="utf-8")
    seen = {line.split(" as ")[1] for line in source.splitlines() if line.startswith("    from ")}
    assert {"__version__", *seen} == set(e2llm_opt.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'e2llm_opt' has no attribute 'plann'"):
        _ = e2llm_opt.plann  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = run("import sys, e2llm_opt; print(*{name.split('.')[0] for name in sys.modules})")
    heavy = set(HEAVY) & set(loaded.split())
    assert not heavy, f"import {', '.join(heavy)} inside the function that needs it"


SUBPACKAGES = (
    *("plan.plan", "check.check", "partition.partition", "runtime"),
    *("calibrate.calibrate", "compare", "export.export", "replan.replan", "simulate.simulate"),
    "sweep.sweep",
)


@pytest.mark.parametrize("module", SUBPACKAGES)
@pytest.mark.parametrize("order", ["module first", "name first", "between"])
def test_a_function_wins_over_the_module_of_its_name(module: str, order: str) -> None:
    name = module.split(".", maxsplit=1)[0]
    use = f"assert callable(e2llm_opt.{name}), e2llm_opt.{name}"
    load = f"import e2llm_opt.{module}"
    steps = {
        "module first": [load, use],
        "name first": ["import e2llm_opt", use, load, use],
        "between": [f"from e2llm_opt import {name} as before", load, f"assert callable({name})"],
    }[order]
    if order == "between":
        steps[2:] = [f"from e2llm_opt import {name} as after", "assert before is after"]
    run("\n".join(steps))


def test_modules_of_a_hidden_subpackage_can_be_imported() -> None:
    run("""
        import e2llm_opt
        assert callable(e2llm_opt.plan)
        from e2llm_opt.plan.plan import Plan
        from e2llm_opt.plan import json_file
        import importlib
        assert importlib.import_module("e2llm_opt.plan.json_file") is json_file
        assert Plan is e2llm_opt.Plan
        assert json_file.load_plan is e2llm_opt.load_plan
        """)


def test_star_import_gives_the_functions() -> None:
    run("from e2llm_opt import *; assert callable(plan) and callable(check) and Problem")


def test_a_public_name_can_be_replaced_in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2llm_opt, "plan", "another")
    assert e2llm_opt.plan == "another"  # type: ignore[comparison-overlap]
