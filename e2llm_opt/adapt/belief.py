"""How surely a load is known: loads that are all likely after what was seen.

A rate has a gamma posterior, a mean prompt a lognormal one. Answers are known late, long ones last:
those that are still being written say that they are longer than what there is of them. Taken for
censored observations (Tobin, 1958, "Estimation of relationships for limited dependent variables"),
they leave no bias towards short ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy import special

from e2llm_opt.adapt.regime import Regime
from e2llm_opt.adapt.stream import MEMORY
from e2llm_opt.workload.workload import Lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.adapt.estimator import Estimator
    from e2llm_opt.adapt.stream import Stream

    Floats = NDArray[np.float64]

UNCHANGED: Final = 0.5
"""How likely answers stay as long as they were where arrivals or prompts have changed."""
_BROAD = 1.5
"""How far they may go otherwise: standard deviation of the logarithm of their mean."""
_LONGEST = 14.0
"""Logarithm of the longest mean answer, a million tokens."""
_POINTS = 200


class Belief(NamedTuple):
    """A load as it is known.

    Parameters
    ----------
    regime
        In the middle.
    num_gaps, num_prompts
        Observations that rate and prompts rest on, fewer where gaps vary much.
    gaps_cv
        Coefficient of variation of the times between arrivals.
    log_output, weight
        Shape (M,): rising means of the logarithm of answers, and how likely each is, 1 in all.
    since_s, log_before
        When the load became what it is, and the mean logarithm of answers to what came before [s].
    """

    regime: Regime
    num_gaps: float
    num_prompts: float
    gaps_cv: float
    log_output: Floats
    weight: Floats
    since_s: float
    log_before: float

    def draw(self, num: int) -> list[Regime]:
        """Return *num* loads, equally likely: each figure's quantiles, independently shuffled."""
        levels = (np.arange(num) + 0.5) / num
        rate, prompt, output = (np.random.default_rng([7, k]).permutation(levels) for k in range(3))
        own = self.regime
        rates = own.rate_per_s * special.gammaincinv(self.num_gaps, rate) / self.num_gaps
        spread = own.prompt.sigma / math.sqrt(self.num_prompts)
        prompts = own.prompt.mean * np.exp(spread * special.ndtri(prompt))
        outputs = np.exp(_quantile(self.log_output, self.weight, output) + own.output.sigma**2 / 2)
        return [
            Regime(
                rate_per_s=float(rates[k]),
                prompt=Lengths(mean=float(prompts[k]), cv=own.prompt.cv),
                output=Lengths(mean=float(outputs[k]), cv=own.output.cv),
            )
            for k in range(num)
        ]


def belief_of(estimator: Estimator) -> Belief:
    """Return what *estimator* has seen, answers that are being written among it."""
    gaps, prompt, output = estimator.gaps, estimator.prompt, estimator.output
    answers = Lengths(mean=1.0, cv=output.cv)
    log_output, weight = _answers(output, answers.sigma, np.array(estimator.written))
    middle = float(_quantile(log_output, weight, np.array([0.5]))[0])
    return Belief(
        regime=Regime(
            rate_per_s=1.0 / max(gaps.mean, 1e-12),
            prompt=Lengths(mean=prompt.mean, cv=prompt.cv),
            output=Lengths(mean=math.exp(middle + answers.sigma**2 / 2), cv=output.cv),
        ),
        num_gaps=min(gaps.num, MEMORY) / max(1.0, gaps.cv**2),
        num_prompts=min(prompt.num, MEMORY),
        gaps_cv=gaps.cv,
        log_output=log_output,
        weight=weight,
        since_s=estimator.since_s,
        log_before=middle if output.before is None else output.before[0],
    )


def _answers(output: Stream, sigma: float, written: Floats) -> tuple[Floats, Floats]:
    """Return where the mean logarithm of answers may be, and how likely it is there."""
    sigma = max(sigma, 0.05)
    points = np.linspace(0.0, _LONGEST, _POINTS)
    for _ in range(2):  # once more where the likely ones are
        log = _prior(output, points)
        if output.num:
            log -= 0.5 * min(output.num, MEMORY) * ((points - output.log_mean) / sigma) ** 2
        if len(written):
            z = (np.log(np.maximum(written, 1.0))[:, None] - points) / sigma
            log += special.log_ndtr(-z).sum(axis=0)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = float(weight @ points)
        spread = math.sqrt(float(weight @ (points - mean) ** 2)) + (points[1] - points[0])
        found, points = points, np.linspace(mean - 6.0 * spread, mean + 6.0 * spread, _POINTS)
    return found, weight


def _prior(output: Stream, points: Floats) -> Floats:
    """Return the logarithm of what was expected before: as it was, or anything around that."""
    if output.before is None:
        return np.zeros(len(points))
    mean, spread = output.before
    same = np.exp(-0.5 * ((points - mean) / spread) ** 2) / spread
    other = np.exp(-0.5 * ((points - mean) / _BROAD) ** 2) / _BROAD
    return np.log(UNCHANGED * same + (1.0 - UNCHANGED) * other)


def _quantile(points: Floats, weight: Floats, level: Floats) -> Floats:
    below = np.cumsum(weight) - 0.5 * weight
    return np.interp(level, below, points)
