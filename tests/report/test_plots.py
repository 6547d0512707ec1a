"""Plots: what is drawn, and what is refused before anything is drawn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from e2llm_opt import InputError
from e2llm_opt.report.plots import binned, plot_waits, refuse_plot_file
from e2llm_opt.simulate.simulate import simulate
from tests.simulate.small import ON_DESKTOP, plan, problem, trace

if TYPE_CHECKING:
    from pathlib import Path


def test_each_stretch_of_time_has_its_mean_and_p90() -> None:
    at = np.linspace(0, 100, 1001)
    waits = np.where(at < 50, 1.0, 3.0)
    middle, mean, p90 = binned(at, waits)
    assert len(middle) == 100
    assert (middle[0], middle[-1]) == pytest.approx((0.5, 99.5))
    assert set(mean[:49]) == {1.0}
    assert set(mean[51:]) == {3.0}
    assert (p90 >= mean).all()


def test_stretches_without_arrivals_are_left_out() -> None:
    middle, mean, _ = binned(np.array([0.0, 0.1, 10.0]), np.array([1.0, 3.0, 5.0]))
    assert (len(middle), mean.tolist()) == (2, [2.0, 5.0])
    middle, mean, _ = binned(np.array([4.0]), np.array([7.0]))
    assert (middle.tolist(), mean.tolist()) == ([4.0], [7.0])


@pytest.mark.parametrize("ending", ["svg", "png", "SVG"])
@pytest.mark.parametrize("longest", [None, 20])
def test_a_plot_is_written_even_of_nothing(
    tmp_path: Path, ending: str, longest: int | None
) -> None:
    pytest.importorskip("matplotlib")
    found = plan(("MIXED", ON_DESKTOP), longest=longest)  # 20: every request is rejected
    run = simulate(found, problem(), trace((0, 100, 10), (1, 100, 10), (2, 90, 9)), warmup=1)
    path = tmp_path / f"waits.{ending}"
    plot_waits(run, path)
    start = b"\x89PNG" if ending == "png" else b"<?xml"
    assert path.read_bytes().startswith(start)


def test_equal_runs_draw_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = simulate(plan(("MIXED", ON_DESKTOP)), problem(), trace((0, 100, 10), (1, 100, 10)))
    for name in ("one.svg", "two.svg"):
        plot_waits(run, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_without_matplotlib_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'e2llm-opt\[plot\]'"):
        refuse_plot_file(tmp_path / "waits.svg")
