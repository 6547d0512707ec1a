"""What is asked: how many requests a second, how long, and how fast they must be served."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from e2llm_opt.errors import InputError
from e2llm_opt.workload.scenarios import Risk, Scenario

DEFAULT_CV = 0.5
"""Coefficient of variation of lengths where only a mean is given (DESIGN section 4.1)."""
_Z95 = 1.6448536269514722
_CONTEXT_MARGIN = 1.25
_CONTEXT_STEP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Distribution of prompt or output lengths: lognormal, or constant when ``cv`` is 0.

    Parameters
    ----------
    mean
        [tokens]
    cv
        Coefficient of variation.
    """

    mean: float
    cv: float = DEFAULT_CV

    def __post_init__(self) -> None:
        """Refuse impossible numbers."""
        if not math.isfinite(self.mean) or self.mean <= 0:
            raise InputError(f"A mean length must be positive and finite, got {self.mean}.")
        if not math.isfinite(self.cv) or self.cv < 0:
            raise InputError(f"A cv must be zero or more and finite, got {self.cv}.")

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p(self.cv**2))

    def quantile(self, z: float) -> float:
        """Return the length at standard normal score *z* [tokens]."""
        return self.mean * math.exp(self.sigma * z - self.sigma**2 / 2)

    @property
    def mean_of_shorter(self) -> float:
        """Mean of the shorter one of two drawn lengths [tokens]."""
        return self.mean * math.erfc(self.sigma / 2.0)

    @property
    def p95(self) -> float:
        """95th percentile [tokens]."""
        return self.quantile(_Z95)

    @staticmethod
    def from_p95(mean: float, p95: float) -> Lengths:
        """Return the lognormal with this mean and 95th percentile.

        Raises
        ------
        InputError
            When no lognormal has both (p95 must lie within 1 … 3.87 times the mean).
        """
        # ln(p95/mean) = z·sigma - sigma²/2 has its smaller root where lengths vary least.
        ratio = math.log(p95 / mean) if p95 >= mean > 0 else -1.0
        if ratio < 0 or _Z95**2 - 2 * ratio < 0:
            raise InputError(
                f"No lognormal has mean {mean:g} and p95 {p95:g}: p95 must be between "
                f"{mean:g} and {mean * math.exp(_Z95**2 / 2):.6g}."
            )
        sigma = _Z95 - math.sqrt(_Z95**2 - 2 * ratio)
        return Lengths(mean=mean, cv=math.sqrt(math.expm1(sigma**2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The stream of requests and its service levels.

    Parameters
    ----------
    rate_per_s
        Arrival rate [requests/s]; 0 where none is given: waits vanish and latency decides.
    prompt, output
        Length distributions [tokens].
    context_tokens
        Longest request that a slot must hold [tokens]; default 1.25 (p95 prompt + p95 output),
        up to a multiple of 256.
    slots
        Exactly so many a replica that decodes; None: the planner chooses.
    min_tokens_per_s
        Every stream is at least this fast; 0: no floor.
    slo_ttft_s, slo_tpot_s
        Service levels [s]; None: none.
    scenarios
        Other loads that the same plan must stand; none: this one only. Then this one stands for
        all of them where a single load is looked at.
    risk, cvar_level
        How the times in all scenarios count together; at level 0.8 the worst fifth counts.
    """

    prompt: Lengths
    output: Lengths
    rate_per_s: float = 0.0
    context_tokens: int = field(default=0)
    slots: int | None = None
    min_tokens_per_s: float = 0.0
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    scenarios: tuple[Scenario, ...] = ()
    risk: Risk = Risk.EXPECTED
    cvar_level: float = 0.8

    def __post_init__(self) -> None:
        """Fill in the context and refuse impossible numbers."""
        if self.context_tokens == 0:
            loads = [(self.prompt, self.output), *((s.prompt, s.output) for s in self.scenarios)]
            context = max(context_for(prompt.p95, output.p95) for prompt, output in loads)
            object.__setattr__(self, "context_tokens", context)
        for name in ("rate_per_s", "min_tokens_per_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise InputError(f"{name} must be zero or more and finite, got {value}.")
        for name in ("context_tokens", "slots", "slo_ttft_s", "slo_tpot_s"):
            value = getattr(self, name)
            if value is not None and (not math.isfinite(value) or value <= 0):
                raise InputError(f"{name} must be positive and finite, got {value}.")

        if not 0 <= self.cvar_level < 1:
            wrong = f"cvar_level must be zero or more and below 1, got {self.cvar_level:g}."
            raise InputError(wrong)
        names = [scenario.name for scenario in self.scenarios]
        if len(set(names)) < len(names):
            raise InputError("scenarios: two have the same name.")

    @property
    def alone(self) -> Workload:
        """The same workload without its scenarios."""
        return replace(self, scenarios=())

    def in_scenario(self, scenario: Scenario) -> Workload:
        """Return this workload with the load of *scenario*; slots hold as much as before."""
        return replace(
            self,
            rate_per_s=scenario.rate_per_s,
            prompt=scenario.prompt,
            output=scenario.output,
            scenarios=(),
        )

    @property
    def mean_context_tokens(self) -> float:
        """Context of a request half-way through its answer [tokens]."""
        return self.prompt.mean + self.output.mean / 2

    @property
    def slowest_tpot_s(self) -> float:
        """Hard limit on the time per output token, from the floor and the SLO [s]."""
        floor = 1 / self.min_tokens_per_s if self.min_tokens_per_s > 0 else math.inf
        return min(floor, self.slo_tpot_s if self.slo_tpot_s is not None else math.inf)


def context_for(prompt_p95: float, output_p95: float) -> int:
    """Return the default room of a slot, from the 95th percentiles of the lengths [tokens].

    DESIGN section 4.1: 1.25 times their sum, up to a multiple of 256.
    """
    longest = _CONTEXT_MARGIN * (prompt_p95 + output_p95)
    return math.ceil(longest / _CONTEXT_STEP) * _CONTEXT_STEP
