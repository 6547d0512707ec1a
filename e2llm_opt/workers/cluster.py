"""A Dask cluster as workers: found in seconds or refused, and all of one version."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import pickle
import pydoc
import queue
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt import __version__
from e2llm_opt.errors import E2LLMError, Fault, InputError
from e2llm_opt.workers.workers import TICK_S, Answer, Done, Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distributed import Client, Future

CONNECT_S: Final = 5.0
"""What a scheduler gets to answer, and then the first worker to appear [s]."""
PATIENCE_S: Final = 60.0
"""How long a cluster may be without any worker in the middle of a map [s]."""
_LOOK_EVERY_S = 1.0
_PACKAGE = "e2llm_opt"
_INSTALL = "pip install 'e2llm-opt[dask]'"
_CLIENT_LOG = logging.getLogger("distributed.client")
_one_at_a_time = threading.Lock()


class OtherVersionError(E2LLMError):
    """A worker has another version of this package than who sends it tasks.

    Parameters
    ----------
    worker
        Its address.
    version
        What it has.
    """

    def __init__(self, worker: str, version: str) -> None:
        super().__init__(worker, version)
        self.worker, self.version = worker, version


def run_here(version: str, payload: bytes) -> Any:  # noqa: ANN401 - what the function returns
    """Run a task in a worker that has our *version*, one at a time in its process.

    Parameters
    ----------
    version
        Of who sends it.
    payload
        A function and its item, pickled: what another version sends may not even be readable.

    Raises
    ------
    OtherVersionError
        When this worker has another version: it joined after all were asked.
    """
    if version != __version__:
        from distributed import get_worker  # noqa: PLC0415 - an optional package

        raise OtherVersionError(get_worker().address, __version__)
    function, item = pickle.loads(payload)  # noqa: S301 - Dask unpickles whatever it is sent
    with _one_at_a_time:
        return function(item)


class _Call:
    """A call of :func:`run_here` that is made where this is unpickled.

    The scheduler reads every function that it is sent. It is sent ``pickle.loads`` and some bytes,
    so that it needs nothing of this package, nor of the same version.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]:
        return run_here, (__version__, self._payload)


class Cluster:
    """The workers of a Dask scheduler.

    Parameters
    ----------
    address
        Of the scheduler, such as ``tcp://10.0.0.5:8786``.

    Raises
    ------
    InputError
        When Dask is not installed; when the scheduler does not answer, or has no worker; when
        workers have another version of this package, or none.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = _connected(address)
        _CLIENT_LOG.addFilter(_is_said_elsewhere)
        self._num, self._due = 0, 0.0
        try:
            self._wait_for_workers(CONNECT_S, _no_breath)
            self._compare_versions()
        except BaseException:
            self.close()
            raise

    @property
    def num(self) -> int:
        """How many worker processes there were when we last looked."""
        return self._num

    def map_unordered(
        self,
        function: Callable[[Item], Answer],
        items: Iterable[Item],
        breathe: Callable[[], None],
    ) -> Iterator[Done[Answer]]:
        """Yield what *function* makes of each of *items*; see :class:`Workers`.

        As many tasks are sent as there are processes: the scheduler spreads them, sends those of
        a dead worker elsewhere, and gives up one that was on several workers when they died.
        """
        fresh = enumerate(items)
        running: dict[Future[Answer], int] = {}
        done: queue.SimpleQueue[Future[Answer]] = queue.SimpleQueue()
        name = f"e2llm-opt-{uuid.uuid4().hex}"
        try:
            while True:
                self._wait_for_workers(PATIENCE_S, breathe)
                for index, item in itertools.islice(fresh, max(self._num - len(running), 0)):
                    call = pickle.dumps(_Call(pickle.dumps((function, item))))
                    future = self._client.submit(
                        pickle.loads, call, key=f"{name}-{index}", pure=False
                    )
                    running[future] = index
                    future.add_done_callback(done.put)
                if not running:
                    return
                with contextlib.suppress(queue.Empty):
                    future = done.get(timeout=TICK_S)
                    yield self._answered(future, running.pop(future), breathe)
                breathe()
        finally:
            if self._client.status == "running":
                self._client.cancel(list(running), force=True)

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        try:
            self._client.close(timeout=CONNECT_S)
        finally:
            _CLIENT_LOG.removeFilter(_is_said_elsewhere)

    def _wait_for_workers(self, patience_s: float, breathe: Callable[[], None]) -> None:
        """Count the workers now and then, and where there is none wait for one."""
        began = time.monotonic()
        while time.monotonic() >= self._due:
            self._num = len(self._addresses())
            self._due = time.monotonic() + (_LOOK_EVERY_S if self._num else 0.0)
            if not self._num and time.monotonic() - began > patience_s:
                raise InputError(
                    f"the Dask scheduler {self._address} has had no worker for {patience_s:g} s; "
                    f"start some: dask worker {self._address} --nthreads 1"
                )
            if not self._num:
                breathe()
                time.sleep(TICK_S)

    def _addresses(self) -> list[str]:
        """Return the workers that the scheduler knows, or say that it is gone."""
        scheduler = self._client.scheduler
        try:
            if self._client.status == "running" and scheduler is not None:
                return list(self._client.sync(scheduler.ncores, callback_timeout=PATIENCE_S))
        except OSError:
            pass
        raise self._gone()

    def _gone(self) -> InputError:
        return InputError(f"the Dask scheduler {self._address} is gone; what is done is kept")

    def _compare_versions(self) -> None:
        """Refuse workers that would compute something else.

        Raises
        ------
        InputError
            With every such worker.
        """
        # Named, not sent: a worker without this package could not even read a function of it.
        found = self._client.run(pydoc.locate, f"{_PACKAGE}.__version__", on_error="return")
        faults = [
            _fault(worker, None if isinstance(version, Exception) else version)
            for worker, version in sorted(found.items())
            if version != __version__
        ]
        if faults:
            raise InputError(faults)

    def _answered(
        self, future: Future[Answer], index: int, breathe: Callable[[], None]
    ) -> Done[Answer]:
        # A result may be lost with its worker before it is here; then it is computed again.
        while future.status not in {"error", "cancelled"}:
            with contextlib.suppress(TimeoutError):
                return Done(index=index, answer=future.result(timeout=_LOOK_EVERY_S))
            breathe()
        if future.status == "cancelled":  # as all are when the scheduler ends
            raise self._gone()
        from distributed.scheduler import KilledWorker  # noqa: PLC0415 - an optional package

        error = future.exception(timeout=PATIENCE_S)
        if isinstance(error, OtherVersionError):
            raise InputError([_fault(error.worker, error.version)]) from None
        if isinstance(error, ModuleNotFoundError) and error.name == _PACKAGE:
            raise InputError([_fault("a worker", None)]) from None
        if isinstance(error, KilledWorker):
            deaths = error.allowed_failures + 1
            lost = f"its worker process died {deaths} times"
            return Done(index=index, error=lost, is_lost=True)
        return Done(index=index, error=f"{type(error).__name__}: {error}")


def _is_said_elsewhere(_: logging.LogRecord) -> bool:
    """Drop what Dask's client logs, tracebacks mostly: what matters becomes an error of ours."""
    return False


def _no_breath() -> None:
    pass


def _fault(worker: str, version: str | None) -> Fault:
    has = f"has no {_PACKAGE}" if version is None else f"has {_PACKAGE} {version}"
    right = f"install version {__version__} on all workers and start them again"
    return Fault(wrong=f"{worker} {has}, here is {__version__}", right=right)


def _connected(address: str) -> Client:
    """Return a client of the scheduler at *address*.

    Raises
    ------
    InputError
        When Dask is not installed, or no scheduler answers there within seconds.
    """
    try:
        from distributed import Client, Security, rpc  # noqa: PLC0415 - an optional package
    except ImportError:
        raise InputError(f"a cluster needs Dask; {_INSTALL}, or leave --dask out") from None

    async def ask() -> None:
        terms = Security().get_connection_args("client")  # as Dask's configuration says
        async with rpc(address, timeout=CONNECT_S, connection_args=terms) as scheduler:
            await asyncio.wait_for(scheduler.identity(n_workers=0), CONNECT_S)

    try:
        # A client that fails would go on trying while it is cleared away; this just ends. In a
        # thread of its own, as this one may run a loop already (a notebook's does).
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(asyncio.run, ask()).result()
        return Client(address, timeout=CONNECT_S, set_as_default=False)
    except Exception as error:  # noqa: BLE001 - a stranger answers anything, and all is raised
        reason = f"no Dask scheduler answers at '{address}' within {CONNECT_S:g} s"
        if isinstance(error, ValueError):
            reason = f"'{address}' is no address of a Dask scheduler: {error}"
        raise InputError(
            f"{reason}; is it running (dask scheduler), is this the address that it prints "
            "(tcp://HOST:8786), and does no firewall stand in between?"
        ) from None
