"""Requests drawn from a workload: when they arrive and how long they are, seeded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from e2llm_opt.errors import InputError
from e2llm_opt.workload.trace import MAX_TOKENS, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.workload.workload import Lengths, Workload

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Pattern = Literal["poisson", "fixed", "bursty"]
BURSTY_CV = 3.0
"""Coefficient of variation of the gaps between bursty arrivals (gamma distributed)."""


def draw_arrivals(
    workload: Workload,
    num: int,
    *,
    rate_per_s: float | None = None,
    pattern: Pattern = "poisson",
    seed: int = 0,
) -> Trace:
    """Return *num* requests drawn from *workload*.

    The same seed gives the same lengths, and gaps that only stretch with the rate.

    Parameters
    ----------
    workload
        Gives length distributions, and the rate unless *rate_per_s* does.
    num
        Requests.
    rate_per_s
        [1/s]
    pattern
        ``poisson``; ``fixed``: equal gaps; ``bursty``: gamma distributed gaps of cv 3.
    seed
        Of all draws.

    Raises
    ------
    InputError
        When there is no positive rate, no request, or an unknown pattern.
    """
    rate = workload.rate_per_s if rate_per_s is None else rate_per_s
    if not (math.isfinite(rate) and rate > 0):
        raise InputError(f"an arrival rate above 0 is needed to draw requests, got {rate:g}.")
    if num < 1:
        raise InputError(f"at least one request is needed, got {num}.")
    gaps, prompts, outputs = (
        np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)
    )
    if pattern == "poisson":
        gap = gaps.exponential(size=num)
    elif pattern == "bursty":
        gap = gaps.gamma(BURSTY_CV**-2, BURSTY_CV**2, size=num)
    elif pattern == "fixed":
        gap = np.ones(num)
    else:
        raise InputError(f"arrivals must be poisson, fixed or bursty, got '{pattern}'.")
    gap[0] = 0.0
    return Trace(
        arrival_s=np.cumsum(gap) / rate,
        prompt_tokens=draw_lengths(workload.prompt, prompts, num),
        output_tokens=draw_lengths(workload.output, outputs, num),
    )


def draw_lengths(lengths: Lengths, random: np.random.Generator, num: int) -> Ints:
    """Draw whole numbers of tokens [num] from a lognormal distribution, or a constant."""
    normal = random.standard_normal(num) if lengths.cv > 0 else np.zeros(num)
    drawn = lengths.mean * np.exp(lengths.sigma * normal - lengths.sigma**2 / 2)
    return whole_tokens(drawn)


def whole_tokens(lengths: Floats) -> Ints:
    """Return *lengths* as whole numbers that a request may have [tokens]."""
    return np.clip(np.rint(lengths), 1, MAX_TOKENS).astype(np.int64)
