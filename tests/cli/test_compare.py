"""``e2llm-opt compare``: rows of planners as a table, CSV, plot and JSON."""

from __future__ import annotations

import csv
import importlib
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2llm_opt.planners import PLANNERS

if TYPE_CHECKING:
    from tests.cli.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ("--requests", "200")
TIMES = ("waiting_time_s", "ttft_s", "tpot_s", "latency_s")
QUICK = "memory-proportional,splitwise,best-single-device"


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    result = run("compare", *arguments, "--json", *FEW)
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert list(answer) == ["rows"]
    found: list[dict[str, Any]] = answer["rows"]
    return found


def test_json_has_a_row_a_planner_and_reasons_where_there_is_no_plan(run: Run) -> None:
    found = rows(run, str(EXAMPLES / "two-macs.yaml"), "--planners", f"{QUICK},all-mixed")
    assert [row["planner"] for row in found] == [*QUICK.split(","), "all-mixed"]
    keys = ["planner", "capacity_per_s", "predicted", "simulated", "devices_used", "planning_s"]
    for row in found:
        assert list(row)[:6] == keys
        if row["predicted"] is None:
            assert row["reason"]
            assert {row[key] for key in ("capacity_per_s", "simulated", "devices_used")} == {None}
            continue
        assert list(row) == keys
        assert row["predicted"]["capacity_per_s"] == row["capacity_per_s"]
        assert tuple(row["simulated"]) == TIMES
        for name in TIMES:
            assert tuple(row["simulated"][name]) == ("mean", "p50", "p90", "p99")
        assert row["devices_used"] == 2
        assert row["planning_s"] > 0
    assert [row["predicted"] is None for row in found] == [False, True, True, False]


@pytest.mark.needs_jit
def test_every_planner_is_a_row_unless_some_are_named(run: Run) -> None:
    found = rows(run, str(EXAMPLES / "homelab.yaml"), "--max-evaluations", "40")
    assert [row["planner"] for row in found] == list(PLANNERS)
    assert found[0]["simulated"]["waiting_time_s"]["mean"] is not None


def test_the_same_requests_give_the_same_plan_the_same_times(run: Run) -> None:
    lab = str(EXAMPLES / "two-macs.yaml")
    (first,) = rows(run, lab, "--planners", "memory-proportional")
    (again,) = rows(run, lab, "--planners", "equal-layers", "--seed", "0")
    assert first["simulated"] == again["simulated"]  # both cut the model in the middle


def test_a_table_csv_and_plot_hold_the_same_rows(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table, plot = tmp_path / "rows.csv", tmp_path / "rows.png"
    result = run(
        *("compare", str(EXAMPLES / "two-macs.yaml"), "--planners", QUICK, *FEW),
        *("--csv", str(table), "--plot", str(plot)),
    )
    assert result.exit_code == 0
    assert result.stdout.isascii()
    assert max(map(len, result.stdout.splitlines())) <= 80
    found = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["planner"] for row in found] == QUICK.split(",")
    assert float(found[0]["simulated_latency_s_p99"]) > float(found[0]["simulated_latency_s_p50"])
    assert found[1]["simulated_latency_s_mean"] == ""
    assert "two machines" in found[1]["reason"]
    for name in QUICK.split(","):
        assert name in result.stdout
    assert "two machines" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_trace_is_what_planners_plan_for(lab: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    lines = "".join(f"{i * 20},{300 + i},{50 + i}\n" for i in range(50))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{lines}")
    (row,) = rows(run, lab, "--planners", "best-single-device", "--trace", str(path))
    (other,) = rows(run, lab, "--planners", "best-single-device")
    assert row["capacity_per_s"] > other["capacity_per_s"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--planners", "best"), "'best' is not one of"),
        (("--planners", "splitwise,splitwise"), "twice"),
        (("--planners", ""), "is not one of"),
        (("--plot", "rows.pdf"), "use .svg or .png"),
        (("--csv", "/absent/rows.csv"), "cannot be written"),
        (("--rate", "0"), "give --rate"),
    ],
)
def test_contradictions_are_exit_2(
    lab: str, run: Run, arguments: tuple[str, ...], words: str
) -> None:
    result = run("compare", lab, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_ctrl_c_shows_the_rows_that_are_done(
    lab: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = importlib.import_module("e2llm_opt.compare")
    real = module._row

    def pressed(*arguments: Any) -> Any:
        if arguments[2] == "splitwise":
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(module, "_row", pressed)
    names = ("--planners", "memory-proportional,splitwise,equal-layers")
    assert [row["planner"] for row in rows(run, lab, *names)] == ["memory-proportional"]
    result = run("compare", lab, "--planners", "splitwise", *FEW)
    assert (result.exit_code, result.stdout) == (130, "")


def test_quiet_prints_nothing(lab: str, run: Run) -> None:
    assert run("compare", lab, "--planners", "equal-layers", *FEW, "-q").output == ""
