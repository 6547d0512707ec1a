"""Every code block of the documents is run, loaded or read; what cannot be is marked and counted.

A block that is not run has a line ``<!-- not run: why -->`` above it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import e2llm_opt
from e2llm_opt import Problem
from e2llm_opt.loading.sweep_file import SweepFile

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = {"README.md": 1, "CONTRIBUTING.md": 1, "many-machines.md": 2}
"""Blocks that are not run, by page: they only call make, or start a cluster."""
RUNNERS = {"python", "yaml", "json", "sh", "console", "text"}
_BLOCK = re.compile(
    r"(?P<above>^<!--[^\n]*-->\n\n)?^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_WHY = re.compile(r"<!-- not run: .{10,} -->")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: str
    number: int
    language: str
    text: str
    above: str

    @property
    def is_run(self) -> bool:
        return _WHY.search(self.above) is None

    @property
    def is_output(self) -> bool:
        return self.above.startswith("<!-- output -->")


def blocks_of(page: Path) -> list[Block]:
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [
        Block(
            page=page.name,
            number=number,
            language=match["language"],
            text=match["text"],
            above=match["above"] or "",
        )
        for number, match in enumerate(found, start=1)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def run_in(*languages: str) -> list[object]:
    return [
        pytest.param(block, id=f"{block.page}-{block.number}")
        for block in BLOCKS
        if block.language in languages and block.is_run
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder as a reader has it: with the examples, and a home to write to."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name in ("local/share/bash-completion/completions", "config/fish/completions"):
        (tmp_path / "home" / f".{name}").mkdir(parents=True)
    program = tmp_path / "home" / "e2llm-opt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m e2llm_opt "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


def test_every_fence_is_seen() -> None:
    for page in PAGES:
        fences = re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.MULTILINE)
        num_blocks = len([block for block in BLOCKS if block.page == page.name])
        assert len(fences) == 2 * num_blocks, f"{page.name}: a fence is indented or not closed"


def test_every_block_is_of_a_kind_that_is_run() -> None:
    for block in BLOCKS:
        where = f"{block.page}, block {block.number}"
        assert block.language in RUNNERS, f"{where}: say what it is: {sorted(RUNNERS)}"
        is_accounted_for = block.language != "text" or block.is_output or not block.is_run
        assert is_accounted_for, f"{where}: output is recorded by make docs"


def test_blocks_that_are_not_run_are_few_and_counted() -> None:
    marked = [block.page for block in BLOCKS if not block.is_run]
    assert {page: marked.count(page) for page in marked} == NOT_RUN
    for block in BLOCKS:
        if not block.is_run:
            assert "e2llm-opt" not in block.text, "commands of the package can be run"


@pytest.mark.parametrize("block", run_in("python"))
def test_python_blocks_run(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    exec(compile(block.text, block.page, "exec"), {"__name__": "documentation"})  # noqa: S102


@pytest.mark.parametrize("block", run_in("yaml"))
def test_inventories_load_and_parts_of_them_fit_into_one(block: Block, folder: Path) -> None:
    given = yaml.safe_load(block.text)
    assert isinstance(given, dict), "show at least the key that the lines belong to"
    if "inventories" in given:
        path = folder / "sweep.yaml"
        path.write_text(block.text, encoding="utf-8")
        sweep = SweepFile(path)
        assert all(sweep.problem(scenario).devices for scenario in sweep.scenarios)
    elif "devices" in given:
        path = folder / "inventory.yaml"
        path.write_text(block.text, encoding="utf-8")
        assert Problem.load(path).devices
    else:
        assert Problem.load(folder / "examples" / "homelab.yaml", **given).devices


@pytest.mark.parametrize("block", run_in("json"))
def test_json_is_json_and_plans_written_by_hand_are_valid(block: Block) -> None:
    document = json.loads(block.text)
    if "replicas" in document:
        devices = {s["device"] for replica in document["replicas"] for s in replica["stages"]}
        problems = map(Problem.load, sorted((ROOT / "examples").glob("*.yaml")))
        fitting = [p for p in problems if devices <= {device.name for device in p.devices}]
        assert fitting, f"no example has {devices}"
        assert any(e2llm_opt.check(document, problem).valid for problem in fitting)


PAGES_WITH_COMMANDS = sorted(
    {block.page for block in BLOCKS if block.language in {"sh", "console"} and block.is_run}
)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_the_commands_of_a_page_run_one_after_the_other(page: str, folder: Path) -> None:
    """In one folder, so that what one writes the next can read; 3 is an answer too."""
    lines = [
        line.removeprefix("$ ")
        for block in BLOCKS
        if block.page == page and block.language in {"sh", "console"} and block.is_run
        for line in block.text.splitlines()
    ]
    script = "\n".join(
        f"{line} || test $? = 3" if line.startswith("e2llm-opt ") and "|" not in line else line
        for line in lines
        if not line.startswith("e2llm-opt COMMAND")
    )
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", f'fpath=(. "$HOME")\n{script}'],
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(folder / "home"),
            "PATH": f"{folder / 'home'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stderr}"
    assert len(lines) == script.count("\n") + 1


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.is_output for b in blocks_of(page))], ids=str
)
def test_recorded_output_is_what_the_command_prints(page: Path) -> None:
    spec = importlib.util.spec_from_file_location("record", ROOT / "docs" / "record.py")
    assert spec is not None
    assert spec.loader is not None
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    text = page.read_text(encoding="utf-8")
    assert record.recorded(text) == text, "run make docs"
