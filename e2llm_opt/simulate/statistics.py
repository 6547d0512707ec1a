"""What simulated requests add up to: spreads, service levels, throughput, and whether it lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.workload.workload import Workload

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Verdict = Literal["stable", "drifting", "too short"]

_FEWEST = 100
"""Requests below which nothing is said about a trend."""
_BATCHES = 5
"""Batches a half, whose means tell how much a half's mean varies by chance."""
_GROWTH, _ERRORS, _SHARE = 1.5, 3.0, 0.01
"""Waits drift where they grow by half, by three standard errors, and by 1 % of the latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and percentiles of a time [s]; None where no request counts."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """Share of the requests that meet each limit of the workload; None where there is no limit.

    ``every`` is the share that meets all of them; None where there is none.
    """

    ttft: float | None = None
    tpot: float | None = None
    min_tokens_per_s: float | None = None
    every: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What was served between the first arrival and the last token [1/s]."""

    requests_per_s: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Mean waiting times of the first and the second half of the requests [s]."""

    verdict: Verdict
    first_half_s: float | None
    second_half_s: float | None


def spread(values: Floats) -> Spread:
    """Return mean, P50, P90 and P99 of *values* [n]; percentiles are interpolated linearly."""
    if len(values) == 0:
        return Spread()
    p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99]).tolist()
    return Spread(mean=float(values.mean()), p50=p50, p90=p90, p99=p99)


def attainment(ttft_s: Floats, tpot_s: Floats, workload: Workload) -> Attainment:
    """Return the shares of requests within the service levels and the least speed of *workload*.

    Parameters
    ----------
    ttft_s, tpot_s
        Of each request [n] [s].
    workload
        Its limits; the speed of a stream is 1 / TPOT.
    """
    slowest = 1 / workload.min_tokens_per_s if workload.min_tokens_per_s > 0 else None
    limits = ((ttft_s, workload.slo_ttft_s), (tpot_s, workload.slo_tpot_s), (tpot_s, slowest))
    met = [None if limit is None else times <= limit for times, limit in limits]
    given = [one for one in met if one is not None]
    shares = [None if one is None or len(one) == 0 else float(one.mean()) for one in met]
    every = None
    if given and len(ttft_s):
        every = float(np.logical_and.reduce(given).mean())
    return Attainment(ttft=shares[0], tpot=shares[1], min_tokens_per_s=shares[2], every=every)


def throughput(prompt_tokens: Ints, output_tokens: Ints, span_s: float) -> Throughput:
    """Return the rates of requests and tokens that were served in *span_s* seconds."""
    return Throughput(
        requests_per_s=len(prompt_tokens) / span_s,
        prompt_tokens_per_s=float(prompt_tokens.sum()) / span_s,
        output_tokens_per_s=float(output_tokens.sum()) / span_s,
    )


def trend(waits_s: Floats, mean_latency_s: float) -> Trend:
    """Return whether waits grow from the first half of the requests to the second.

    Parameters
    ----------
    waits_s
        In the order of arrival [n] [s].
    mean_latency_s
        Growth by less than a hundredth of it is none [s].

    Notes
    -----
    Where more arrives than is served, waits grow in proportion to time, and those of the second
    half are three times those of the first. They are called drifting where they grow by more than
    half, by more than three standard errors (from means of batches), and noticeably.
    """
    if len(waits_s) == 0:
        return Trend(verdict="too short", first_half_s=None, second_half_s=None)
    halves = np.array_split(waits_s, 2)
    first, second = (float(half.mean()) if len(half) else None for half in halves)
    if first is None or second is None or len(waits_s) < _FEWEST:
        return Trend(verdict="too short", first_half_s=first, second_half_s=second)
    batches = np.array([[b.mean() for b in np.array_split(half, _BATCHES)] for half in halves])
    error = float(np.sqrt(batches.var(axis=1, ddof=1).sum() / _BATCHES))
    growth = second - first
    is_drifting = second > _GROWTH * first and growth > max(
        _ERRORS * error, _SHARE * mean_latency_s
    )
    verdict: Verdict = "drifting" if is_drifting else "stable"
    return Trend(verdict=verdict, first_half_s=first, second_half_s=second)
