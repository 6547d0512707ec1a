"""``e2llm-opt predict``: devices by type or from a file, one by one or as a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2llm_opt import device_of_type, model_facts, predict, runtime
from e2llm_opt.predict.predict import linked

if TYPE_CHECKING:
    from tests.cli.conftest import Run

LLAMA = ("--model", "llama-3.1-8b", "--weights", "q4_k_m")
PAIR = ("--device", "rtx-3060-12gb", "--device", "rtx-3060-12gb")


def predictions(run: Run, *arguments: str) -> list[dict[str, Any]]:
    result = run("predict", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document) == ["predictions"]
    found: list[dict[str, Any]] = document["predictions"]
    return found


def test_json_is_what_python_predicts(run: Run) -> None:
    given = ("--batch", "4", "--context", "2048", "--prompt", "1000", "--runtime", "vllm")
    (found,) = predictions(run, "--device", "rtx-4090", *LLAMA, *given)
    answer = predict(
        [device_of_type("rtx-4090", name="rtx-4090")],
        model_facts("llama-3.1-8b"),
        runtime("vllm"),
        "q4_k_m",
        batch=4,
        context=2048,
        prompt=1000,
    )
    assert found == json.loads(answer.to_json())


def test_a_pipeline_is_linked_as_asked(run: Run) -> None:
    cards = [device_of_type("rtx-3060-12gb", name=name) for name in "ab"]
    slow = linked(cards, bandwidth_bytes_per_s=12.5e6, latency_s=1e-3)
    for links, options in (
        (linked(cards), ()),
        (slow, ("--bandwidth-mbit", "100", "--latency-ms", "1")),
    ):
        asked = ("--pipeline", "--layers", "20,12", *options)
        (found,) = predictions(run, *PAIR, *LLAMA, *asked)
        answer = predict(
            links, model_facts("llama-3.1-8b"), runtime("generic"), "q4_k_m", layers=(20, 12)
        )
        assert found["decode"]["seconds"] == pytest.approx(answer.decode.seconds)
        assert found["prefill"]["seconds"] == pytest.approx(answer.prefill.seconds)
        assert [stage["layers"] for stage in found["stages"]] == [[0, 20], [20, 32]]
        assert [stage["device"] for stage in found["stages"]] == [
            "rtx-3060-12gb",
            "rtx-3060-12gb-2",
        ]


def test_several_devices_without_pipeline_are_predicted_one_by_one(run: Run) -> None:
    found = predictions(run, "--device", "rtx-3060", "--device", "apple-m4", *LLAMA)
    assert [one["stages"][0]["device"] for one in found] == ["rtx-3060", "apple-m4"]
    assert found[0]["decode"]["tokens_per_s"] > found[1]["decode"]["tokens_per_s"]


def test_an_inventory_gives_devices_links_model_and_engine(run: Run, lab: str) -> None:
    (tower,) = predictions(run, "--inventory", lab, "--device", "tower")
    assert (tower["model"], tower["weights"]) == ("llama-3.1-8b", "q4_k_m")
    assert tower["stages"][0]["device"] == "tower"
    assert len(predictions(run, "--inventory", lab)) == 2
    (both,) = predictions(run, "--inventory", lab, "--pipeline", "--layers", "20,12")
    assert [stage["device"] for stage in both["stages"]] == ["tower", "laptop"]
    (other,) = predictions(run, "--inventory", lab, "--device", "tower", "--weights", "q8_0")
    assert other["need_bytes"] > tower["need_bytes"]


def test_an_inventory_needs_no_workload_and_its_wishes_do_not_count(
    run: Run, lab: str, tmp_path: Path
) -> None:
    lines = Path(lab).read_text(encoding="utf-8").splitlines()
    bare = tmp_path / "bare.yaml"
    bare.write_text("\n".join(lines[:-1]), encoding="utf-8")
    wishes = tmp_path / "wishes.yaml"
    wishes.write_text(
        "\n".join([*lines, "constraints: {exclude: [tower], roles: disaggregated}"]),
        encoding="utf-8",
    )
    (plain,) = predictions(run, "--inventory", lab, "--device", "tower", "--runtime", "exo")
    for path in (bare, wishes):
        asked = ("--inventory", str(path), "--device", "tower", "--runtime", "exo")
        assert predictions(run, *asked) == [plain]


def test_the_report_says_speed_cause_and_memory(run: Run) -> None:
    report = run("predict", "--device", "rtx-4090", *LLAMA).stdout
    assert "llama-3.1-8b q4_k_m on rtx-4090, runtime generic" in report
    decode = next(line for line in report.splitlines() if line.strip().startswith("decode"))
    assert "ms a token" in decode
    assert "bandwidth" in decode
    assert "5.2/23.5" in report
    assert "Warnings" not in report


def test_what_does_not_fit_is_a_warning_and_no_failure(run: Run) -> None:
    result = run("predict", "--device", "rtx-3060-12gb", "--model", "llama-3.3-70b")
    assert result.exit_code == 0
    assert "does not fit: rtx-3060-12gb needs 13" in " ".join(result.stdout.split())
    (found,) = predictions(run, "--device", "rtx-3060-12gb", "--model", "llama-3.3-70b")
    assert found["fits"] is False
    assert found["need_bytes"] > found["have_bytes"]
    assert len(found["warnings"]) == 1


def test_many_devices_are_a_table(run: Run) -> None:
    report = run("predict", "--device", "rtx-3060", "--device", "rpi5", *LLAMA).stdout
    rows = [line.split() for line in report.splitlines() if line.startswith(("rtx-3060", "rpi5"))]
    assert [(row[0], row[3], row[6]) for row in rows] == [
        ("rtx-3060", "compute", "bandwidth"),
        ("rpi5", "compute", "bandwidth"),
    ]
    assert all(row[i].startswith("±") for row in rows for i in (2, 5))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--device", "rtx-4099", *LLAMA), "unknown device 'rtx-4099'; did you mean rtx-4090"),
        (("--device", "rtx-4090", "--model", "lama-3.1-8b"), "did you mean llama-3.1-8b"),
        (("--device", "rtx-4090", *LLAMA[:2], "--weights", "q4km2"), "unknown weight format"),
        (("--device", "rtx-4090", *LLAMA, "--runtime", "vlm"), "did you mean vllm"),
        (("--device", "rtx-4090", *LLAMA, "--kv-cache", "q6_k"), "unknown KV cache format"),
        (LLAMA, "Name a device with --device"),
        (("--device", "rtx-4090"), "Missing option '--model'"),
        ((*PAIR, *LLAMA, "--layers", "20,12"), "--layers needs --pipeline"),
        ((*PAIR, *LLAMA, "--latency-ms", "1"), "--latency-ms needs --pipeline"),
        ((*PAIR, *LLAMA, "--pipeline", "--layers", "20,x"), "not a list of numbers"),
        ((*PAIR, *LLAMA, "--pipeline", "--layers", "20,13"), "sum to 32, got 20, 13"),
        ((*PAIR, *LLAMA, "--batch", "65"), "batch must be 1 to 64"),
        ((*PAIR, *LLAMA, "--bandwidth-mbit", "nan", "--pipeline"), "not a finite number"),
    ],
)
def test_bad_input_is_refused_with_what_would_be_right(
    arguments: tuple[str, ...], says: str, run: Run
) -> None:
    result = run("predict", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--device", "towr"), "no device is called 'towr'; did you mean tower?"),
        (("--device", "zzz"), "no device is called 'zzz'; the inventory has tower, laptop"),
        (("--device", "tower", "--device", "tower"), "named twice"),
        (("--pipeline", "--latency-ms", "1"), "the links are those of --inventory"),
    ],
)
def test_bad_input_beside_an_inventory(
    arguments: tuple[str, ...], says: str, run: Run, lab: str
) -> None:
    result = run("predict", "--inventory", lab, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
