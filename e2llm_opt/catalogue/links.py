"""The steps by which a network gets faster, and what each is assumed to cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from e2llm_opt.catalogue.catalogue import rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStep:
    """A kind of Ethernet, and what one link of it costs.

    Parameters
    ----------
    key
        Its name.
    nominal_mbit_s, goodput_mbit_s
        What is printed on the box, and what one stream gets of it [Mbit/s].
    price_usd_host, price_usd_switch
        An adapter with its cable for a host, and a port's share of a switch; assumed.
    power_w_host, power_w_switch
        The same in power [W]; assumed.
    evidence, source, verified
        Where the figures come from, and how far to trust them.
    """

    key: str
    nominal_mbit_s: float
    goodput_mbit_s: float
    price_usd_host: float
    price_usd_switch: float
    power_w_host: float
    power_w_switch: float
    evidence: str
    source: str
    verified: str


@cache
def link_steps() -> tuple[LinkStep, ...]:
    """Return the steps, the slowest first."""
    steps = [
        LinkStep(
            key=row["key"],
            nominal_mbit_s=float(row["nominal_mbit_s"]),
            goodput_mbit_s=float(row["goodput_mbit_s"]),
            price_usd_host=float(row["price_usd_host"]),
            price_usd_switch=float(row["price_usd_switch"]),
            power_w_host=float(row["power_w_host"]),
            power_w_switch=float(row["power_w_switch"]),
            evidence=row["evidence"],
            source=row["source"],
            verified=row["verified"],
        )
        for row in rows_of("link_upgrades.csv")
    ]
    return tuple(sorted(steps, key=lambda step: step.goodput_mbit_s))
