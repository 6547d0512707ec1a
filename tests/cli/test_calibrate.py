"""``calibrate`` on the command line: what is shown, asked, written and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from e2llm_opt import Problem, Provenance
from e2llm_opt.cli import calibrate as module
from e2llm_opt.cli import command_line
from tests.loading.test_measurements import DECODE, ROW

if TYPE_CHECKING:
    from tests.cli.conftest import Run

BY_HAND = ("--device", "tower", "--decode", "42.1", "--prefill", "900")


@pytest.fixture
def bench(tmp_path: Path) -> str:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps([ROW, DECODE]), encoding="utf-8")
    return str(path)


def test_a_file_of_llama_bench_is_shown_and_written(lab: str, bench: str, run: Run) -> None:
    old = Path(lab).read_text(encoding="utf-8")
    done = run("calibrate", lab, "--measured", bench)
    assert done.exit_code == 0
    assert "Measured and predicted" in done.stdout
    assert "1 prefill, 1 decode" in done.stdout
    assert done.stdout.endswith(f"written into {lab}\n")
    tower, laptop = Problem.load(lab).devices
    assert tower.provenance is Provenance.MEASURED
    assert laptop.provenance is Provenance.CATALOGUE
    new = Path(lab).read_text(encoding="utf-8").splitlines()
    assert [line for line in new if "tower" not in line] == [
        line for line in old.splitlines() if "tower" not in line
    ]
    assert "sources: [bench.json], prefill: 1, decode: 1" in "\n".join(new)


def test_speeds_on_the_command_line_are_of_the_inventory_s_model(lab: str, run: Run) -> None:
    done = run("calibrate", lab, *BY_HAND, "--prompt-tokens", "300", "--depth", "100", "--json")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "e2llm-opt/calibration/v1"
    assert answer["written"] == lab
    told = {m["phase"]: m for m in answer["measurements"]}
    assert (told["prefill"]["tokens"], told["decode"]["tokens"]) == (300, 128)
    for m in told.values():
        assert (m["model"], m["weights"], m["depth"]) == ("llama-3.1-8b", "q4_k_m", 100)
        assert abs(m["error_after"]) < abs(m["error_before"])
    after = answer["devices"][0]["after"]
    assert Problem.load(lab).devices[0].decode_efficiency == after["decode_efficiency"]


def test_a_dry_run_writes_nothing(lab: str, run: Run) -> None:
    old = Path(lab).read_bytes()
    done = run("calibrate", lab, *BY_HAND, "--dry-run")
    assert done.stdout.endswith("nothing is written (--dry-run)\n")
    assert (
        json.loads(run("calibrate", lab, *BY_HAND, "--dry-run", "--json").stdout)["written"] is None
    )
    assert Path(lab).read_bytes() == old


def test_another_file_or_standard_output_takes_the_result(lab: str, run: Run) -> None:
    old = Path(lab).read_bytes()
    other = str(Path(lab).with_name("other.yaml"))
    assert run("calibrate", lab, *BY_HAND, "-o", other, "-q").stdout == ""
    assert run("calibrate", lab, *BY_HAND, "-o", "-").stdout == Path(other).read_text("utf-8")
    assert Path(lab).read_bytes() == old


def test_measured_devices_are_not_warned_of_in_a_plan(lab: str, run: Run) -> None:
    run("calibrate", lab, *BY_HAND)
    done = run("plan", lab, "--exclude", "laptop")
    assert "speeds follow from specifications" not in done.stdout


def test_odd_units_are_refused_where_nobody_can_be_asked(lab: str, run: Run) -> None:
    old = Path(lab).read_bytes()
    done = run("calibrate", lab, "--device", "tower", "--decode", "42.1e6")
    assert done.exit_code == 2
    assert "4.21e+07 tokens/s, where 58.2 are predicted: is the unit tokens a" in done.stderr
    assert "give --yes" in done.stderr
    assert Path(lab).read_bytes() == old
    assert run("calibrate", lab, "--device", "tower", "--decode", "42.1e6", "-y").exit_code == 0


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2)])
def test_odd_units_are_asked_about_on_a_terminal(
    lab: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    old = Path(lab).read_bytes()
    asked = ["calibrate", lab, "--device", "tower", "--decode", "42.1e6"]

    def ask(found: object, *, is_accepted: bool) -> None:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        own(found, is_accepted=is_accepted)  # type: ignore[arg-type]

    own = module._ask
    monkeypatch.setattr(module, "_ask", ask)
    done = CliRunner().invoke(command_line, asked, input=answer)
    assert "Use it all the same?" in done.stderr
    assert done.exit_code == code
    assert (Path(lab).read_bytes() == old) is (code == 2)


def test_ctrl_c_at_the_question_is_130(lab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        raise click.Abort

    def ask(found: object, *, is_accepted: bool) -> None:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        own(found, is_accepted=is_accepted)  # type: ignore[arg-type]

    own = module._ask
    monkeypatch.setattr(module, "_ask", ask)
    monkeypatch.setattr(click, "confirm", interrupted)
    done = CliRunner().invoke(
        command_line, ["calibrate", lab, "--device", "tower", "--decode", "42.1e6"]
    )
    assert done.exit_code == 130


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --measured FILE, --decode or --prefill"),
        (("--device", "tower"), "give --measured FILE, --decode or --prefill"),
        (("--decode", "40"), "it does not say which device ran; give --device NAME"),
        (("--device", "towr", "--decode", "40"), "is called 'towr'; did you mean tower?"),
        (("--device", "tower", "--decode", "-1"), "not in the range"),
        (("--device", "tower", "--decode", "nan"), "not a finite number"),
        ((*BY_HAND, "--model", "lama-3.1-8b"), "unknown model 'lama-3.1-8b'"),
        ((*BY_HAND, "--weights", "q9"), "unknown weight format 'q9'"),
        (("--device", "tower", "--decode", "40", "--prompt-tokens", "9"), "give both"),
        (("--measured", "absent.json"), "absent.json: cannot be read"),
        ((*BY_HAND, "-o", "/absent/x.yaml"), "/absent/x.yaml: cannot be written"),
        ((*BY_HAND, "--model", "llama-3-70b"), "part of it ran elsewhere"),
    ],
)
def test_bad_usage_is_exit_2_and_writes_nothing(
    lab: str, run: Run, options: tuple[str, ...], words: str
) -> None:
    old = Path(lab).read_bytes()
    done = run("calibrate", lab, *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert Path(lab).read_bytes() == old


def test_contradictions_are_named(lab: str, run: Run, bench: str) -> None:
    other = Path(bench).with_name("other.json")
    other.write_text(json.dumps([{**DECODE, "avg_ts": 20.0}]), encoding="utf-8")
    done = run("calibrate", lab, "--measured", bench, "--measured", str(other))
    assert done.exit_code == 2
    assert f"{bench}:1: decode of 128 tokens at depth 4096 of llama-3.1-8b q4_k_m" in done.stderr
    assert f"52.1 tokens/s here and 20 in {other}:1; keep the one that holds" in done.stderr


def test_many_measurements_are_not_all_listed(lab: str, run: Run, bench: str) -> None:
    rows = [{**DECODE, "n_depth": 10 * i, "avg_ts": 54.0 - i / 50} for i in range(60)]
    Path(bench).write_text(json.dumps(rows), encoding="utf-8")
    done = run("calibrate", lab, "--measured", bench, "--dry-run")
    assert "... 20 more that fit better" in done.stdout
    assert "tower: prefill was not measured" in done.stdout


def test_an_inventory_without_a_model_or_a_workload_can_be_calibrated(
    tmp_path: Path, run: Run, bench: str
) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text("devices:\n  - {name: tower, type: rtx-3060-12gb}\n", encoding="utf-8")
    assert run("calibrate", str(path), "--measured", bench).exit_code == 0
    done = run("calibrate", str(path), "--decode", "40")
    assert "it is not known which model ran; give --model NAME, and --weights" in done.stderr
