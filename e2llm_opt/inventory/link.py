"""One network link between two ends, full or half duplex, perhaps unlike in its two directions."""

import math
from dataclasses import dataclass

from e2llm_opt.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between two ends.

    Parameters
    ----------
    ends
        Two different names: hosts, switches (any other name), or two devices of one host
        (a private link such as NVLink). A device's name elsewhere means its host.
    forward_bytes_per_s, backward_bytes_per_s
        Goodput of one stream from ``ends[0]`` to ``ends[1]`` and back [bytes/s].
    latency_s
        One way [s].
    interface
        What the user calls it (``eth0``, ``thunderbolt``); empty where it does not matter.
    is_half_duplex
        Both directions share the bandwidth.

    Raises
    ------
    InputError
        When the ends are equal or a number is impossible.
    """

    ends: tuple[str, str]
    forward_bytes_per_s: float
    backward_bytes_per_s: float
    latency_s: float
    interface: str = ""
    is_half_duplex: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible numbers."""
        label = f"Link {self.ends[0]} - {self.ends[1]}"
        if self.ends[0] == self.ends[1]:
            raise InputError(f"{label}: both ends are the same.")
        for value in (self.forward_bytes_per_s, self.backward_bytes_per_s):
            if not math.isfinite(value) or value <= 0:
                raise InputError(f"{label}: bandwidth must be positive and finite, got {value}.")
        if not math.isfinite(self.latency_s) or self.latency_s < 0:
            raise InputError(
                f"{label}: latency must be zero or more and finite, got {self.latency_s}."
            )
