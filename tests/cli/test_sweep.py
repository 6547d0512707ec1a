"""``sweep`` on the command line: what is printed, and the exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.cli.sweep import _progress
from e2llm_opt.sweep import sweep as module
from e2llm_opt.sweep.sweep import SweepProgress
from tests.workers.tasks import quick_answer

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(lab: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with lab.yaml, in which commands run and answer without planning."""
    path = Path(lab).parent
    monkeypatch.chdir(path)
    monkeypatch.setattr(module, "answer", quick_answer)
    return path


def test_the_counts_and_few_rows_are_printed(folder: Path, run: Run) -> None:
    (folder / "s.yaml").write_text("inventories: [lab.yaml]\nrates_per_s: [0.1, 0.2]\n")
    done = run("sweep", "s.yaml", "-o", "r.csv", "--workers", "1")
    assert done.exit_code == 0
    assert done.stdout.startswith("2 rows in r.csv: 2 planned\n")
    assert "llama-3.1-8b" in done.stdout
    assert run("sweep", "s.yaml", "-o", "r.csv", "-q").stdout == ""


def test_a_failed_row_is_said_and_the_exit_code_is_2(folder: Path, run: Run) -> None:
    (folder / "s.yaml").write_text(
        "rows:\n  - {inventory: lab.yaml}\n  - {inventory: lab.yaml, model: lama-3.1-8b}\n"
    )
    done = run("sweep", "s.yaml", "-o", "r.csv", "--workers", "1")
    assert done.exit_code == 2
    assert "2 rows in r.csv: 1 failed, 1 planned" in done.stdout
    assert done.stderr.startswith("row 2: s.yaml:3: model: unknown model 'lama-3.1-8b'; did you")
    assert len((folder / "r.csv").read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--workers", "2", "--dask", "tcp://a:1"), "give --workers or --dask, not both"),
        (("--workers", "0"), "0 is not in the range"),
        (("-o", "r.txt"), "no format for a table"),
        (("--dask", "nonsense"), "'nonsense' is no address of a Dask scheduler"),
    ],
)
def test_bad_usage_is_exit_2(folder: Path, run: Run, options: tuple[str, ...], words: str) -> None:
    (folder / "s.yaml").write_text("inventories: [lab.yaml]\n")
    done = run("sweep", "s.yaml", "-o", "r.csv", *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (folder / "r.csv").exists()


def test_ctrl_c_says_how_to_go_on(lab: str) -> None:
    """A real process that is interrupted while its first row is planned."""
    folder = Path(lab).parent
    (folder / "s.yaml").write_text("inventories: [lab.yaml]\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "e2llm_opt", "sweep", "s.yaml", "-o", "r.csv", "--workers", "1"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        journal = folder / "r.csv.journal"
        for _ in range(200):
            if journal.exists() and journal.stat().st_size:
                break
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert output == ""
    assert errors == (
        "Interrupted: 0 of 1 rows are done and kept beside r.csv; "
        "the same command goes on from there.\n"
    )


class _Line:
    said = ""

    def say(self, doing: str) -> None:
        self.said = doing


def test_the_line_says_how_far_it_is() -> None:
    line = _Line()
    last: list[SweepProgress] = []
    breaths: list[int] = []
    tell = _progress(line, lambda: breaths.append(1), last)  # type: ignore[arg-type]
    state = SweepProgress(rows=100, done=12, resumed=3, failed=1, workers=2)
    tell(state)
    assert line.said == (
        "row 12 of 100, 3 of an earlier run, 1 failed | 2 workers | Ctrl-C keeps what is done"
    )
    assert last == [state]
    assert breaths == [1]
