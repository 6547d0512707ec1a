"""Options of the command line win over the file, and say the same as the file would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest

from e2llm_opt.cli.problem import _OPTIONS, overrides, problem_options

if TYPE_CHECKING:
    from tests.cli.conftest import Planner, Run
NOTHING: dict[str, Any] = dict.fromkeys(_OPTIONS)


def test_every_option_has_a_place_in_the_file() -> None:
    command = click.command()(problem_options(lambda **_: None))
    assert [option.name for option in command.params] == list(_OPTIONS)


def test_options_are_nested_like_the_file() -> None:
    given = {**NOTHING, "model": "m", "rate": 0.0, "ttft": 3.0, "exclude": ("a", "b"), "roles": "x"}
    assert overrides(given) == {
        "model": "m",
        "constraints": {"roles": "x", "exclude": ["a", "b"]},
        "workload": {"rate_per_s": 0.0, "slo": {"ttft_s": 3.0}},
    }


def test_options_that_were_not_given_override_nothing() -> None:
    assert overrides({**NOTHING, "exclude": ()}) == {}


def test_all_options_reach_the_problem(lab: str, run: Run, planner: Planner) -> None:
    result = run(
        *("plan", lab, "--model", "llama-3.2-3b", "--weights", "q8_0", "--kv-cache", "q8_0"),
        *("--runtime", "vllm", "--objective", "latency", "--roles", "disaggregated"),
        *("--replicas", "2", "--use-all-devices", "--rate", "2", "--prompt-tokens", "300"),
        *("--output-tokens", "40", "--context-tokens", "2048", "--slots", "3"),
        *("--min-tokens-per-s", "5", "--ttft", "4", "--tpot", "0.2"),
    )
    assert result.exit_code == 0, result.output
    problem = planner.problems[0]
    workload, constraints = problem.workload, problem.constraints
    assert (problem.facts.num_hidden_layers, problem.weights, problem.kv_cache) == (
        *(28, "q8_0", "q8_0"),
    )
    assert (problem.runtime.name, problem.objective) == ("vllm", "latency")
    assert (constraints.roles, constraints.replicas) == ("disaggregated", 2)
    assert constraints.use_all_devices
    assert (workload.prompt.mean, workload.output.mean, workload.rate_per_s) == (300, 40, 2)
    assert (workload.context_tokens, workload.slots, workload.min_tokens_per_s) == (2048, 3, 5)
    assert (workload.slo_ttft_s, workload.slo_tpot_s) == (4, 0.2)


def test_devices_can_be_excluded(lab: str, run: Run, planner: Planner) -> None:
    run("plan", lab, "--exclude", "laptop")
    assert planner.problems[0].constraints.exclude == ("laptop",)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--rate", "-1"),
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--rate", "much"),
        ("--slots", "0"),
        ("--slots", "2.5"),
        ("--replicas", "-3"),
        ("--context-tokens", "0"),
        ("--prompt-tokens", "0"),
        ("--output-tokens", "-5"),
        ("--min-tokens-per-s", "-0.1"),
        ("--ttft", "0"),
        ("--tpot", "nan"),
        ("--time-limit", "0"),
        ("--time-limit", "nan"),
        ("--max-evaluations", "0"),
        ("--seed", "-1"),
        ("--method", "magic"),
    ],
)
def test_an_impossible_number_is_a_usage_error_naming_the_option(
    lab: str, run: Run, planner: Planner, option: str, value: str
) -> None:
    result = run("plan", lab, option, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr
    assert not planner.problems


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--model", "lama-3.1-8b", "llama-3.1-8b"),
        ("--weights", "q4_k_x", "q4_k_m"),
        ("--runtime", "vlm", "vllm"),
        ("--objective", "wating_time", "waiting_time"),
        ("--roles", "both", "mixed"),
        ("--exclude", "towr", "tower"),
        ("--rate", "1e300", "rate_per_s"),
    ],
)
def test_a_misspelt_word_is_refused_with_the_right_one(
    lab: str, run: Run, planner: Planner, option: str, value: str, words: str
) -> None:
    result = run("plan", lab, option, value)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not planner.problems
