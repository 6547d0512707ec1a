"""Worker processes on this machine, one pipe each, so that a death concerns one task only."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import InputError
from e2llm_opt.workers.workers import MAX_DEATHS, TICK_S, Answer, Done, Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_READY = "ready"
_ANSWER = "answer"
_ERROR = "error"
_PATIENCE_S = 2.0
"""What a process gets to end by itself [s]."""


def serve(pipe: Connection) -> None:
    """Run what comes through *pipe* until it is closed; the main function of a process.

    What a function raises is reported, and then ends this process: a clean one takes over.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that hands out tasks
    pipe.send((_READY, None))
    while True:
        try:
            function, item = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(item)
        except Exception as error:
            pipe.send((_ERROR, f"{type(error).__name__}: {error}"))
            raise
        pipe.send((_ANSWER, answer))


@dataclass(slots=True)
class _Job:
    index: int
    item: Any
    deaths: int = 0


@dataclass(slots=True)
class _Worker:
    """One process, started when it is first needed."""

    job: _Job | None = None
    is_ready: bool = False
    process: multiprocessing.process.BaseProcess | None = None
    pipe: Connection = field(init=False)

    def give(self, function: Callable[[Any], Any], job: _Job) -> None:
        """Let the process run *function*; a dead one is replaced."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
            self.is_ready = False
        self.job = job
        try:
            self.pipe.send((function, job.item))
        except (BrokenPipeError, ConnectionResetError):
            return  # it has died meanwhile; reading will show it

    def end(self, patience_s: float = 0.0) -> str:
        """End the process, after *patience_s* by force, and return how it ended."""
        process, self.process, self.job = self.process, None, None
        if process is None:
            return ""
        self.pipe.close()
        process.join(patience_s)
        if process.is_alive():
            process.kill()
            process.join()
        code = process.exitcode or 0
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class LocalWorkers:
    """Processes of this machine.

    Parameters
    ----------
    num
        How many.
    """

    def __init__(self, num: int) -> None:
        self._workers = [_Worker() for _ in range(num)]

    @property
    def num(self) -> int:
        """How many processes there are."""
        return len(self._workers)

    def map_unordered(
        self,
        function: Callable[[Item], Answer],
        items: Iterable[Item],
        breathe: Callable[[], None],
    ) -> Iterator[Done[Answer]]:
        """Yield what *function* makes of each of *items*; see :class:`Workers`."""
        fresh = itertools.starmap(_Job, enumerate(items))
        again: deque[_Job] = deque()
        try:
            while True:
                for worker in self._workers:
                    if worker.job is None:
                        job = again.popleft() if again else next(fresh, None)
                        if job is None:
                            break
                        worker.give(function, job)
                busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
                if not busy:
                    return
                for pipe in wait(list(busy), timeout=TICK_S):
                    done = _heard(busy[pipe], again)  # type: ignore[index] # wait gives them back
                    if done is not None:
                        yield done
                breathe()
        finally:
            for worker in self._workers:
                if worker.job is not None:
                    worker.end()

    def close(self) -> None:
        """End all processes, whatever they do."""
        for worker in self._workers:
            if worker.process is not None:
                worker.pipe.close()  # an idle one ends by that
        for worker in self._workers:
            worker.end(0.0 if worker.job is not None else _PATIENCE_S)


def _heard(worker: _Worker, again: deque[_Job]) -> Done[Any] | None:
    """Return what a worker has finished, if anything; a task of a dead one is run *again*."""
    job = worker.job
    if job is None:
        return None
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        was_ready, how = worker.is_ready, worker.end(_PATIENCE_S)
        if not was_ready:
            raise InputError(
                f"a worker process ended before it began to work ({how}); a program that starts "
                'workers needs the line  if __name__ == "__main__":  around what it does'
            ) from None
        job.deaths += 1
        if job.deaths < MAX_DEATHS:
            again.append(job)
            return None
        error = f"its worker process died {job.deaths} times ({how})"
        return Done(index=job.index, error=error, is_lost=True)
    if kind == _READY:
        worker.is_ready = True
        return None
    worker.job = None
    if kind == _ERROR:
        worker.end(_PATIENCE_S)
        return Done(index=job.index, error=value)
    return Done(index=job.index, answer=value)
