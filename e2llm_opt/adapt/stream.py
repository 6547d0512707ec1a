"""One stream of numbers: its mean and spread, and the moment at which it becomes another one.

Means forget exponentially. A change is found by two CUSUMs of log likelihood ratios (Page, 1954,
"Continuous inspection schemes"), one a direction: of normal logarithms for lengths, of exponential
gaps for arrivals. Where nothing changes, such a CUSUM runs exp(threshold) observations or more on
average before a false alarm (Lorden, 1971, "Procedures for reacting to a change in distribution").
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.workload.workload import Lengths

    Floats = NDArray[np.float64]

MEMORY: Final = 400
"""Observations that a mean goes by, once there are so many."""
THRESHOLD: Final = 14.0
"""Log likelihood ratio at which a stream has changed: a false alarm in a million observations."""
LEAST: Final = 50
"""Observations from which on a change can be found: fewer say too little of what was before."""
PRIOR: Final = 10
"""Observations that what is expected weighs."""
_SHIFT = 1.0
"""Change of the logarithm that is looked for [standard deviations]."""
_FACTOR = 1.5
"""Change of the rate that is looked for, up and down."""
_LEAST_SIGMA = 0.05
"""Lengths that are all equal vary by so much, or the smallest change would be an alarm."""
_OUTLIER = 3.0
"""One observation counts as no more than so many standard deviations."""


class Stream:
    """Numbers one after the other.

    Parameters
    ----------
    kind
        ``lengths``, whose logarithms are taken to be normal, or ``gaps``, taken to be exponential;
        where they vary more than that, ratios count less, by the square of their cv.
    start
        What is expected before anything was seen; it weighs as much as ten observations.

    Attributes
    ----------
    num
        Observations since the last change, those ten included.
    before
        Mean of the logarithm, and how surely it was known, when everything was forgotten because
        something else had changed; None where that is not so.
    """

    def __init__(self, kind: Literal["lengths", "gaps"], start: Lengths) -> None:
        self._kind, self._cv = kind, start.cv
        self.num = PRIOR
        self.before: tuple[float, float] | None = None
        self._mean, self._square = start.mean, start.mean**2 * (1.0 + start.cv**2)
        self._log = math.log(start.mean) - 0.5 * start.sigma**2
        self._log_square = self._log**2 + start.sigma**2
        self._sums = [0.0, 0.0]
        self._recent: deque[float] = deque(maxlen=MEMORY)

    @property
    def mean(self) -> float:
        """Mean, of the last observations more than of those before."""
        return self._mean

    @property
    def cv(self) -> float:
        """Coefficient of variation; the last one known while there are few observations."""
        if self.num < LEAST or self._mean <= 0:
            return self._cv
        return math.sqrt(max(self._square - self._mean**2, 0.0)) / self._mean

    @property
    def log_mean(self) -> float:
        """Mean of the logarithm."""
        return self._log

    def add(self, value: float) -> bool:
        """Take one observation in; return whether the stream has changed.

        Then call :meth:`restart`, with the number of observations since :meth:`gains` are largest.
        """
        if self.num >= LEAST:
            for k, ratio in enumerate(self._ratios(value)):
                self._sums[k] = max(self._sums[k] + ratio, 0.0)
        self._recent.append(value)
        self._count(value)
        return max(self._sums) >= THRESHOLD

    def gains(self) -> Floats:
        """Return how much likelier it is that the last observations have a mean of their own.

        Returns
        -------
        Shape (observations,): log likelihood ratio to one mean for all, where the last one, the
        last two, … have one and those before them another.
        """
        is_gaps = self._kind == "gaps"
        last = np.maximum(np.array(self._recent)[::-1], 1e-9)
        last = last if is_gaps else np.log(last)
        own = np.arange(1, len(last) + 1)
        others = len(last) - own
        mean: Floats = np.cumsum(last) / own
        other: Floats = (last.sum() - np.cumsum(last)) / np.maximum(others, 1)
        if is_gaps:
            each = own * np.log(mean) + others * np.log(np.where(others > 0, other, 1.0))
            whole = len(last) * math.log(float(last.mean()))
            return np.asarray((whole - each) / max(1.0, self.cv**2), np.float64)
        between: Floats = ((mean - other) / self._sigma) ** 2
        return 0.5 * own * others / len(last) * between

    def restart(self, num: int) -> None:
        """Forget all but the last *num* observations."""
        kept = list(self._recent)[-max(num, 1) :]
        self._cv, self.num, self.before = self.cv, 0, None
        self._sums = [0.0, 0.0]
        self._recent = deque(kept, maxlen=MEMORY)
        for one in kept:
            self._count(one)

    def clear(self) -> None:
        """Forget everything: the next observation is the mean, which until then stays."""
        if self.num:
            self.before = self._log, self._sigma / math.sqrt(min(self.num, MEMORY))
        self._cv, self.num = self.cv, 0
        self._sums = [0.0, 0.0]
        self._recent.clear()

    def _count(self, value: float) -> None:
        self.num += 1
        share = 1.0 / min(self.num, MEMORY)
        log = math.log(max(value, 1e-9))
        self._mean += share * (value - self._mean)
        self._square += share * (value**2 - self._square)
        self._log += share * (log - self._log)
        self._log_square += share * (log**2 - self._log_square)

    @property
    def _sigma(self) -> float:
        return max(math.sqrt(max(self._log_square - self._log**2, 0.0)), _LEAST_SIGMA)

    def _ratios(self, value: float) -> tuple[float, float]:
        """Return the log likelihood ratios of a larger mean and of a smaller one."""
        if self._kind == "gaps":
            gap = value / max(self._mean, 1e-12)
            log, spread = math.log(_FACTOR), max(1.0, self.cv**2)
            longer = (-log + (1.0 - 1.0 / _FACTOR) * gap) / spread
            shorter = (log - (_FACTOR - 1.0) * gap) / spread
            return longer, shorter
        sigma = self._sigma
        z = (math.log(max(value, 1e-9)) - self._log) / sigma
        z = min(max(z, -_OUTLIER), _OUTLIER)
        return _SHIFT * z - 0.5 * _SHIFT**2, -_SHIFT * z - 0.5 * _SHIFT**2
