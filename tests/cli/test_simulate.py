"""``e2llm-opt simulate``: from a plan to figures, records and a plot; and what it refuses."""

from __future__ import annotations

import csv
import json
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from e2llm_opt.simulate import simulate as module

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

SPREADS = ("waiting_time_s", "wait_prefill_s", "wait_kv_s", "wait_decode_s")
TIMES = (*SPREADS, "ttft_s", "tpot_s", "latency_s")


def written(tmp_path: Path, *stages: tuple[str, int, int]) -> str:
    path = tmp_path / "plan.json"
    entries = [{"device": device, "layers": [start, stop]} for device, start, stop in stages]
    path.write_text(json.dumps({"replicas": [{"role": "MIXED", "stages": entries}]}))
    return str(path)


@pytest.fixture
def plan(tmp_path: Path) -> str:
    return written(tmp_path, ("tower", 0, 32))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{i * 7.5},{400 + i},{100 + i}\n" for i in range(40))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    return str(path)


def answer(run: Run, *arguments: str) -> dict[str, Any]:
    result = run("simulate", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_has_every_figure(lab: str, plan: str, run: Run) -> None:
    found = answer(run, plan, lab, "--requests", "300", "--ttft", "1", "--tpot", "0.1")
    assert list(found) == [
        *("schema", "requests", "arrivals", *TIMES, "slo", "throughput", "trend"),
        *("replicas", "devices", "links", "changes", "options"),
    ]
    assert found["schema"] == "e2llm-opt/simulation/v1"
    counts = {"simulated": 300, "warmup": 0, "counted": 300, "rejected": 0, "unserved": 0}
    assert found["requests"] == counts
    assert found["changes"] is None
    for name in TIMES:
        assert set(found[name]) == {"mean", "p50", "p90", "p99"}
        assert found[name]["p50"] <= found[name]["p90"] <= found[name]["p99"]
    parts = sum(found[name]["mean"] for name in SPREADS[1:])
    assert found["waiting_time_s"]["mean"] == pytest.approx(parts)
    assert 0 < found["slo"]["every"] <= 1
    assert found["slo"]["min_tokens_per_s"] is None
    assert found["options"]["arrivals"] == "poisson"
    assert [use["device"] for use in found["devices"]] == ["tower"]


def test_the_report_is_plain_in_a_pipe(lab: str, plan: str, run: Run) -> None:
    result = run("simulate", plan, lab, "--requests", "1000", "--ttft", "2")
    assert result.exit_code == 0
    assert result.stdout.isascii()
    assert max(map(len, result.stdout.splitlines())) <= 80
    for words in ("1000 requests at 0.1", "first 50 to warm up", "TTFT up to 2 s", "r0 MIXED"):
        assert words in result.stdout


def test_quiet_prints_nothing(lab: str, plan: str, run: Run) -> None:
    assert run("simulate", plan, lab, "--requests", "10", "-q").output == ""


def test_the_seed_decides(lab: str, plan: str, run: Run) -> None:
    first, again, other = (
        answer(run, plan, lab, "--requests", "100", "--seed", seed) for seed in ("1", "1", "2")
    )
    assert first == again
    assert first["latency_s"] != other["latency_s"]


def test_a_higher_rate_waits_longer_and_overload_drifts(lab: str, plan: str, run: Run) -> None:
    low, high, over = (
        answer(run, plan, lab, "--requests", "500", "--rate", rate) for rate in ("0.1", "0.8", "9")
    )
    assert low["waiting_time_s"]["mean"] < high["waiting_time_s"]["mean"]
    assert low["trend"]["verdict"] == "stable"
    assert over["trend"]["verdict"] == "drifting"
    assert over["devices"][0]["utilisation"] > 0.9


def test_patterns_of_arrivals_differ(lab: str, plan: str, run: Run) -> None:
    waits = [
        answer(run, plan, lab, "--requests", "400", "--rate", "0.6", "--arrivals", pattern)
        for pattern in ("fixed", "poisson", "bursty")
    ]
    means = [found["waiting_time_s"]["mean"] for found in waits]
    assert means == sorted(means)
    assert means[0] < means[2]


def test_a_plan_that_was_made_is_simulated_at_any_rate(lab: str, run: Run, tmp_path: Path) -> None:
    made = str(tmp_path / "made.json")
    assert run("plan", lab, "-q", "-o", made).exit_code == 0
    assert answer(run, made, lab, "--requests", "100")["requests"]["counted"] == 100
    assert answer(run, made, lab, "--requests", "100", "--rate", "50")["requests"]["counted"] == 100


def test_a_plan_that_check_refuses_is_exit_3(lab: str, run: Run, tmp_path: Path) -> None:
    bad = written(tmp_path, ("tower", 0, 31))
    result = run("simulate", bad, lab)
    assert (result.exit_code, result.stderr) == (3, "")
    assert "not valid" in result.stdout
    assert json.loads(run("simulate", bad, lab, "--json").stdout)["valid"] is False
    assert run("simulate", bad, lab, "-q").output == ""


def test_a_plan_of_another_inventory_is_exit_3(lab: str, run: Run, tmp_path: Path) -> None:
    made = str(tmp_path / "made.json")
    run("plan", lab, "-q", "-o", made)
    text = (tmp_path / "lab.yaml").read_text(encoding="utf-8")
    (tmp_path / "lab.yaml").write_text(text.replace("940", "930"), encoding="utf-8")
    result = run("simulate", made, lab)
    assert result.exit_code == 3
    assert "another inventory" in result.stdout


def test_a_trace_is_simulated_as_a_whole(lab: str, plan: str, trace: str, run: Run) -> None:
    found = answer(run, plan, lab, "--trace", trace)
    assert found["requests"]["simulated"] == 40
    assert found["arrivals"]["rate_per_s"] == pytest.approx(1 / 7.5)
    assert (found["options"]["arrivals"], found["options"]["trace"]) == ("trace", trace)
    assert answer(run, plan, lab, "--trace", trace, "--requests", "5")["requests"]["counted"] == 5
    scaled = answer(run, plan, lab, "--trace", trace, "--scale", "2")
    assert scaled["arrivals"]["rate_per_s"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scale", "2"), "give --trace"),
        (("--trace", "TRACE", "--rate", "2"), "--scale"),
        (("--trace", "TRACE", "--arrivals", "fixed"), "--scale"),
        (("--requests", "0"), "--requests"),
        (("--requests", "10", "--warmup", "10"), "some of 10 requests"),
        (("--rate", "0"), "give --rate"),
        (("--routing", "random"), "--routing"),
        (("--records", "requests.xlsx"), "use .csv or .parquet"),
        (("--plot", "waits.gif"), "use .svg or .png"),
        (("--records", "/absent/requests.csv"), "cannot be written"),
    ],
)
def test_contradictions_are_exit_2(
    lab: str, plan: str, trace: str, run: Run, arguments: tuple[str, ...], words: str
) -> None:
    given = [trace if argument == "TRACE" else argument for argument in arguments]
    result = run("simulate", plan, lab, *given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("arrival_s,prompt_tokens,output_tokens\n", "no requests"),
        ("arrival_s,prompt_tokens\n1,2\n", "missing column output_tokens"),
        ("a,b,c\n1,2,3\n", "missing column"),
        ("arrival_s,prompt_tokens,output_tokens\n2,1,1\n1,1,1\n", "before the request above"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,1,1\n", "zero or more"),
        ("arrival_s,prompt_tokens,output_tokens\n1,0,1\n", "tokens must be a whole number"),
        ("arrival_s,prompt_tokens,output_tokens\n1,5,0\n", "tokens must be a whole number"),
    ],
)
def test_a_bad_trace_is_exit_2_and_says_why(
    lab: str, plan: str, run: Run, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    result = run("simulate", plan, lab, "--trace", str(path))
    assert result.exit_code == 2
    assert f"{path}" in result.stderr
    assert words in result.stderr


def test_requests_longer_than_any_slot_are_reported(
    lab: str, plan: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,90000000,9\n1,100,10\n")
    assert answer(run, plan, lab, "--trace", str(path))["requests"]["rejected"] == 1
    assert "1 rejected" in run("simulate", plan, lab, "--trace", str(path)).stdout


def test_records_and_plot_are_written(lab: str, plan: str, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records, plot = tmp_path / "requests.csv", tmp_path / "waits.svg"
    files = ("--records", str(records), "--plot", str(plot))
    found = answer(run, plan, lab, "--requests", "200", *files)
    rows = list(csv.DictReader(records.read_text(encoding="utf-8").splitlines()))
    waits = np.array([float(row["waiting_time_s"]) for row in rows])
    assert len(rows) == 200
    assert waits.mean() == pytest.approx(found["waiting_time_s"]["mean"])
    assert np.quantile(waits, 0.9) == pytest.approx(found["waiting_time_s"]["p90"])
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_ctrl_c_shows_what_was_simulated(
    lab: str, plan: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STEP", 50)
    real = module._run

    def pressed(system: Any, breathe: Any) -> int:
        def breathe_and_press(num: int) -> None:
            if num == 100:
                signal.raise_signal(signal.SIGINT)
            breathe(num)

        return real(system, breathe_and_press)

    monkeypatch.setattr(module, "_run", pressed)
    result = run("simulate", plan, lab, "--requests", "300")
    assert result.exit_code == 0
    assert "Interrupted: the first 100 of 300 requests" in result.stdout
    assert answer(run, plan, lab, "--requests", "300")["requests"]["simulated"] == 100


def test_the_json_answer_can_be_piped_from_plan(lab: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(run("plan", lab, "--json").stdout, encoding="utf-8")
    for routing in ("shortest-wait", "jsq", "plan"):
        found = answer(run, str(path), lab, "--requests", "50", "--routing", routing)
        assert found["options"]["routing"] == routing
    assert answer(run, str(path), lab, "--requests", "50", "--mean-context")["options"][
        "mean_context"
    ]


def test_a_failure_is_reported_with_what_it_cost(lab: str, plan: str, run: Run) -> None:
    failure = "--fail", "tower@100", "--recover", "tower@130", "--load-gb-s", "inf"
    found = answer(run, plan, lab, "--requests", "60", "--rate", "0.3", *failure)
    changes = found["changes"]
    assert (changes["from_s"], changes["until_s"]) == (100, 130)
    assert changes["retries"] >= changes["requests_retried"] > 0
    assert changes["tokens_twice"] > 0
    assert changes["wait_during_s"] > changes["wait_before_s"]
    assert [span["state"] for span in changes["timeline"]] == ["open", "down", "open"]
    assert found["options"]["recover"] == [["tower", 130]]
    text = run("simulate", plan, lab, "--requests", "60", "--rate", "0.3", *failure).stdout
    for words in ("requests begun anew", "during the changes", "down"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_failure_after_the_last_arrival_is_said_to_be_late(lab: str, plan: str, run: Run) -> None:
    late = run("simulate", plan, lab, "--requests", "20", "--fail", "tower@1e6")
    assert late.exit_code == 0
    assert "nothing arrives after the failure of 'tower' at 1e+06 s" in late.stderr
    early = run("simulate", plan, lab, "--requests", "20", "--fail", "tower@1")
    assert "nothing arrives" not in early.stderr


def test_without_a_recovery_some_are_unserved(lab: str, plan: str, run: Run) -> None:
    found = answer(run, plan, lab, "--requests", "60", "--rate", "0.3", "--fail", "tower@100")
    counts = found["requests"]
    assert counts["unserved"] > 0
    assert counts["counted"] + counts["unserved"] + counts["rejected"] == 60
    text = run("simulate", plan, lab, "--requests", "60", "--rate", "0.3", "--fail", "tower@100")
    assert "without an answer" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fail", "towr@3"], "did you mean tower?"),
        (["--fail", "tower@-3"], "no DEVICE@TIME"),
        (["--fail", "tower"], "no DEVICE@TIME"),
        (["--fail", "tower@9", "--recover", "tower@3"], "has not failed at that time"),
        (["--recover", "tower@3"], "does not fail"),
        (["--fail", "tower@3", "--fail", "tower@5"], "gone since 3 s"),
        (["--fail", "tower@3", "--load-gb-s", "0"], "no positive number"),
    ],
)
def test_failures_that_make_no_sense(
    lab: str, plan: str, run: Run, arguments: list[str], words: str
) -> None:
    result = run("simulate", plan, lab, "--requests", "9", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
