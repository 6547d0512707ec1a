"""Bad input from end to end: a clear line and exit code 2, and nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import LAB

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
BOMB = "\n".join(
    ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
)
BAD_FILES = {
    "missing devices": (LAB[LAB.index("links:") :], "devices: missing"),
    "missing model": (LAB.replace("model: llama-3.1-8b\n", ""), "model: missing"),
    "missing workload": (LAB[: LAB.index("workload")], "workload.prompt_tokens: missing"),
    "missing key of a device": (
        LAB.replace(", type: rtx-3060-12gb", ""),
        ":2: devices[0].memory_gib: missing",
    ),
    "unknown key": (f"{LAB}modle: x\n", ":9: modle: unknown key; did you mean model?"),
    "unknown key of a device": (
        LAB.replace("memory_gib", "memory_gb"),
        ":3: devices[1].memory_gb: unknown key; did you mean memory_gib?",
    ),
    "duplicate key": (f"{LAB}model: phi-4\n", ":9: model: "),
    "duplicate name": (
        LAB.replace("name: laptop", "name: tower"),
        ":3: devices[1].name: the name 'tower' is taken by devices[0] on line 2",
    ),
    "duplicate card": (
        LAB.replace("type: ", "uuid: GPU-1, type: "),
        ":3: devices[1].uuid: uuid GPU-1 is listed by devices[0] on line 2 already",
    ),
    "text for a number": (
        LAB.replace("memory_gib: 16", "memory_gib: 16 GB"),
        ":3: devices[1].memory_gib: must be a number",
    ),
    "a list for a mapping": (
        LAB.replace("{rate_per_s: 0.1, prompt_tokens: 500, output_tokens: 200}", "[1]"),
        ":8: workload: must be a mapping",
    ),
    "a mapping for a list": ("devices: {name: a}\n", ":1: devices: "),
    "NaN": (LAB.replace("940", ".nan"), ":5: links[0].bandwidth_mbit_s: must be a finite number"),
    "infinity": (LAB.replace("0.2}", ".inf}"), ":5: links[0].latency_ms: must be a finite number"),
    "a negative number": (
        LAB.replace("rate_per_s: 0.1", "rate_per_s: -1"),
        ":8: workload.rate_per_s: must be at least 0",
    ),
    "zero": (
        LAB.replace("memory_gib: 16", "memory_gib: 0"),
        ":3: devices[1].memory_gib: must be positive",
    ),
    "a huge number": (
        LAB.replace("memory_gib: 16", "memory_gib: 1e300"),
        ":3: devices[1].memory_gib: must be at most 100000",
    ),
    "a number of many digits": (
        LAB.replace("memory_gib: 16", f"memory_gib: {'9' * 5000}"),
        ":3: devices[1].memory_gib: must be a finite number",
    ),
    "unknown device": (
        LAB.replace("rtx-3060-12gb", "rtx-3060-12bg"),
        "unknown device 'rtx-3060-12bg'; did you mean rtx-3060-12gb",
    ),
    "unknown model": (
        LAB.replace("llama-3.1-8b", "lama-3.1-8b"),
        "unknown model 'lama-3.1-8b'; did you mean llama-3.1-8b",
    ),
    "link to nowhere": (
        LAB.replace("[tower, laptop]", "[tower, labtop]"),
        "'labtop' is no device and no host, and only this link leads to it",
    ),
    "missing config.json": (
        LAB.replace("model: llama-3.1-8b", "model: absent/config.json"),
        "model: config.json: cannot be read: no such file or directory",
    ),
    "missing trace": (
        LAB.replace("prompt_tokens: 500, output_tokens: 200", "trace: absent.csv"),
        "absent.csv: cannot be read: no such file or directory",
    ),
    "empty": ("", ": the file is empty"),
    "only a comment": ("# devices:\n", ": the file is empty"),
    "not YAML": ("devices: [\n", "not valid YAML"),
    "a list": ("- tower\n", "the file is not a mapping"),
    "a tag": (
        f"{LAB}kv_cache: !!python/object/apply:os.system [echo]\n",
        "YAML tags are not allowed",
    ),
    "an anchor bomb": (BOMB, "values, aliases followed"),
    "an anchor of itself": ("devices: &a [*a]\n", "the alias *a contains itself"),
    "deep nesting": (f"devices: {'[' * 200}\n", "nested more than"),
}


def refused(run: Run, *arguments: str) -> str:
    """Return the complaint of a run that must end with exit code 2 and print nothing else."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip()
    return result.stderr


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_exit_2_and_leaves_the_output_alone(
    name: str, run: Run, tmp_path: Path
) -> None:
    text, message = BAD_FILES[name]
    path, output = tmp_path / "bad.yaml", tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    output.write_text("an older plan", encoding="utf-8")
    said = refused(run, "plan", str(path), "-o", str(output))
    assert message in said
    assert all(line.startswith(f"{path}:") for line in said.splitlines())
    assert output.read_text() == "an older plan"
    assert sorted(tmp_path.iterdir()) == [path, output]


@pytest.mark.parametrize("name", BAD_FILES)
def test_checking_a_plan_against_a_bad_file_says_the_same(
    name: str, run: Run, tmp_path: Path
) -> None:
    text, message = BAD_FILES[name]
    path, plan = tmp_path / "bad.yaml", tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    plan.write_text('{"replicas": []}')
    assert message in refused(run, "check", str(plan), str(path))


@pytest.mark.parametrize("command", ["plan", "check"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.yaml", "no such file or directory"),
        ("folder", "is a directory"),
        ("binary.yaml", "not a text file"),
        ("binary.yaml/below.yaml", "not a directory"),
        ("n" * 300, "file name too long"),
    ],
)
def test_a_path_that_cannot_be_read_is_exit_2(
    command: str, name: str, message: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    plan = tmp_path / "plan.json"
    plan.write_text('{"replicas": []}')
    arguments = (str(plan),) if command == "check" else ()
    assert message in refused(run, command, *arguments, str(tmp_path / name))


def without_permission(path: Path) -> None:
    """Take all permissions away; skip where this user needs none."""
    path.chmod(0)
    if os.access(path, os.R_OK | os.W_OK):
        path.chmod(0o700)
        pytest.skip("this user may read and write everything")


def test_an_unreadable_inventory_is_exit_2(lab: str, run: Run) -> None:
    without_permission(Path(lab))
    assert "permission denied" in refused(run, "plan", lab)


def test_a_folder_without_permission_is_exit_2(lab: str, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    without_permission(folder)
    said = refused(run, "plan", lab, "-o", str(folder / "plan.json"))
    folder.chmod(0o700)
    assert "cannot be written: permission denied" in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "is a directory"),
        ("absent/plan.json", "no such file or directory"),
        ("lab.yaml/plan.json", "cannot be written"),
        ("n" * 300, "file name too long"),
    ],
)
def test_an_output_that_cannot_be_written_is_exit_2_and_leaves_nothing(
    output: str, message: str, lab: str, run: Run, tmp_path: Path
) -> None:
    assert message in refused(run, "plan", lab, "-o", f"{tmp_path}/{output}")
    assert list(tmp_path.iterdir()) == [Path(lab)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_exit_2(lab: str, run: Run) -> None:
    assert "cannot be written: no space left" in refused(run, "plan", lab, "-q", "-o", "/dev/full")


@pytest.mark.parametrize(
    "content",
    [
        '{"replicas": [{"role": "MIXED", "stages": [{"device": "tower", "layers": [0, 3',
        '{"replicas": [], "replicas": []}',
        '{"replicas": [{"role": "BOTH", "stages": [{"device": "tower", "layers": [0, 32]}]}]}',
        '{"replicas": [{"role": "MIXED", "stages": [{"device": "tower", "layers": [0]}]}]}',
        '{"replicas": [{"role": "MIXED", "stages": [{"device": "tower", "layers": [0, 1e999]}]}]}',
        '{"replicas": [{"role": "MIXED", "stages": [{"device": "tower", "layers": [9, 3]}]}]}',
        '{"replicas": [{"role": "MIXED", "stages": [{"device": 5, "layers": [0, 32]}]}]}',
        '{"replicas": [{"role": "MIXED", "stages": [{"device": "tower"}]}]}',
        '{"replicas": [{"stages": [{"device": "tower", "layers": [0, 32]}]}]}',
        '{"schema": "e2llm-opt/infeasible/v1", "reason": "not enough memory"}',
        '{"replicas": ' + "[" * 100_000,
    ],
)
def test_a_plan_that_is_none_is_exit_2_naming_its_file(
    content: str, lab: str, run: Run, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(content)
    said = refused(run, "check", str(plan), lab)
    assert all(line.startswith(f"{plan}:") for line in said.splitlines())


@pytest.mark.parametrize("name", ["not YAML", "a tag", "unknown device", "an anchor bomb"])
def test_no_traceback_is_shown_by_the_program_itself(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD_FILES[name][0], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "e2llm_opt", "plan", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert BAD_FILES[name][1] in done.stderr


def test_a_plan_of_another_inventory_is_exit_3(lab: str, run: Run, tmp_path: Path) -> None:
    plan, other = tmp_path / "plan.json", tmp_path / "other.yaml"
    assert run("plan", lab, "-q", "-o", str(plan)).exit_code == 0
    assert run("check", str(plan), lab).exit_code == 0
    other.write_text(LAB.replace("memory_gib: 16", "memory_gib: 24"), encoding="utf-8")
    result = run("check", str(plan), str(other), "--json")
    assert result.exit_code == 3
    assert any("inventory" in v["what"] for v in json.loads(result.stdout)["violations"])


def test_a_plan_of_unknown_devices_is_exit_3_naming_them(
    lab: str, run: Run, tmp_path: Path
) -> None:
    plan, other = tmp_path / "plan.json", tmp_path / "other.yaml"
    assert run("plan", lab, "-q", "-o", str(plan)).exit_code == 0
    other.write_text(LAB.replace("tower", "desk"), encoding="utf-8")
    result = run("check", str(plan), str(other), "--json")
    assert result.exit_code == 3
    devices = {violation["device"] for violation in json.loads(result.stdout)["violations"]}
    assert "tower" in devices
