"""A choice with prices: the cheapest of the plans of a front that keeps requests from waiting.

Run it: python examples/trade_offs.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from e2llm_opt import Front, Plan, Problem, pareto

CENTS_PER_KWH = 30.0
LONGEST_WAIT_S = 2.0
TESTBED = Path(__file__).parent / "e2llm-testbed.yaml"


def with_prices(problem: Problem, wear_per_hour: float = 0.01) -> Problem:
    """Return *problem* with what each device costs an hour: electricity, and a little wear."""
    devices = tuple(
        replace(
            device,
            cost_per_hour=(device.power_w or 0.0) / 1000 * CENTS_PER_KWH / 100 + wear_per_hour,
        )
        for device in problem.devices
    )
    return replace(problem, inventory=replace(problem.inventory, devices=devices))


def cheapest(front: Front, longest_wait_s: float) -> Plan | None:
    """Return the cheapest plan that keeps the mean wait below a limit; None where none does."""
    quick = [
        (figures["cost_per_hour"], i)
        for i, figures in enumerate(front.figures)
        if figures["waiting_time"] <= longest_wait_s
    ]
    return front.plans[min(quick)[1]] if quick else None


def main() -> None:
    """Print the front, its knee, and the choice."""
    problem = with_prices(Problem.load(TESTBED))
    front = pareto(problem, objectives=("waiting_time", "cost_per_hour", "lost_capacity"))
    assert isinstance(front, Front), front
    for i, figures in enumerate(front.figures):
        mark = "<- knee" if i == front.knee else ""
        print(
            f"plan {i + 1:2}: waits {figures['waiting_time']:8.3f} s, "
            f"{figures['cost_per_hour']:.3f} an hour, "
            f"a failure takes {100 * figures['lost_capacity']:.0f} % {mark}"
        )
    print(*front.explain, sep="\n")
    chosen = cheapest(front, LONGEST_WAIT_S)
    if chosen is not None:
        used = {stage.device for replica in chosen.replicas for stage in replica.stages}
        print(f"Cheapest with waits below {LONGEST_WAIT_S:g} s: {', '.join(sorted(used))}")


if __name__ == "__main__":
    main()
