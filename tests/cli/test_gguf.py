"""From a ``.gguf`` to a plan and back through ``check``, by the commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.model.gguf_samples import dense, mixture

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Run

LAB = """\
devices:
  - {name: tower, type: rtx-3060-12gb}
  - {name: laptop, type: apple-m1, memory_gib: 16}
links:
  - {between: [tower, laptop], bandwidth_mbit_s: 940, latency_ms: 0.2}
model: m.gguf
constraints: {replicas: 1, use_all_devices: true}
workload: {rate_per_s: 0.1, prompt_tokens: 500, output_tokens: 200}
"""


def test_a_plan_holds_the_bytes_of_the_file(tmp_path: Path, run: Run) -> None:
    dense().write(tmp_path / "m.gguf")
    inventory, plan = tmp_path / "lab.yaml", tmp_path / "plan.json"
    inventory.write_text(LAB, encoding="utf-8")
    assert run("plan", str(inventory), "-q", "-o", str(plan)).exit_code == 0
    found = json.loads(plan.read_text(encoding="utf-8"))
    assert found["problem"]["options"]["weights"] == "q4_k_m"
    assert found["problem"]["model"]["name"] == "Small Llama"
    (replica,) = found["replicas"]
    held = sum(stage["memory_bytes"]["weights"] for stage in replica["stages"])
    layers = 1720320 + 2 * 1585152
    assert held == layers + 288000 + 422176
    assert run("check", str(plan), str(inventory)).exit_code == 0


def test_the_model_of_the_command_line_wins(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixture().write(tmp_path / "other.gguf")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.yaml").write_text(LAB, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = run("plan", "lab/lab.yaml", "--json", "--model", "other.gguf")
    problem = json.loads(result.stdout)["problem"]
    assert problem["options"]["weights"] == "gguf"
    assert problem["model"]["layer_routed_fraction"] == [0.0, 0.25]


def test_a_damaged_file_is_exit_2_and_one_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    inventory = tmp_path / "lab.yaml"
    inventory.write_text(LAB, encoding="utf-8")
    result = run("plan", str(inventory))
    assert result.exit_code == 2
    assert "lab.yaml:6: model: m.gguf: cut off: ends after 4 bytes" in result.stderr
    assert "Traceback" not in result.output
