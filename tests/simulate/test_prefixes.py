"""Long simulations in steps: the last one is the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2llm_opt.simulate import prefixes
from e2llm_opt.simulate.prefixes import simulate_prefixes
from tests.simulate.small import trace

if TYPE_CHECKING:
    from e2llm_opt.workload.trace import Trace

REQUESTS = trace(*((float(i), 10, 10) for i in range(100)))


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "_FIRST", 30)


def run(interrupted_at: int = 0) -> tuple[list[int], Any]:
    """Return the lengths that were simulated, and the answer; a run answers its length."""
    done: list[int] = []

    def simulate(first: Trace) -> Any:
        done.append(first.num_requests)
        return first.num_requests

    def breathe(num: int) -> None:
        if num == interrupted_at:
            raise KeyboardInterrupt

    return done, simulate_prefixes(simulate, REQUESTS, breathe)


def test_all_requests_are_simulated_in_the_end() -> None:
    assert run() == ([30, 60, 100], 100)


def test_ctrl_c_keeps_what_was_simulated() -> None:
    assert run(interrupted_at=100) == ([30, 60], 60)


def test_ctrl_c_before_anything_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(interrupted_at=30)
