"""The names of a front's objectives."""

from __future__ import annotations

from enum import StrEnum


class Aim(StrEnum):
    """One objective of a front."""

    WAITING_TIME = "waiting_time"
    TTFT = "ttft"
    TPOT = "tpot"
    LATENCY = "latency"
    CAPACITY = "capacity"
    COST_PER_HOUR = "cost_per_hour"
    POWER_W = "power_w"
    DEVICES = "devices"
    LOST_CAPACITY = "lost_capacity"


WAITS = (Aim.WAITING_TIME, Aim.TTFT, Aim.LATENCY)
"""They have no value above capacity."""
PRICED = (Aim.COST_PER_HOUR, Aim.POWER_W)
"""Not every inventory says what they are."""
