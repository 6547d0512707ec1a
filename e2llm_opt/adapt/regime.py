"""What arrives just now: a rate and lengths, estimated from the requests seen so far."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.adapt.stream import MEMORY, PRIOR, Stream
from e2llm_opt.errors import InputError
from e2llm_opt.workload.workload import Lengths

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A load that stays for a while: arrivals a second, lengths of prompts and answers."""

    rate_per_s: float
    prompt: Lengths
    output: Lengths

    @staticmethod
    def of(problem: Problem) -> Regime:
        """Return the load that *problem* is planned for."""
        load = problem.workload
        return Regime(rate_per_s=load.rate_per_s, prompt=load.prompt, output=load.output)

    def problem(self, problem: Problem) -> Problem:
        """Return *problem* under this load; slots hold requests as long as before."""
        load = replace(
            problem.workload, rate_per_s=self.rate_per_s, prompt=self.prompt, output=self.output
        )
        return replace(problem, workload=load)

    def is_near(self, other: Regime, share: float) -> bool:
        """Whether rate and mean lengths differ by no more than a *share*."""
        pairs = (
            (self.rate_per_s, other.rate_per_s),
            (self.prompt.mean, other.prompt.mean),
            (self.output.mean, other.output.mean),
        )
        return all(max(a, b) <= (1.0 + share) * min(a, b) for a, b in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return the regime as it stands in a file."""
        return {
            "rate_per_s": self.rate_per_s,
            "prompt_tokens": {"mean": self.prompt.mean, "cv": self.prompt.cv},
            "output_tokens": {"mean": self.output.mean, "cv": self.output.cv},
        }

    @staticmethod
    def from_dict(given: dict[str, Any]) -> Regime:
        """Return the regime that :meth:`to_dict` wrote."""
        return Regime(
            rate_per_s=float(given["rate_per_s"]),
            prompt=Lengths(**given["prompt_tokens"]),
            output=Lengths(**given["output_tokens"]),
        )

    def __str__(self) -> str:
        """Return ``0.25 requests/s of 256 + 1024 tokens``."""
        return (
            f"{self.rate_per_s:.3g} requests/s of {self.prompt.mean:.0f} + "
            f"{self.output.mean:.0f} tokens"
        )


class Estimator:
    """Estimates the regime.

    Parameters
    ----------
    start
        What is expected before anything was seen.

    Attributes
    ----------
    num_changes
        Abrupt changes found so far.
    num_answers
        Answers whose length is known, of requests that came since the last change.
    """

    def __init__(self, start: Regime) -> None:
        gap = Lengths(mean=1.0 / max(start.rate_per_s, 1e-12), cv=1.0)
        self._gaps = Stream("gaps", gap)
        self._prompt = Stream("lengths", start.prompt)
        self._output = Stream("lengths", start.output)
        self._recent: deque[float] = deque(maxlen=MEMORY)
        self._changed_s = -math.inf
        self.num_changes = 0
        self.num_answers = PRIOR

    @property
    def num(self) -> int:
        """Requests since the last change of arrivals or prompts."""
        return min(self._gaps.num, self._prompt.num)

    def arrive(self, time_s: float, prompt_tokens: float) -> bool:
        """Take an arrival in; return whether the regime has changed.

        Raises
        ------
        InputError
            When it came before the one before it, or has no prompt.
        """
        last_s = self._recent[-1] if self._recent else None
        if last_s is not None and time_s < last_s:
            raise InputError(f"requests must come in order: {time_s:g} s after {last_s:g} s.")
        if not prompt_tokens >= 1:
            raise InputError(f"a prompt has at least one token, got {prompt_tokens:g}.")
        self._recent.append(time_s)
        is_other = last_s is not None and self._gaps.add(time_s - last_s)
        has_changed = self._prompt.add(prompt_tokens)
        if has_changed:
            self._gaps.restart(self._prompt.num)
        elif is_other:
            self._prompt.restart(self._gaps.num)
        if not (has_changed or is_other):
            return False
        # answers of the new load are still being written: nothing is known of them
        self._changed_s = self._recent[-min(self.num, len(self._recent))]
        self._output.clear()
        self.num_answers = 0
        self.num_changes += 1
        return True

    def finish(self, output_tokens: float, arrived_s: float | None = None) -> bool:
        """Take the length of an answer in; return whether answers have changed.

        That of a request that *arrived_s* before the last change says nothing of the new load.

        Raises
        ------
        InputError
            When it has no token.
        """
        if not output_tokens >= 1:
            raise InputError(f"an answer has at least one token, got {output_tokens:g}.")
        if arrived_s is not None and arrived_s < self._changed_s:
            return False
        changed = self._output.add(output_tokens)
        self.num_answers = self._output.num if changed else self.num_answers + 1
        self.num_changes += changed
        return changed

    @property
    def regime(self) -> Regime:
        """What arrives as far as it is known."""
        return Regime(
            rate_per_s=1.0 / max(self._gaps.mean, 1e-12),
            prompt=Lengths(mean=self._prompt.mean, cv=self._prompt.cv),
            output=Lengths(mean=self._output.mean, cv=self._output.cv),
        )
