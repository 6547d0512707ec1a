"""The answer: the next plan, the moves to it in order, and what each step would gain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.replan.terms import StepName

REPLAN_SCHEMA: Final = "e2llm-opt/replan/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Weights that one device gets.

    Parameters
    ----------
    device
        Its name.
    layers
        ``[start, stop)``; empty where it gets a table only.
    tables
        Embedding or head that come with them.
    source
        The device that sends them; the device itself: from its own disk; None: from the machine
        that has the model file, wherever that is.
    num_bytes
        Weights [bytes].
    seconds
        When they are there and loaded, after the step of the way began [s].
    order
        Step of the way, from 1 on.
    """

    device: str
    layers: tuple[int, int]
    tables: tuple[str, ...]
    source: str | None
    num_bytes: int
    seconds: float
    order: int

    def to_dict(self) -> dict[str, Any]:
        """Return the move as it stands in the JSON answer."""
        return {
            "device": self.device,
            "layers": list(self.layers),
            "from": self.source,
            "bytes": self.num_bytes,
            "seconds": self.seconds,
            "tables": list(self.tables),
            "order": self.order,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """A replica that keeps its layers and plays another role, or has another number of slots."""

    devices: tuple[str, ...]
    old_role: str
    new_role: str
    old_slots: int
    new_slots: int

    def to_dict(self) -> dict[str, Any]:
        """Return the change as it stands in the JSON answer."""
        return {
            "devices": list(self.devices),
            "from": self.old_role,
            "to": self.new_role,
            "slots": [self.old_slots, self.new_slots],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WayStep:
    """One step of the way, and what serves meanwhile.

    Parameters
    ----------
    order
        From 1 on.
    seconds
        How long it takes [s].
    stopped, started
        Devices of the replicas that stop and start, in pipeline order.
    serving
        Devices of the replicas that serve meanwhile, with their roles.
    capacity_per_s, stable
        Of those [1/s]; whether they keep up with the requests.
    """

    order: int
    seconds: float
    stopped: tuple[tuple[str, ...], ...]
    started: tuple[tuple[str, ...], ...]
    serving: tuple[tuple[str, tuple[str, ...]], ...]
    capacity_per_s: float
    stable: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the step as it stands in the JSON answer."""
        return {
            "order": self.order,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "started": self.started,
            "serving": [{"role": role, "devices": names} for role, names in self.serving],
            "capacity_per_s": self.capacity_per_s,
            "stable": self.stable,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a plan does: None where there is no steady state, or nothing serves."""

    waiting_time_s: float | None
    capacity_per_s: float
    latency_s: float | None
    stable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One step of growing cost: routing, roles, layers.

    Parameters
    ----------
    step
        Its name.
    figures
        Of the best plan that it reaches; None where it reaches none.
    gain
        What requests lose less within the horizon than in the plan as it stands
        [request-seconds].
    price
        What they lose on the way there, disturbed requests included [request-seconds].
    disturbed
        Requests in replicas that stop, or change their role.
    moves, num_bytes, seconds, downtime_s
        Ranges of layers that move, their weights [bytes], the time that takes, and the longest time
        that a replica is down [s].
    role_changes
        Replicas that keep their layers and play another role.
    """

    step: StepName
    figures: Figures | None
    gain: float = 0.0
    price: float = 0.0
    disturbed: float = 0.0
    moves: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    downtime_s: float = 0.0
    role_changes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the offer as it stands in the JSON answer."""
        figures = self.figures
        return {
            "waiting_time_s": None if figures is None else figures.waiting_time_s,
            "capacity_per_s": None if figures is None else figures.capacity_per_s,
            "stable": None if figures is None else figures.stable,
            "gain_request_s": self.gain,
            "price_request_s": self.price,
            "disturbed_requests": self.disturbed,
            "moves": self.moves,
            "bytes": self.num_bytes,
            "seconds": self.seconds,
            "downtime_s": self.downtime_s,
            "role_changes": self.role_changes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How the problem differs from the one that the plan was made for.

    Parameters
    ----------
    what
        ``gone``, ``new``, ``changed`` (a device), ``link``, ``workload``, ``model``, ``options``.
    name
        The device, or the key of the workload or option.
    fields
        What changed of it: name -> (then, now).
    """

    what: Literal["gone", "new", "changed", "link", "workload", "model", "options"]
    name: str
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as it stands in the JSON answer."""
        fields = {name: list(pair) for name, pair in self.fields.items()}
        return {"what": self.what, "name": self.name, "fields": fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The next plan, and the way there.

    Parameters
    ----------
    plan
        What is recommended: the old plan itself where nothing is worth changing.
    recommended, why
        The step that leads to it, or ``none``; and one sentence.
    before
        What the old plan does in the new problem as it stands.
    offers
        What each step reaches, the cheapest first.
    moves, way
        Weights that move, in order, and the steps in which they do.
    role_changes
        Replicas that keep their layers and play another role, or get another number of slots.
    differences
        From the problem that the old plan was made for.
    horizon_s
        Time within which gains count [s].
    warnings
        What a reader must know, such as steps in which nothing stable serves.
    """

    schema: Literal["e2llm-opt/replan/v1"] = REPLAN_SCHEMA
    plan: Plan
    recommended: StepName | Literal["none"]
    why: str
    before: Figures
    offers: tuple[Offer, ...]
    moves: tuple[Move, ...]
    way: tuple[WayStep, ...]
    role_changes: tuple[RoleChange, ...]
    differences: tuple[Difference, ...]
    horizon_s: float
    warnings: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Weights that move [bytes]."""
        return sum(move.num_bytes for move in self.moves)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as it stands in its JSON file."""
        from dataclasses import asdict  # noqa: PLC0415 - only here

        figures = self.plan.predicted
        chosen = next((one for one in self.offers if one.step == self.recommended), None)
        return {
            "schema": self.schema,
            "recommended": self.recommended,
            "why": self.why,
            "differences": [one.to_dict() for one in self.differences],
            "moves": [move.to_dict() for move in self.moves],
            "role_changes": [change.to_dict() for change in self.role_changes],
            "way": [step.to_dict() for step in self.way],
            "gain": {
                "horizon_s": self.horizon_s,
                "before": asdict(self.before),
                "after": {
                    "waiting_time_s": figures.waiting_time_s,
                    "capacity_per_s": figures.capacity_per_s,
                    "latency_s": figures.latency_s,
                    "stable": figures.stable,
                },
                "gain_request_s": 0.0 if chosen is None else chosen.gain,
                "price_request_s": 0.0 if chosen is None else chosen.price,
                "steps": {one.step: one.to_dict() for one in self.offers},
            },
            "warnings": list(self.warnings),
            "plan": self.plan,
        }

    def to_json(self) -> str:
        """Return the answer as JSON text, fields in a fixed order."""
        from e2llm_opt.plan.json_file import dump_json  # noqa: PLC0415 - pydantic is slow to import

        return dump_json(self.to_dict())

    def summary(self) -> str:
        """Return the answer in a few plain lines."""
        lines = [self.why]
        lines += [
            f"{move.order}. {move.device} gets [{move.layers[0]}, {move.layers[1]}) from "
            f"{move.source or 'the model file'}"
            for move in self.moves
        ]
        return "\n".join([*lines, self.plan.summary()])
