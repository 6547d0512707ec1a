"""A long simulation in steps, so that it can be ended with something to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.workload.trace import Trace

_FIRST = 200_000
"""Requests that are simulated at once; they take a fraction of a second."""


def simulate_prefixes(
    simulate: Callable[[Trace], Simulation], arrivals: Trace, breathe: Callable[[int], None]
) -> Simulation:
    """Simulate the first *arrivals*, twice as many each time, until all of them are done.

    Compiled code cannot be interrupted. Runs of the first requests can be, between each other,
    and in all they take twice the time of one run at most.

    Parameters
    ----------
    simulate
        Runs some arrivals.
    arrivals
        All of them.
    breathe
        Called before each run with its number of requests; where it raises KeyboardInterrupt, the
        last run is the answer.

    Raises
    ------
    KeyboardInterrupt
        When interrupted before the end of the first run.
    """
    done: Simulation | None = None
    num = min(_FIRST, arrivals.num_requests)
    while True:
        try:
            breathe(num)
            done = simulate(arrivals.first(num))
            breathe(num)
        except KeyboardInterrupt:
            if done is None:
                raise
            return done
        if num == arrivals.num_requests:
            return done
        num = min(2 * num, arrivals.num_requests)
