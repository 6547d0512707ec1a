"""A load that stays for a while: a rate and lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
