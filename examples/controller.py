"""A controller follows a load that changes; the simulator plays what it decides.

``python examples/controller.py`` first makes a small repertoire of plans, which takes a minute.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from e2llm_opt import (
    Caution,
    Changes,
    Controller,
    Plan,
    Problem,
    Trace,
    draw_arrivals,
    plan,
    repertoire,
    simulate,
)

REQUESTS = 300


def load_that_changes(problem: Problem) -> Trace:
    """Return requests that come thirty times as often from the middle on."""
    slow = draw_arrivals(problem.workload, REQUESTS)
    fast = draw_arrivals(replace(problem.workload, rate_per_s=1.5), REQUESTS, seed=1)
    return Trace(
        arrival_s=np.concatenate([slow.arrival_s, slow.arrival_s[-1] + fast.arrival_s]),
        prompt_tokens=np.concatenate([slow.prompt_tokens, fast.prompt_tokens]),
        output_tokens=np.concatenate([slow.output_tokens, fast.output_tokens]),
    )


def main() -> int:
    """Watch, decide, and simulate."""
    problem = Problem.load(Path(__file__).parent / "homelab.yaml")
    first = plan(problem)
    if not isinstance(first, Plan):
        print(first.reason)
        return 3
    load = problem.workload
    plans = repertoire(
        problem,
        rates_per_s=[0.05, 1.0, 2.0],
        prompts=[load.prompt.mean],
        outputs=[load.output.mean],
    )
    controller = Controller(problem, first, plans, Caution())
    arrivals = load_that_changes(problem)
    moves = []
    for time_s, prompt, output in zip(
        arrivals.arrival_s, arrivals.prompt_tokens, arrivals.output_tokens, strict=True
    ):
        # an orchestrator tells the answer's length later: controller.progress(), .finished()
        controller.observe(float(time_s), int(prompt), int(output))
        decision = controller.decide(float(time_s))
        if decision.action != "stay":
            print(f"{time_s:.0f} s: {decision.action}. {decision.reason}")
            moves.append((float(time_s), decision.plan))
    stays = simulate(first, problem, arrivals)
    follows = simulate(first, problem, arrivals, changes=Changes(plans=moves))
    half = slice(REQUESTS, None)
    print(f"mean wait after the change: {stays.waiting_time_s[half].mean():.2f} s without moving,")
    print(f"{follows.waiting_time_s[half].mean():.2f} s with {len(moves)} moves")
    return 0


if __name__ == "__main__":
    sys.exit(main())
