"""The whole question: inventory, model, runtime, workload, objective, constraints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from e2llm_opt.constraints import Constraints
from e2llm_opt.degrees import degree_faults
from e2llm_opt.errors import InputError
from e2llm_opt.model.build import build_model
from e2llm_opt.speed import MEDIAN, believed

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.model.model import Model
    from e2llm_opt.runtime import Runtime
    from e2llm_opt.workload.workload import Workload


class Objective(StrEnum):
    """What makes one plan better than another (DESIGN section 5)."""

    WAITING_TIME = "waiting_time"
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    MAX_CONTEXT = "max_context"
    COST = "cost"


class Role(StrEnum):
    """What a replica does."""

    PREFILL = "PREFILL"
    DECODE = "DECODE"
    MIXED = "MIXED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One placement problem; everything the planner knows.

    Parameters
    ----------
    inventory, facts, runtime, workload
        The machines, the model's architecture, the engine, and the requests.
    weights, kv_cache
        Formats of the weights and of the KV cache (``q4_k_m``, ``f16`` …). Weights that are not
        given are those of the model's file, else ``f16``.
    objective, constraints
        What is wanted and what is not allowed.
    pessimistic
        Quantile of the predicted times that is planned on: nine in ten such devices are at least
        as fast as at 0.9; 0.5: the most likely times.

    Attributes
    ----------
    model
        Bytes and FLOPs a layer, built from the facts, the formats and the runtime's KV layout.
    devices
        The inventory's devices as fast as they are believed to be with this model and runtime:
        row d of every cost table is ``devices[d]``.

    Raises
    ------
    InputError
        When parts contradict each other, or the model's facts do not suffice.
    """

    inventory: Inventory
    facts: ModelFacts
    runtime: Runtime
    workload: Workload
    weights: str = ""
    kv_cache: str = "f16"
    objective: Objective = Objective.WAITING_TIME
    constraints: Constraints = field(default_factory=Constraints)
    pessimistic: float = MEDIAN
    model: Model = field(init=False)
    devices: tuple[Device, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Build the model and check the parts against each other."""
        object.__setattr__(self, "weights", self.weights or self.facts.weights or "f16")
        model = build_model(
            self.facts,
            weights=self.weights,
            kv_cache=self.kv_cache,
            kv_layout=self.runtime.kv_layout,
        )
        object.__setattr__(self, "model", model)
        if not 0.0 < self.pessimistic < 1.0:
            raise InputError(f"pessimistic must be between 0 and 1, got {self.pessimistic:g}.")
        engine, quantile = self.runtime.name, self.pessimistic
        devices = (believed(d, model, engine, quantile) for d in self.inventory.devices)
        object.__setattr__(self, "devices", tuple(devices))
        names = [device.name for device in self.inventory.devices]
        faults = self.constraints.faults(names, model.num_layers)
        faults += degree_faults(self.facts, self.runtime, self.constraints, self.inventory)
        if faults:
            raise InputError(faults)
        if self.constraints.roles == "disaggregated" and not self.runtime.has_disaggregation:
            raise InputError(
                f"constraints.roles: {self.runtime.name} cannot move a KV cache from one replica "
                "to another, so roles cannot be disaggregated; use roles: mixed or another runtime."
            )
        if self.workload.slots is not None and self.workload.slots > self.runtime.max_slots:
            raise InputError(
                f"workload.slots: {self.runtime.name} decodes at most {self.runtime.max_slots} "
                f"requests at once, got {self.workload.slots}."
            )

    @staticmethod
    def load(path: str | os.PathLike[str], **overrides: Any) -> Problem:  # noqa: ANN401 - file values
        """Read a problem from an inventory file.

        Parameters
        ----------
        path
            The YAML file.
        **overrides
            Top-level keys that win over the file, as they would stand in it
            (``model="llama-3.1-8b"``, ``workload={"rate_per_s": 2}``); mappings are merged.

        Raises
        ------
        InputError
            With every fault of the file at once.
        """
        from e2llm_opt.loading.load import load_problem  # noqa: PLC0415 - the one upward call

        return load_problem(path, overrides)

    def with_devices(self, devices: Iterable[Device]) -> Problem:
        """Return the same problem with other devices in its inventory, linked as these are."""
        return replace(self, inventory=replace(self.inventory, devices=tuple(devices)))
