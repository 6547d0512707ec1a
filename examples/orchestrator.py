"""An orchestrator: plans from live objects, reads plans, plans again as machines come and go.

No file is needed and nothing is printed by the library. Run it: python examples/orchestrator.py
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from e2llm_opt import (
    Device,
    Infeasible,
    Inventory,
    Lengths,
    Link,
    ModelFacts,
    Plan,
    Problem,
    Stop,
    Workload,
    check,
    device_of_type,
    model_facts,
    plan,
    runtime,
)

MBIT_PER_S = 1e6 / 8
PATIENCE = Stop(time_limit_s=20)
"""A device has failed and requests wait: no search may take longer."""


@dataclass
class Cluster:
    """The machines that answer at the moment, the cables between them, and the plan in force."""

    facts: ModelFacts
    workload: Workload
    links: tuple[Link, ...]
    devices: dict[str, Device] = field(default_factory=dict)
    plan: Plan | None = None

    def problem(self) -> Problem:
        """Return what is to be solved now; it never changes, so that threads may share it."""
        return Problem(
            inventory=Inventory(devices=tuple(self.devices.values()), links=self.live_links()),
            facts=self.facts,
            runtime=runtime("vllm"),
            workload=self.workload,
            weights="awq",
        )

    def live_links(self) -> tuple[Link, ...]:
        """Return the links that lead somewhere: not to a machine that is gone."""
        live = [link for link in self.links if link.ends[0] in self.devices]
        uses = Counter(link.ends[1] for link in live)  # a switch joins two links or more
        return tuple(link for link in live if uses[link.ends[1]] > 1)

    def replan(self) -> Plan | Infeasible:
        """Plan for the machines that are there, and keep the plan if there is one."""
        problem = self.problem()
        answer = plan(problem, stop=PATIENCE)
        if isinstance(answer, Plan):
            assert check(answer, problem).valid, "a second implementation of the formulas disagrees"
            self.plan = answer
        return answer

    def joined(self, device: Device) -> Plan | Infeasible:
        """Take a machine in."""
        self.devices[device.name] = device
        return self.replan()

    def lost(self, name: str) -> Plan | Infeasible:
        """Do without a machine."""
        del self.devices[name]
        return self.replan()


def held(found: Plan | None) -> dict[str, tuple[str, str, tuple[int, int]]]:
    """Return what each device does: its replica, the replica's role, and its layers."""
    if found is None:
        return {}
    return {
        stage.device: (replica.id, replica.role, stage.layers)
        for replica in found.replicas
        for stage in replica.stages
    }


def to_load(old: Plan | None, new: Plan) -> dict[str, tuple[int, int]]:
    """Return the layers of the devices that hold others now than before."""
    before = {device: layers for device, (_, _, layers) in held(old).items()}
    after = {device: layers for device, (_, _, layers) in held(new).items()}
    return {device: layers for device, layers in after.items() if before.get(device) != layers}


def report(event: str, old: Plan | None, answer: Plan | Infeasible) -> None:
    """Say what is to be done."""
    print(f"== {event}")
    if isinstance(answer, Infeasible):
        print(f"no plan: {answer.reason}")
        for suggestion in answer.suggestions:
            print(f"would help: {suggestion.change}")
        return
    for device, (replica, role, (start, stop)) in held(answer).items():
        print(f"{device} serves layers {start} to {stop - 1} of {replica} ({role})")
    for route in answer.routes:
        print(f"{route.prefill} sends its KV caches to {route.decode}, {route.rate_per_s:.2g}/s")
    for device, (start, stop) in to_load(old, answer).items():
        print(f"{device} has to load layers {start} to {stop - 1}")
    figures = answer.predicted
    print(f"capacity {figures.capacity_per_s:.2g}/s, stable: {figures.stable}")


def cable(device: str, mbit_per_s: float) -> Link:
    """Return the link of a device to the switch."""
    speed = mbit_per_s * MBIT_PER_S
    ends = (device, "switch")
    return Link(ends=ends, forward_bytes_per_s=speed, backward_bytes_per_s=speed, latency_s=2e-4)


def main() -> None:
    """Play a day of a small cluster."""
    tower = device_of_type("rtx-3090", name="tower")
    boards = [device_of_type("jetson-orin-nx-16", name=f"orin-{i}") for i in (1, 2)]
    # What was measured on the machine itself wins over the catalogue.
    tower = replace(tower, decode_efficiency=0.62, reserved_bytes=2.0 * 2**30)
    cluster = Cluster(
        facts=model_facts("qwen3-32b"),
        workload=Workload(
            prompt=Lengths(mean=600), output=Lengths(mean=250, cv=0.8), rate_per_s=0.02
        ),
        links=(cable("tower", 2500), cable("orin-1", 940), cable("orin-2", 940)),
        devices={device.name: device for device in (tower, *boards)},
    )
    report("the first plan", None, cluster.replan())
    old = cluster.plan
    report("the tower is gone", old, cluster.lost("tower"))
    old = cluster.plan
    report("a board is gone too", old, cluster.lost("orin-2"))
    old = cluster.plan
    report("the tower is back", old, cluster.joined(tower))


if __name__ == "__main__":
    main()
