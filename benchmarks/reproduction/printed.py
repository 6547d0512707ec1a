"""What the E2LLM paper prints: its plans and its mean waits, transcribed.

Source: E2LLM (arXiv 2606.03770, 2 June 2026), Tables III-VI (plans) and VII-VIII (results).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

E2LLM: Final = "E2LLM, printed"
SPLITWISE: Final = "Splitwise, printed"

DEVICES: Final = {
    1: "rtx-5070",
    2: "m1-a",
    3: "m1-b",
    4: "rtx-3060m",
    5: "m2max-a",
    6: "m2max-b",
    7: "orin",
}
"""The paper's device numbers, by the names of ``examples/e2llm-testbed.yaml``."""
LENGTHS: Final = {"extended": (576, 588), "custom": (2284, 1004)}
"""Mean prompt and answer of each data set (LongReason, extended and custom extended) [tokens]."""
PERIODS_S: Final = (0.5, 1.0, 2.0, 3.0)
"""Seconds between arrivals."""
NUM_REQUESTS: Final = 100


class Held(NamedTuple):
    """One stage as printed: a device, its layers, and how many have their FFN in host RAM."""

    device: int
    layers: int
    spilled: int = 0


class Group(NamedTuple):
    """One replica as printed: role (P or D), slots, and its stages, the master first."""

    role: str
    slots: int
    stages: tuple[Held, ...]


_PAIR = Group("D", 2, (Held(3, 10), Held(2, 14)))
_CARDS = Group("D", 10, (Held(1, 17, 4), Held(4, 7, 1)))
_MAX_AND_M1 = Group("D", 6, (Held(5, 17), Held(3, 7)))

PLANS: Final = {
    (E2LLM, "extended"): (
        _PAIR,
        Group("D", 5, (Held(6, 24),)),
        Group("D", 5, (Held(5, 24),)),
        _CARDS,
        Group("P", 1, (Held(7, 24),)),
    ),
    (E2LLM, "custom"): (
        _PAIR,
        Group("D", 1, (Held(7, 24),)),
        Group("D", 5, (Held(5, 24),)),
        _CARDS,
        Group("P", 1, (Held(6, 24),)),
    ),
    (SPLITWISE, "extended"): (
        _MAX_AND_M1,
        Group("D", 2, (Held(4, 24, 21),)),
        Group("D", 9, (Held(1, 16, 3), Held(6, 6), Held(2, 2))),
        Group("P", 1, (Held(7, 24),)),
    ),
    (SPLITWISE, "custom"): (
        _MAX_AND_M1,
        Group("D", 1, (Held(7, 24),)),
        Group("D", 9, (Held(1, 16, 3), Held(4, 6), Held(2, 2))),
        Group("P", 1, (Held(6, 24),)),
    ),
}
"""Tables III-VI."""

WAITS_S: Final = {
    (E2LLM, "extended"): (75.1, 56.1, 8.1, 3.5),
    (SPLITWISE, "extended"): (191.1, 155.9, 147.5, 17.1),
    (E2LLM, "custom"): (167.1, 130.8, 91.1, 39.6),
    (SPLITWISE, "custom"): (246.9, 275.2, 157.2, 123.5),
}
"""Tables VII and VIII: mean waits at each of :data:`PERIODS_S` [s]."""
SPEEDS_PER_S: Final = {
    (E2LLM, "extended"): (16.9, 17.4, 20.1, 30.0),
    (SPLITWISE, "extended"): (8.9, 9.0, 10.2, 12.1),
    (E2LLM, "custom"): (15.0, 16.2, 18.4, 17.0),
    (SPLITWISE, "custom"): (10.1, 10.7, 10.7, 11.3),
}
"""Tables VII and VIII: mean tokens a second of a stream ("DS") at each of :data:`PERIODS_S`."""


def printed_ratio(data_set: str, period_s: float) -> float:
    """Return the paper's mean wait of E2LLM over that of its Splitwise."""
    at = PERIODS_S.index(period_s)
    return WAITS_S[E2LLM, data_set][at] / WAITS_S[SPLITWISE, data_set][at]


def document(who: str, data_set: str) -> dict[str, Any]:
    """Return a printed plan as the mapping that a person would write."""
    roles = {"P": "PREFILL", "D": "DECODE"}
    replicas = []
    for group in PLANS[who, data_set]:
        stages, start = [], 0
        for held in group.stages:
            spilled = list(range(start, start + held.spilled))
            layers = [start, start + held.layers]
            stages.append(
                {"device": DEVICES[held.device], "layers": layers, "spilled_layers": spilled}
            )
            start += held.layers
        replicas.append({"role": roles[group.role], "slots": group.slots, "stages": stages})
    return {"replicas": replicas}
