"""``e2llm-opt pareto``: a table, JSON, files, and the page of a plan of the front."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.cli.progress import Line
from e2llm_opt.plan.json_file import load_plan
from e2llm_opt.search.progress import Progress

if TYPE_CHECKING:
    from tests.cli.conftest import Run

HOMELAB = str(Path(__file__).parents[2] / "examples" / "homelab.yaml")


def test_the_table_fits_marks_the_knee_and_explains_it(run: Run) -> None:
    result = run("pareto", HOMELAB)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.isascii()
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "knee 1" in result.stdout
    assert "- Knee: plan 1" in result.stdout
    assert "170 W" in result.stdout


def test_json_holds_plans_and_the_knee(run: Run) -> None:
    result = run("pareto", HOMELAB, "--json", "--objectives", "ttft, power_w", "--size", "3")
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert {plan["schema"] for plan in answer["plans"]} == {"e2llm-opt/plan/v1"}
    assert 0 <= answer["knee"] < len(answer["plans"]) == 3
    assert answer["objectives"] == ["ttft", "power_w"]


def test_files_are_written_and_a_page_shows_the_front(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder, plot = tmp_path / "a" / "front", tmp_path / "front.png"
    result = run("pareto", HOMELAB, "-q", "-o", str(folder), "--plot", str(plot))
    assert (result.exit_code, result.stdout) == (0, "")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["front.json", "plan-01.json", "plan-02.json", "plan-03.json"]
    plans = json.loads((folder / "front.json").read_text(encoding="utf-8"))["plans"]
    for i, plan in enumerate(plans, start=1):
        path = folder / f"plan-{i:02}.json"
        assert json.loads(path.read_text(encoding="utf-8")) == plan
        assert run("check", str(path), HOMELAB).exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    page = tmp_path / "plan.html"
    done = run(
        *("report", str(folder / "plan-02.json"), "-o", str(page)),
        *("--front", str(folder / "front.json")),
    )
    assert done.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "This is plan 2." in text
    assert "plan 2 <small>(this plan)</small>" in text
    assert 'id="h-trade"' in text


def test_a_page_refuses_the_front_of_another_inventory(run: Run, tmp_path: Path, lab: str) -> None:
    folder, other = tmp_path / "front", tmp_path / "other.json"
    assert run("pareto", HOMELAB, "-q", "-o", str(folder)).exit_code == 0
    assert run("plan", lab, "-q", "-o", str(other)).exit_code == 0
    result = run("report", str(other), "--front", str(folder / "front.json"))
    assert result.exit_code == 2
    assert "this front is of other devices and links than the plan" in result.stderr
    assert load_plan(other).replicas


def test_progress_shows_the_front_and_its_hypervolume() -> None:
    line = Line(io.StringIO(), "preparing")
    best = "front of 12 plans, hypervolume 0.412"
    line(Progress(evaluations=90, elapsed_s=3.0, best=best, front_size=12, hypervolume=0.412))
    _, heads, figures = line.lines(100)
    assert heads.split()[:4] == ["best", "so", "far", "hypervolume"]
    assert figures.startswith("front of 12 plans  0.412")


def test_what_has_no_plan_says_why(run: Run) -> None:
    options = ("--context-tokens", "100000000", "--exclude", "desktop")
    shown = run("pareto", HOMELAB, *options)
    planned = run("plan", HOMELAB, *options)
    assert shown.exit_code == planned.exit_code == 3
    assert shown.stdout == planned.stdout
    answer = json.loads(run("pareto", HOMELAB, "--json", *options).stdout)
    assert answer["schema"] == "e2llm-opt/infeasible/v1"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--objectives", "waiting_tim,devices"), "did you mean waiting_time?"),
        (("--objectives", "devices"), "a front needs at least two"),
        (("--objectives", "devices,cost_per_hour"), "cost_per_hour is not known of desktop"),
        (("--size", "1"), "1 is not in the range x>=2"),
        (("--plot", "front.doc"), "no format for a plot"),
        (("-o", "/dev/null/front"), "cannot be made a folder"),
    ],
)
def test_bad_input_is_refused(run: Run, options: tuple[str, ...], says: str) -> None:
    result = run("pareto", HOMELAB, *options)
    assert result.exit_code == 2
    assert says in result.stderr
