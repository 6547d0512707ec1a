"""The plan: which device holds which layers in which replica, and what is predicted of it.

Fields are named and nested as in the JSON file (DESIGN section 4.3): seconds, bytes, tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

PLAN_SCHEMA: Final = "e2llm-opt/plan/v1"
OURS: Final = "e2llm-opt"
"""The planner of this package; what made a plan stands in its options."""


Interval: TypeAlias = tuple[float, float | None]
"""80 % of machines of these types lie between; no upper end: some would not keep up."""


class Proof(StrEnum):
    """How far the bound is to be trusted."""

    OPTIMAL = "optimal"
    BOUNDED = "bounded"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each device of a stage; ``capacity`` may be planned on, ``host`` is host RAM."""

    weights: int
    kv_cache: int
    overhead: int
    free: int
    capacity: int
    host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """The way to the next stage (from the last one: back to the first)."""

    device: str
    link: str
    prefill_time_s: float
    decode_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Contiguous layers ``[start, stop)`` of one device, or of several that share each of them.

    ``device`` is the first of ``tensor_parallel``, which is empty for a single one; times are
    without the hop.
    """

    device: str
    tensor_parallel: tuple[str, ...] = ()
    layers: tuple[int, int]
    embedding: bool
    head: bool
    spilled_layers: tuple[int, ...] = ()
    memory_bytes: StageMemory
    prefill_time_s: float
    decode_time_s: float
    prefill_time_interval_s: Interval | None = None
    decode_time_interval_s: Interval | None = None
    next_hop: NextHop | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of all its devices, in order."""
        return self.tensor_parallel or (self.device,)

    @property
    def label(self) -> str:
        """Its devices, for people."""
        return " + ".join(self.devices)

    @property
    def title(self) -> str:
        """Its devices, and what they are together."""
        return self.label + (", tensor parallel" if self.tensor_parallel else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFigures:
    """One mean prompt through a replica."""

    tokens_per_s: float
    latency_s: float
    bottleneck_s: float
    latency_interval_s: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFigures:
    """Decoding with all slots busy; ``bottleneck_s`` is the slowest stage's micro-batch."""

    tokens_per_s: float
    tpot_s: float
    bottleneck_s: float
    tokens_per_s_per_stream: float
    micro_batches: int = 1
    tpot_interval_s: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One whole copy of the model, cut over its stages in pipeline order."""

    id: str
    role: str
    slots: int
    arrival_rate_per_s: float
    service_rate_per_s: float
    utilisation: float
    stages: tuple[Stage, ...]
    prefill: PrefillFigures
    decode: DecodeFigures
    max_context_tokens: int

    @property
    def spilled(self) -> tuple[tuple[int, ...], ...]:
        """Layers of each stage that lie in host RAM."""
        return tuple(stage.spilled_layers for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Requests that are prefilled in one replica and decoded in another."""

    prefill: str
    decode: str
    rate_per_s: float
    kv_transfer_s: float
    kv_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedDevice:
    """A device without layers, and why."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The figures of a plan where every device is as fast, and as slow, as one in ten of its kind.

    None where there is no steady state even with fast ones.
    """

    capacity_per_s: Interval
    waiting_time_s: Interval | None
    ttft_s: Interval | None
    tpot_s: Interval
    latency_s: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """The mean waiting time at one arrival rate below capacity."""

    rate_per_s: float
    waiting_time_s: float
    waiting_time_interval_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the plan is expected to do; waiting, TTFT and latency are None above capacity."""

    capacity_per_s: float
    stable: bool
    waiting_time_s: float | None
    ttft_s: float | None
    tpot_s: float
    latency_s: float | None
    prefill_share_of_work: float
    power_w: float | None
    cost_per_hour: float | None
    intervals: Intervals | None = None
    load_curve: tuple[LoadPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCase:
    """The plan in one scenario, and the wait of the plan for the mean load there.

    Lengths are means; times are None above capacity, and where a stream would be too slow.
    """

    name: str
    weight: float
    rate_per_s: float
    prompt_tokens: float
    output_tokens: float
    capacity_per_s: float
    stable: bool
    waiting_time_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    latency_s: float | None
    mean_plan_waiting_time_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """What the plan was made for where the workload has scenarios, beside the plan for the mean.

    ``waiting_time_s`` is what ``risk`` makes of the waits in all cases; None where one has no
    steady state. So is that of the plan for the mean load, which is None, too, where there is none.
    """

    risk: Literal["expected", "worst", "cvar"]
    cvar_level: float
    waiting_time_s: float | None
    mean_plan_waiting_time_s: float | None
    cases: tuple[ScenarioCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The best capacity that any plan could have, and how far this one is from it."""

    capacity_per_s: float | None = None
    gap: float | None = None
    proof: Proof = Proof.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A plan that lost, and why; the KV fields belong to disaggregated ones."""

    name: str
    capacity_per_s: float
    waiting_time_s: float | None
    ttft_s: float | None
    tpot_s: float
    why_not: str
    kv_bytes: int | None = None
    kv_transfer_s: float | None = None
    break_even_bandwidth_mbit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProblem:
    """What was asked: enough to tell whether a plan belongs to an inventory."""

    inventory_sha256: str
    model: Mapping[str, Any]
    workload: Mapping[str, Any]
    runtime: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Make sequences tuples, so that a plan equals itself read back from JSON."""
        for name in ("model", "workload", "options"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProvenance:
    """Who made the plan and when; the only part that differs between equal runs."""

    e2llm_opt: str
    created: str
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole answer; see :mod:`e2llm_opt.plan.json_file` for reading and writing it."""

    schema: Literal["e2llm-opt/plan/v1"] = PLAN_SCHEMA
    problem: PlanProblem
    replicas: tuple[Replica, ...]
    routes: tuple[Route, ...]
    unused_devices: tuple[UnusedDevice, ...]
    predicted: Predicted
    bound: Bound
    alternatives: tuple[Alternative, ...]
    explain: tuple[str, ...] = ()
    warnings: tuple[str, ...]
    scenarios: Scenarios | None = None
    provenance: RunProvenance

    @property
    def used_devices(self) -> tuple[str, ...]:
        """Devices that hold layers, in the order of replicas and stages."""
        stages = [stage for replica in self.replicas for stage in replica.stages]
        return tuple(name for stage in stages for name in stage.devices)

    def to_json(self) -> str:
        """Return the plan as JSON text, fields in a fixed order."""
        from e2llm_opt.plan.json_file import dump_json  # noqa: PLC0415 - json_file imports this module

        return dump_json(self)

    def plot(self, picture: Literal["devices", "load"] = "devices") -> Any:  # noqa: ANN401 - of an extra
        """Return a matplotlib figure: devices and who talks with whom, or waits at other loads.

        Raises
        ------
        InputError
            Without matplotlib, saying how to install it.
        """
        from e2llm_opt.report import pictures  # noqa: PLC0415 - an upward call; matplotlib is slow

        pictures.require_matplotlib("a plot")
        return pictures.draw_graph(self) if picture == "devices" else pictures.draw_load(self)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: the page of ``e2llm-opt report``, in a frame of its own."""
        from html import escape  # noqa: PLC0415 - for notebooks only

        from e2llm_opt.errors import InputError  # noqa: PLC0415 - the same
        from e2llm_opt.report.page import plan_page  # noqa: PLC0415 - an upward call

        try:
            page = plan_page(self)
        except InputError:  # the text is shown instead
            return None
        return f'<iframe srcdoc="{escape(page)}" width="100%" height="700" title="Plan"></iframe>'

    def summary(self) -> str:
        """Return the plan in a few plain lines."""
        lines = [_replica_line(replica) for replica in self.replicas]
        figures = self.predicted
        wait = (
            "no steady state"
            if figures.waiting_time_s is None
            else f"{figures.waiting_time_s:.3g} s"
        )
        lines.append(f"capacity {figures.capacity_per_s:.3g} requests/s, mean waiting time {wait}")
        return "\n".join(lines)


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {str(key): _frozen(item) for key, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _replica_line(replica: Replica) -> str:
    cut = ", ".join(
        f"{stage.label} [{stage.layers[0]}, {stage.layers[1]})" for stage in replica.stages
    )
    return f"{replica.id} {replica.role:<7} {cut}"
