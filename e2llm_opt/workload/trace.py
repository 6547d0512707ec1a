"""Request traces: arrival times and token counts, read line by line with bounded memory."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.text_file import decoded, open_bytes
from e2llm_opt.workload.workload import Lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

MAX_REQUESTS = 5_000_000
"""Longest trace that is read [requests]; it takes 120 MB."""
MAX_TOKENS = 100_000_000
"""Most tokens of one request."""
_MAX_LINE_BYTES = 4096
_MAX_FAULTS = 20
_MAX_ARRIVAL_S = 1e12
_OWN = ("arrival_s", "prompt_tokens", "output_tokens")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests in the order of their arrival; read-only arrays with one entry a request (N).

    Parameters
    ----------
    arrival_s
        Shape (N,), sorted; the first is 0 where the file has dates [s].
    prompt_tokens, output_tokens
        Shape (N,), at least 1 [tokens].
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    @property
    def num_requests(self) -> int:
        """Length of the trace, N."""
        return len(self.arrival_s)

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate between first and last; 0 where all arrive at once [requests/s]."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return (self.num_requests - 1) / span_s if span_s > 0 else 0.0

    def at_rate(self, rate_per_s: float) -> Trace:
        """Return the same requests with all gaps stretched to a mean *rate_per_s* [1/s].

        Raises
        ------
        InputError
            When the rate is not positive, or all requests come at one moment.
        """
        if not (0 < rate_per_s < float("inf") and self.rate_per_s > 0):
            raise InputError(
                f"a trace of {self.num_requests} requests cannot come at {rate_per_s:g}/s"
            )
        factor = self.rate_per_s / rate_per_s
        return replace(self, arrival_s=(self.arrival_s - self.arrival_s[0]) * factor)

    def first(self, num: int) -> Trace:
        """Return the first *num* requests, or all where there are fewer."""
        return Trace(
            arrival_s=self.arrival_s[:num],
            prompt_tokens=self.prompt_tokens[:num],
            output_tokens=self.output_tokens[:num],
        )

    @property
    def prompt_p95(self) -> float:
        """95th percentile of the prompts [tokens]."""
        return _p95(self.prompt_tokens)

    @property
    def output_p95(self) -> float:
        """95th percentile of the answers [tokens]."""
        return _p95(self.output_tokens)

    def workload_lengths(self) -> tuple[Lengths, Lengths]:
        """Return prompt and output lengths with the trace's mean and coefficient of variation."""
        return _lengths(self.prompt_tokens), _lengths(self.output_tokens)


def read_trace(path: str | os.PathLike[str], *, most: int | None = None) -> Trace:
    """Read a trace from a CSV file with a header line.

    Parameters
    ----------
    path
        Columns ``arrival_s, prompt_tokens, output_tokens``, or those of the Azure traces of 2023,
        ``TIMESTAMP, ContextTokens, GeneratedTokens``; in any order, other columns are ignored.
    most
        Only so many requests are read, and nothing behind them is looked at; None: all.

    Raises
    ------
    InputError
        With the lines that are wrong (the first 20): a missing column or value, an arrival before
        the one above it, a negative time, no tokens; or that the file is empty or unreadable.
    """
    reader = _Reader(os.fspath(path))
    with open_bytes(path) as file:
        reader.read(file, most)
    return reader.trace()


class _Reader:
    """Collects rows into compact arrays, and faults up to a limit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._faults: list[Fault] = []
        self._arrival_s = array("d")
        self._prompt = array("q")
        self._output = array("q")
        self._start: datetime | None = None

    def read(self, file: IO[bytes], most: int | None) -> None:
        """Read header and rows, stopping early when too much is wrong."""
        lines = _lines(file, self._name)
        _, header = next(lines, (0, ""))
        if not header.strip():
            raise InputError([Fault(file=self._name, wrong="the trace is empty", right=_format())])
        columns, time = self._columns(_cells(header))
        for line, text in lines:
            if text.strip():
                self._row(line, _cells(text), columns, time)
            if len(self._arrival_s) == most:
                return
            if len(self._faults) >= _MAX_FAULTS:
                raise InputError(self._faults)
            if len(self._arrival_s) > MAX_REQUESTS:
                fault = Fault(
                    file=self._name,
                    line=line,
                    wrong=f"more than {MAX_REQUESTS} requests",
                    right="take the first ones only, or cut the trace",
                )
                raise InputError([fault])

    def trace(self) -> Trace:
        """Return what was read."""
        import numpy as np  # noqa: PLC0415 - heavy, and only needed once a trace is read

        if self._faults:
            raise InputError(self._faults)
        if not self._arrival_s:
            raise InputError([Fault(file=self._name, wrong="the trace has no requests")])
        arrays = (
            np.frombuffer(self._arrival_s, dtype=np.float64),
            np.frombuffer(self._prompt, dtype=np.int64),
            np.frombuffer(self._output, dtype=np.int64),
        )
        for values in arrays:
            values.setflags(write=False)
        return Trace(arrival_s=arrays[0], prompt_tokens=arrays[1], output_tokens=arrays[2])

    def _columns(self, header: list[str]) -> tuple[list[int], Callable[[str], float]]:
        """Return where the three columns are, and how to read a time."""
        names = [name.lower() for name in header]
        for wanted, time in ((_OWN, self._seconds), (_AZURE, self._since_start)):
            if wanted[0].lower() in names:
                missing = [name for name in wanted if name.lower() not in names]
                if missing:
                    wrong = f"missing column {', '.join(missing)}"
                    raise InputError([Fault(file=self._name, line=1, wrong=wrong, right=_format())])
                return [names.index(name.lower()) for name in wanted], time
        wrong = f"missing column {_OWN[0]} or {_AZURE[0]}"
        raise InputError([Fault(file=self._name, line=1, wrong=wrong, right=_format())])

    def _row(
        self, line: int, cells: list[str], columns: list[int], time: Callable[[str], float]
    ) -> None:
        if len(cells) <= max(columns):
            self._add(line, f"has {len(cells)} values", f"needs {max(columns) + 1}")
            return
        try:
            arrival_s = time(cells[columns[0]])
            prompt, output = (_tokens(cells[column]) for column in columns[1:])
        except ValueError as error:
            self._add(line, str(error))
            return
        if self._arrival_s and arrival_s < self._arrival_s[-1]:
            self._add(line, "arrives before the request above it", "sort the trace by time")
            return
        self._arrival_s.append(arrival_s)
        self._prompt.append(prompt)
        self._output.append(output)

    def _add(self, line: int, wrong: str, right: str = "") -> None:
        self._faults.append(Fault(file=self._name, line=line, wrong=wrong, right=right))

    def _seconds(self, text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            msg = f"the arrival must be a number of seconds, got {_shown(text)}"
            raise ValueError(msg) from None
        if not 0 <= seconds <= _MAX_ARRIVAL_S:
            msg = f"the arrival must be zero or more and finite, got {_shown(text)}"
            raise ValueError(msg)
        return seconds

    def _since_start(self, text: str) -> float:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            msg = f"the arrival must be a date and time, got {_shown(text)}"
            raise ValueError(msg) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        if self._start is None:
            self._start = moment
        # A time before the first is negative here, and so found to be out of order.
        return (moment - self._start).total_seconds()


def _lines(file: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines, refusing endless ones."""
    line = 0
    while data := file.readline(_MAX_LINE_BYTES + 1):
        line += 1
        if len(data) > _MAX_LINE_BYTES:
            wrong = f"not a trace: a line longer than {_MAX_LINE_BYTES} bytes"
            raise InputError([Fault(file=name, line=line, wrong=wrong)])
        yield line, decoded(data, file=name, line=line)


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(",")]


def _tokens(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TOKENS))
    if not is_number or not 1 <= int(text) <= MAX_TOKENS:
        msg = f"tokens must be a whole number from 1 to {MAX_TOKENS}, got {_shown(text)}"
        raise ValueError(msg)
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}…")  # noqa: PLR2004


def _format() -> str:
    return f"the first line must name {', '.join(_OWN)} (or {', '.join(_AZURE)})"


def _lengths(tokens: NDArray[np.int64]) -> Lengths:
    mean = float(tokens.mean())
    return Lengths(mean=mean, cv=float(tokens.std()) / mean)


def _p95(tokens: NDArray[np.int64]) -> float:
    import numpy as np  # noqa: PLC0415 - heavy, and loaded by the trace already

    return float(np.quantile(tokens, 0.95))
