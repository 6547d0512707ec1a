"""``e2llm-opt export``: files, commands, JSON, refusals and exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.plan.json_file import dump_json
from tests.export.plans import plan, replica

if TYPE_CHECKING:
    from tests.cli.conftest import Run

TWO = (("tower", 12), ("laptop", 20))


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "plan.json"
    one = plan(replica("r0", "MIXED", TWO), weights="q4_k_m", runtime="llama.cpp")
    file.write_text(dump_json(one), encoding="utf-8")
    return str(file)


def test_a_folder_is_written_and_named(path: str, run: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    result = run("export", path, "--to", "llama.cpp", "--out", out)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"files for llama.cpp in {out}: begin with its README.md." in result.stdout
    assert "neither authentication nor encryption" in " ".join(result.stdout.split())
    assert os.access(tmp_path / "run" / "tower" / "start.sh", os.X_OK)
    again = run("export", path, "--to", "llama.cpp", "-o", out)
    assert again.exit_code == 2
    assert "exists; give another folder, or --force" in again.stderr
    assert run("export", path, "--to", "vllm", "-o", out).exit_code == 2
    quiet = run("export", path, "--to", "llama.cpp", "-o", out, "--force", "-q")
    assert (quiet.exit_code, quiet.stdout) == (0, "")


def test_without_a_folder_the_commands_are_printed(path: str, run: Run) -> None:
    result = run("export", path, "--to", "llama.cpp")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "# tower"
    assert lines[1] == "ggml-rpc-server -H tower -p 50052 -c"
    assert lines[3].startswith("llama-server -m llama-3.1-8b-q4_k_m.gguf ")


def test_json_is_files_and_commands_and_nothing_else(path: str, run: Run) -> None:
    result = run("export", path, "--to", "llama.cpp", "--json")
    answer = json.loads(result.stdout)
    assert list(answer) == ["engine", "files", "commands", "not_expressible", "warnings"]
    assert answer["not_expressible"] is None
    assert [own["device"] for own in answer["commands"]] == ["tower", "laptop"]


def test_options_reach_the_engine(path: str, run: Run) -> None:
    options = ("--address", "tower=10.0.0.2:6000", "--engine-device", "laptop=MTL0")
    model = ("--model-path", "/models/my model.gguf")
    answer = json.loads(run("export", path, "--to", "llama.cpp", *options, *model, "--json").stdout)
    worker, server = (own["argv"] for own in answer["commands"])
    assert worker[1:5] == ["-H", "10.0.0.2", "-p", "6000"]
    assert server[server.index("-dev") + 1] == "RPC0,MTL0"
    assert server[server.index("-m") + 1] == "/models/my model.gguf"


def test_what_cannot_be_expressed_is_exit_3_and_writes_nothing(
    path: str, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = run("export", path, "--to", "vllm", "--out", str(out))
    assert result.exit_code == 3
    assert not out.exists()
    assert "vllm cannot express the plan." in result.stdout
    assert "weight format: vllm loads no q4_k_m weights" in " ".join(result.stdout.split())
    answer = json.loads(run("export", path, "--to", "vllm", "--json").stdout)
    assert answer["not_expressible"].startswith("weight format: ")
    assert answer["commands"] == []


def test_the_nearest_plan_is_shown(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "dllama.json"
    file.write_text(dump_json(plan(replica("r0", "MIXED", TWO), weights="q4_0")), "utf-8")
    result = run("export", str(file), "--to", "dllama")
    assert result.exit_code == 3
    assert "equal tensor slices only" in result.stdout
    shown = result.stdout.split("nearest-plan.json:\n")[1]
    assert json.loads(shown)["replicas"][0]["stages"][0] == {"device": "tower", "layers": [0, 16]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "llama.cp"), "did you mean llama.cpp"),
        (("--to", "vlm"), "did you mean vllm"),
        (("--to", "zzz"), "known: llama.cpp, vllm, sglang"),
        ((), "Missing option '--to'"),
        (("--to", "vllm", "--address", "tower"), "is not DEVICE=HOST[:PORT]"),
        (("--to", "vllm", "--address", "tower=a b"), "is no address"),
        (("--to", "vllm", "--address", "towr=x"), "did you mean tower"),
        (("--to", "vllm", "--dynamo-api", "v2"), "v1alpha1"),
        (("--to", "vllm", "--out", "/nowhere/at/all"), "no such file or directory"),
        (("--to", "vllm", "--inventory", "missing.yaml"), "missing.yaml"),
    ],
)
def test_bad_usage_is_exit_2(path: str, run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run("export", path, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "a plan is a JSON object"),
        ('{"schema": "e2llm-opt/plan/v9", "replicas": []}', "unknown version"),
        ('{"schema": "e2llm-opt/infeasible/v1"}', "why there is no plan"),
        ('{"replicas": []}', "--inventory"),
        ('{"schema": "e2llm-opt/plan/v1", "problem": {}}', "missing"),
        ("{}", "schema"),
    ],
)
def test_what_is_no_plan_is_exit_2_with_its_file(
    text: str, said: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, encoding="utf-8")
    result = run("export", str(file), "--to", "vllm")
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith(str(file))


def test_a_plan_that_breaks_a_rule_is_exit_3_as_for_check(path: str, run: Run) -> None:
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    document["replicas"][0]["stages"][1]["layers"] = [13, 32]
    Path(path).write_text(json.dumps(document), encoding="utf-8")
    result = run("export", path, "--to", "llama.cpp")
    assert result.exit_code == 3
    assert "The plan is not valid" in result.stdout
    answer = json.loads(run("export", path, "--to", "llama.cpp", "--json").stdout)
    assert answer["valid"] is False
    assert run("export", path, "--to", "llama.cpp", "-q").stdout == ""


def test_with_an_inventory_a_plan_written_by_hand_is_checked_and_exported(
    lab: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "hand.json"

    def stages(*cuts: tuple[str, int, int]) -> None:
        entries = [{"device": name, "layers": [start, stop]} for name, start, stop in cuts]
        file.write_text(json.dumps({"replicas": [{"role": "MIXED", "stages": entries}]}))

    stages(("tower", 0, 20), ("laptop", 20, 32))
    given = ("--to", "llama.cpp", "--inventory", lab, "--runtime", "llama.cpp", "--json")
    answer = json.loads(run("export", str(file), *given).stdout)
    server = answer["commands"][1]["argv"]
    assert server[server.index("-dev") + 1] == "RPC0,MTL0", "the laptop is an Apple M1"
    assert answer["commands"][0]["argv"][-2:] == ["--device", "CUDA0"]
    stages(("tower", 0, 20), ("laptop", 21, 32))
    result = run("export", str(file), *given)
    assert result.exit_code == 3
    assert json.loads(result.stdout)["valid"] is False


def test_a_device_may_have_equals_signs_in_its_name(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(dump_json(plan(replica("r0", "MIXED", [("a=b", 8)]))), "utf-8")
    result = run("export", str(file), "--to", "vllm", "--address", "a=b=10.0.0.3", "--json")
    assert json.loads(result.stdout)["commands"][0]["argv"][4] == "10.0.0.3"


def test_terminal_codes_in_names_are_not_printed(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(dump_json(plan(replica("r0", "MIXED", [("a\x1b[31m", 8)]))), "utf-8")
    for arguments in (("--to", "vllm"), ("--to", "llama.cpp"), ("--to", "exo")):
        assert "\x1b" not in run("export", str(file), *arguments).stdout
