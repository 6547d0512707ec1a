"""Whether a plan obeys the constraints that name devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.check.verdict import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.check.given import GivenPlan
    from e2llm_opt.problem import Problem


def pin_rules(given: GivenPlan, problem: Problem) -> Iterator[Violation]:
    """Yield each pinned device that is not where it must be."""
    home = {name: r.id for r in given.replicas for stage in r.stages for name in stage.devices}
    names = {replica.id for replica in given.replicas}
    users: dict[str, str] = {}
    for pin, devices in problem.constraints.pins.items():
        homes = [home[device] for device in devices if device in home]
        # A plan by hand may name no replica; then the first device says which one is meant.
        wanted = pin if pin in names or not homes else homes[0]
        for device in devices:
            if home.get(device) != wanted:
                yield Violation(
                    what=f"constraints.pin: {device} must hold layers in replica {pin}",
                    device=device,
                    need=pin,
                    have=home.get(device, "no replica"),
                )
        other = users.setdefault(wanted, pin)
        if other != pin and wanted in names:
            yield Violation(
                what=f"constraints.pin: replicas {other} and {pin} are one",
                need="two replicas",
                have=wanted,
            )


def fixed_layer_rules(given: GivenPlan, problem: Problem) -> Iterator[Violation]:
    """Yield each device with another number of layers than the constraints fix."""
    stages = [stage for replica in given.replicas for stage in replica.stages]
    held = {name: s.stop - s.start for s in stages for name in s.devices}
    for device, need in problem.constraints.fixed_layers.items():
        have = held.get(device, 0)
        if have != need:
            yield Violation(
                what="constraints.layers: layers of one device",
                device=device,
                need=need,
                have=have,
            )
