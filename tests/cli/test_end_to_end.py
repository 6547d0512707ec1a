"""Whole runs of ``plan`` and ``check``: documents, exit codes, files, and equal bytes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from e2llm_opt.check.check import check
from e2llm_opt.loading.load import problem_from_mapping
from e2llm_opt.plan.plan import Plan
from e2llm_opt.solve import plan

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(files("e2llm_opt.plan").joinpath("plan.schema.json").read_text())
TOO_LARGE = ("--model", "llama-3.1-70b", "--weights", "f16")
GIB = 2**30


def program(*arguments: str, out: str | None = None, **environment: str) -> tuple[int, str, str]:
    """Run the program itself; return exit code, standard output and standard error."""
    with Path(out or os.devnull).open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [sys.executable, "-m", "e2llm_opt", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE if out is None else file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
    return done.returncode, done.stdout or "", done.stderr


def without_provenance(text: str) -> str:
    """Cut off what may differ between equal runs; it stands at the end."""
    return text[: text.index('"provenance"')]


@pytest.mark.parametrize("more", [(), ("--rate", "50"), ("--rate", "0"), ("--runtime", "vllm")])
def test_the_json_of_a_plan_obeys_the_shipped_schema(
    more: tuple[str, ...], lab: str, run: Run
) -> None:
    result = run("plan", lab, "--json", *more)
    assert (result.exit_code, result.stderr) == (0, "")
    jsonschema.validate(json.loads(result.stdout), SCHEMA)


def test_a_plan_above_capacity_has_no_waiting_time_and_says_so(lab: str, run: Run) -> None:
    document = json.loads(run("plan", lab, "--json", "--rate", "50").stdout)
    predicted = document["predicted"]
    assert predicted["stable"] is False
    assert (predicted["waiting_time_s"], predicted["ttft_s"], predicted["latency_s"]) == (
        *(None, None, None),
    )
    assert any("rate_per_s 50 is above the capacity" in line for line in document["warnings"])


def test_the_answer_is_the_same_wherever_it_is_written(lab: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert run("plan", lab, "-q", "-o", str(path)).exit_code == 0
    texts = [
        path.read_text(),
        run("plan", lab, "--json").stdout,
        run("plan", lab, "-o", "-").stdout,
    ]
    assert len({without_provenance(text) for text in texts}) == 1


def test_the_null_device_takes_a_plan_and_stays_what_it_is(lab: str, run: Run) -> None:
    result = run("plan", lab, "-q", "-o", os.devnull)
    assert (result.exit_code, result.output) == (0, "")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_equal_seeds_give_equal_bytes_in_every_process(lab: str) -> None:
    """Sets and dictionaries are ordered anew in each process, unless a seed is given."""
    ga = ("plan", lab, "--json", "--method", "ga", "--seed", "3", "--max-evaluations", "60")
    answers = [program(*ga, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert [(code, err) for code, _, err in answers] == [(0, "")] * 2
    assert without_provenance(answers[0][1]) == without_provenance(answers[1][1])
    assert '"seed": 3' in answers[0][1]


def test_no_plan_is_exit_3_with_the_whole_document(lab: str, run: Run) -> None:
    result = run("plan", lab, "--json", *TOO_LARGE)
    assert (result.exit_code, result.stderr) == (3, "")
    document = json.loads(result.stdout)
    assert list(document) == [
        *("schema", "reason", "kv_cache_bytes", "total_bytes", "devices", "shortfall_bytes"),
        "suggestions",
    ]
    assert document["schema"] == "e2llm-opt/infeasible/v1"
    assert [list(device) for device in document["devices"]] == [
        ["device", "need_bytes", "have_bytes"]
    ] * 2
    have = sum(device["have_bytes"] for device in document["devices"])
    assert document["shortfall_bytes"] == document["total_bytes"] - have > 100 * GIB
    assert "not enough memory" in document["reason"]


def test_no_plan_is_said_on_the_screen_too(lab: str, run: Run) -> None:
    result = run("plan", lab, *TOO_LARGE)
    assert (result.exit_code, result.stderr) == (3, "")
    assert "There is no plan." in result.stdout
    assert all(name in result.stdout for name in ("tower", "laptop"))


def test_no_plan_replaces_an_older_plan_by_the_reason(lab: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert run("plan", lab, "-q", "-o", str(path)).exit_code == 0
    assert run("plan", lab, "-q", "-o", str(path), *TOO_LARGE).exit_code == 3
    assert json.loads(path.read_text())["schema"] == "e2llm-opt/infeasible/v1"
    result = run("check", str(path), lab)
    assert result.exit_code == 2
    assert "plan.json" in result.stderr


def test_a_suggestion_can_be_typed_as_an_option(lab: str, run: Run) -> None:
    larger = ("--context-tokens", "1000000", "--slots", "1")
    result = run("plan", lab, "--json", *larger)
    assert result.exit_code == 3
    (tokens,) = (
        suggestion["change"].removeprefix("context_tokens: ")
        for suggestion in json.loads(result.stdout)["suggestions"]
        if suggestion["change"].startswith("context_tokens: ")
    )
    assert run("plan", lab, "-q", "--context-tokens", tokens, "--slots", "1").exit_code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [(), ("--json",), ("-o", "-")])
def test_standard_output_on_a_full_disk_is_exit_2(arguments: tuple[str, ...], lab: str) -> None:
    code, _, err = program("plan", lab, *arguments, out="/dev/full")
    assert (code, err.splitlines()) == (
        2,
        ["Error: standard output cannot be written: no space left on device"],
    )


def test_what_plan_prints_check_reads_from_a_pipe(lab: str) -> None:
    command = f"{sys.executable} -m e2llm_opt"
    done = subprocess.run(
        ["bash", "-c", f"{command} plan {lab} --json | {command} check /dev/stdin {lab}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The plan is valid")


def at_the_edge(least: float, usual: float, most: float) -> st.SearchStrategy[float]:
    """Numbers that the file format allows, the extremes often."""
    return st.sampled_from([usual, least, most])


DEVICES = st.fixed_dictionaries(
    {
        "memory_gib": at_the_edge(0.001, 8, 1e5),
        "memory_bandwidth_gb_s": at_the_edge(0.001, 100, 1e7),
        "fp16_tflops": at_the_edge(1e-6, 10, 1e6),
        "layer_overhead_us": at_the_edge(0, 15, 1e6),
        "host": st.sampled_from(["x", "y"]),
    }
)
WORKLOADS = st.fixed_dictionaries(
    {
        "prompt_tokens": at_the_edge(1, 500, 1e6),
        "output_tokens": at_the_edge(1, 200, 1e6),
        "rate_per_s": at_the_edge(0, 0.3, 1e6),
        "min_tokens_per_s": at_the_edge(0, 5, 1e6),
    }
)
LINKS = st.none() | st.fixed_dictionaries(
    {
        "between": st.just("all"),
        "bandwidth_mbit_s": at_the_edge(0.001, 940, 1e8),
        "latency_ms": at_the_edge(0, 0.3, 1e5),
    }
)
TWO_CARDS = {
    "memory_gib": 8,
    "memory_bandwidth_gb_s": 100,
    "fp16_tflops": 10,
    "layer_overhead_us": 15,
}
REQUESTS = {"prompt_tokens": 500, "output_tokens": 200, "rate_per_s": 0.3, "min_tokens_per_s": 0}


@given(
    devices=st.lists(DEVICES, min_size=1, max_size=3),
    link=LINKS,
    workload=WORKLOADS,
    roles=st.sampled_from(["auto", "mixed", "disaggregated"]),
    objective=st.sampled_from(["waiting_time", "latency", "throughput"]),
)
@example(
    devices=[{**TWO_CARDS, "host": "x"}, {**TWO_CARDS, "host": "y"}],
    link=None,
    workload=REQUESTS,
    roles="disaggregated",
    objective="waiting_time",
)
def test_every_allowed_number_gives_a_valid_plan_or_a_reason(
    devices: list[dict[str, Any]],
    link: dict[str, Any] | None,
    workload: dict[str, Any],
    roles: str,
    objective: str,
) -> None:
    problem = problem_from_mapping(
        {
            "devices": [{"name": f"d{i}", **device} for i, device in enumerate(devices)],
            # one host has nobody to be linked to
            "links": [link] if link and len({device["host"] for device in devices}) > 1 else [],
            "model": "llama-3.2-1b",
            "weights": "q4_k_m",
            "runtime": "generic",
            "workload": workload,
            "constraints": {"roles": roles},
            "objective": objective,
        }
    )
    answer = plan(problem)
    assert json.loads(answer.to_json())
    if isinstance(answer, Plan):
        assert check(answer, problem).violations == ()
