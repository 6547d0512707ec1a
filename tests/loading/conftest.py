"""A small valid file, and what loading a variant of it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.loading.load import load_problem

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD = """\
devices:
  - {name: tower, type: rtx-3060-12gb}
  - {name: pi, type: raspberry-pi-5-8gb, count: 2}
links:
  - {between: [tower, pi-1, pi-2], via: lan, bandwidth_mbit_s: 940, latency_ms: 0.2}
model: llama-3.2-1b
weights: q8_0
workload: {prompt_tokens: 100, output_tokens: 50}
"""


@pytest.fixture
def good() -> str:
    return GOOD


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a file and return its name; the test runs in its folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> str:
        Path("lab.yaml").write_text(text, encoding="utf-8")
        return "lab.yaml"

    return written


@pytest.fixture
def said(write: Callable[[str], str]) -> Callable[[str], list[str]]:
    """Return the lines of the error that loading a text raises."""

    def lines(text: str) -> list[str]:
        with pytest.raises(InputError) as caught:
            load_problem(write(text))
        return [str(fault) for fault in caught.value.faults]

    return lines
