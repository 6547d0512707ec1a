"""Runs of numbered names are shortened, nothing else is."""

from __future__ import annotations

import pytest

from e2llm_opt.report.names import listed


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["tower"], "tower"),
        (["pi-1", "pi-2"], "pi-1, pi-2"),
        (["pi-1", "pi-2", "pi-3", "tower"], "pi-1 to pi-3, tower"),
        (["pi-1", "pi-3", "pi-4", "pi-5"], "pi-1, pi-3 to pi-5"),
        (["pi-9", "pi-10", "pi-11"], "pi-9 to pi-11"),
        (["a-1", "b-2", "a-3"], "a-1, b-2, a-3"),
        (["a-01", "a-02", "a-03"], "a-01, a-02, a-03"),
        (["1", "2", "3"], "1, 2, 3"),
    ],
)
def test_runs_are_shortened(names: list[str], text: str) -> None:
    assert listed(names) == text
