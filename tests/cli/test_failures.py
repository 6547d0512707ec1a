"""``e2llm-opt failures``: a report, JSON, what it refuses; and ``--survive`` elsewhere."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.failures import failures as module

if TYPE_CHECKING:
    from tests.cli.conftest import Run

LOST = {
    "device tower",
    "device laptop",
    "link tower - laptop",
}


def written(tmp_path: Path, *devices: str) -> str:
    path = tmp_path / "plan.json"
    replicas = [
        {"role": "MIXED", "stages": [{"device": device, "layers": [0, 32]}]} for device in devices
    ]
    path.write_text(json.dumps({"replicas": replicas}))
    return str(path)


def test_json_has_every_loss_the_worst_first(lab: str, tmp_path: Path, run: Run) -> None:
    plan = written(tmp_path, "tower", "laptop")
    result = run("failures", plan, lab, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert list(found) == [
        *("schema", "rate_per_s", "k", "intact", "losses", "explain", "warnings", "complete")
    ]
    names = [f"{loss['kind']} {loss['lost'][0]}" for loss in found["losses"]]
    assert set(names) == LOST
    assert names[0] == "device tower"
    worst = found["losses"][0]
    assert worst["replicas_lost"] == ["r0"]
    assert [one["devices"] for one in worst["as_is"]["replicas"]] == [["laptop"]]
    assert 0 < worst["damage"] < 1
    assert found["losses"][-1]["re_roled"] is None
    assert found["complete"]


def test_the_report_says_what_hurts_most(lab: str, tmp_path: Path, run: Run) -> None:
    plan = written(tmp_path, "tower")
    text = " ".join(run("failures", plan, lab, "--no-replan").stdout.split())
    assert "Hurts most: the loss of device tower: it takes r0 with it; nothing is served" in text
    assert "2 losses change nothing: device laptop and link tower - laptop." in text
    assert "Users are taken to reach every device that is left" in text
    assert run("failures", plan, lab, "-q").stdout == ""


def test_pairs_are_of_devices_unless_said_otherwise(lab: str, tmp_path: Path, run: Run) -> None:
    plan = written(tmp_path, "tower", "laptop")
    found = json.loads(run("failures", plan, lab, "--k", "2", "--json").stdout)
    assert [loss["lost"] for loss in found["losses"]] == [["tower", "laptop"]]
    assert found["losses"][0]["kind"] == "device + device"
    assert found["losses"][0]["as_is"]["capacity_per_s"] == 0
    assert found["losses"][0]["re_planned"] is None


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--k", "3"), "3 is not in the range 1<=x<=2"),
        (("--lost", "cable"), "'cable' is not one of"),
        (("--survive", "-1"), "-1 is not in the range 0<=x<=2"),
        (("--survive", "half"), "'half' is not a valid integer"),
    ],
)
def test_wrong_options_are_refused(
    arguments: tuple[str, ...], wrong: str, lab: str, tmp_path: Path, run: Run
) -> None:
    result = run("failures", written(tmp_path, "tower"), lab, *arguments)
    assert result.exit_code == 2
    assert wrong in result.stderr


def test_a_plan_that_is_none_is_refused_with_its_file(lab: str, tmp_path: Path, run: Run) -> None:
    plan = written(tmp_path, "mac")
    result = run("failures", plan, lab)
    assert result.exit_code == 2
    assert "unknown device" in result.stderr
    assert plan in result.stderr


def test_ctrl_c_shows_the_losses_that_are_done(
    lab: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, report = written(tmp_path, "tower", "laptop"), module._Analysis._report

    def interrupted(self: object, lost: object) -> object:
        signal.raise_signal(signal.SIGINT)
        return report(self, lost)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Analysis, "_report", interrupted)
    result = run("failures", plan, lab, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (len(found["losses"]), found["complete"]) == (1, False)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("-1", "survive"), ("1.5", "survive"), ("yes", "survive"), ("3", "must be 0 to 2")],
)
def test_a_survive_that_means_nothing_is_refused_by_its_line(
    value: str, wrong: str, lab: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "bad.yaml"
    text = Path(lab).read_text(encoding="utf-8")
    path.write_text(f"{text}constraints: {{survive: {value}}}\n", encoding="utf-8")
    result = run("plan", str(path))
    assert result.exit_code == 2
    assert wrong in result.stderr
    assert "bad.yaml:" in result.stderr


def test_check_says_which_loss_a_plan_does_not_survive(lab: str, tmp_path: Path, run: Run) -> None:
    alone = run("check", written(tmp_path, "tower"), lab, "--survive", "1", "--json")
    assert alone.exit_code == 3
    what = [one["what"] for one in json.loads(alone.stdout)["violations"]]
    assert what == ["constraints.survive: does not survive the loss of tower (r0)"]
    both = run("check", written(tmp_path, "tower", "laptop"), lab, "--survive", "1")
    assert both.exit_code == 0
