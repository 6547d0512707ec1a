"""What arrives just now, estimated from the requests seen so far."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from e2llm_opt.adapt.stream import MEMORY, Stream
from e2llm_opt.errors import InputError
from e2llm_opt.workload.workload import Lengths

if TYPE_CHECKING:
    from e2llm_opt.adapt.regime import Regime

KNOWN: Final = 1000
"""Requests that are remembered one by one."""


@dataclass(slots=True)
class Request:
    """A request as far as it is known.

    Parameters
    ----------
    arrival_s
        When it came [s].
    prompt_tokens
        [tokens]
    written_tokens
        Of its answer, so far; all where it is finished [tokens].
    is_finished
        Whether the length of its answer is known.
    """

    arrival_s: float
    prompt_tokens: float
    written_tokens: float = 0.0
    is_finished: bool = False


class Estimator:
    """Estimates the regime.

    Parameters
    ----------
    start
        What is expected before anything was seen.

    Attributes
    ----------
    gaps, prompt, output
        Times between arrivals, and lengths.
    since_s
        When what arrives became what it is now [s].
    num_changes
        Abrupt changes found so far.
    """

    def __init__(self, start: Regime) -> None:
        gap = Lengths(mean=1.0 / max(start.rate_per_s, 1e-12), cv=1.0)
        self.gaps = Stream("gaps", gap)
        self.prompt = Stream("lengths", start.prompt)
        self.output = Stream("lengths", start.output)
        self.since_s = -math.inf
        self.num_changes = 0
        self._next = 0
        self._known: dict[int, Request] = {}
        self._answered_s: deque[float] = deque(maxlen=MEMORY)

    @property
    def num(self) -> int:
        """Requests since the last change of arrivals or prompts."""
        return min(self.gaps.num, self.prompt.num)

    @property
    def last_s(self) -> float:
        """When the last request came; -inf: none has [s]."""
        return self._known[self._next - 1].arrival_s if self._known else -math.inf

    @property
    def requests(self) -> list[Request]:
        """The last thousand requests, in the order of their arrival."""
        return list(self._known.values())

    @property
    def written(self) -> list[float]:
        """What there is of answers that are being written, to requests since the last change."""
        known = self._known.values()
        return [
            one.written_tokens
            for one in known
            if not one.is_finished and one.arrival_s >= self.since_s and one.written_tokens > 0
        ]

    def arrive(self, time_s: float, prompt_tokens: float) -> int:
        """Take an arrival in; return its number.

        Raises
        ------
        InputError
            When it came before the one before it, or has no prompt.
        """
        last_s = self.last_s
        if not time_s >= last_s:
            raise InputError(f"requests must come in order: {time_s:g} s after {last_s:g} s.")
        if not prompt_tokens >= 1:
            raise InputError(f"a prompt has at least one token, got {prompt_tokens:g}.")
        number = self._next
        self._known[number] = Request(time_s, prompt_tokens)
        self._known.pop(number - KNOWN, None)
        self._next += 1
        is_other = last_s > -math.inf and self.gaps.add(time_s - last_s)
        if self.prompt.add(prompt_tokens) or is_other:
            self._begin()
        return number

    def _begin(self) -> None:
        """Forget all from before arrivals or prompts changed, and answers to what came then."""
        gaps, prompts = self.gaps.gains(), self.prompt.gains()
        most = min(len(gaps), len(prompts))
        num = 1 + int(np.argmax(gaps[:most] + prompts[:most]))
        self.gaps.restart(num)
        self.prompt.restart(num)
        since = self.requests[-num:]
        self.since_s = since[0].arrival_s
        self.num_changes += 1
        self.output.clear()
        self._answered_s.clear()
        for one in since:
            if one.is_finished:
                self._answer(one)

    def _answer(self, request: Request) -> None:
        self._answered_s.append(request.arrival_s)
        if self.output.add(request.written_tokens):
            self.output.restart(1 + int(np.argmax(self.output.gains())))
            self.since_s = min(list(self._answered_s)[-self.output.num :])
            self.num_changes += 1

    def progress(self, number: int, written_tokens: float) -> None:
        """Take in how much there is of the answer to a request, which is still being written.

        Raises
        ------
        InputError
            When no such request has come.
        """
        request = self._request(number)
        if request is not None and not request.is_finished:
            request.written_tokens = max(written_tokens, request.written_tokens)

    def finish(self, number: int, output_tokens: float) -> None:
        """Take the length of the answer to a request in.

        That of a request from before the last change says nothing of the new load.

        Raises
        ------
        InputError
            When no such request has come, or the answer has no token.
        """
        if not output_tokens >= 1:
            raise InputError(f"an answer has at least one token, got {output_tokens:g}.")
        request = self._request(number)
        if request is None or request.is_finished:
            return
        request.written_tokens, request.is_finished = output_tokens, True
        if request.arrival_s >= self.since_s:
            self._answer(request)

    def _request(self, number: int) -> Request | None:
        """Return a request; None where it came too long ago."""
        if not 0 <= number < self._next:
            raise InputError(f"no request {number} has come: observe() returns its number.")
        return self._known.get(number)
