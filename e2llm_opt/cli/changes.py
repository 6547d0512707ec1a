"""Options about devices that fail and recover while a plan runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.units import GB_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from e2llm_opt.simulate.changes import Changes, Failure
    from e2llm_opt.workload.trace import Trace

AnyFunction = TypeVar("AnyFunction", bound="Callable[..., Any]")


class _Event(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """``DEVICE@TIME``, the time in seconds."""

    name = "DEVICE@TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Return the device and the time [s]."""
        if isinstance(value, tuple):
            return value
        device, at, time = str(value).rpartition("@")
        try:
            seconds = float(time)
        except ValueError:
            seconds = float("nan")
        if not (device and at and 0 <= seconds < float("inf")):
            self.fail(
                f"'{value}' is no DEVICE@TIME, as pi-3@120, in seconds from 0 on.", param, ctx
            )
        return device, seconds


class _Speed(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """A positive number, or ``inf``."""

    name = "NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            speed = float(value)
        except ValueError:
            speed = float("nan")
        if not speed > 0:
            self.fail(f"'{value}' is no positive number, nor inf.", param, ctx)
        return speed


def change_options(function: AnyFunction) -> AnyFunction:
    """Add the options of this module to a command."""
    options = (
        click.option(
            "--fail",
            "fail",
            type=_Event(),
            multiple=True,
            help="This device is gone from then on [s], as pi-3@120; repeatable.",
        ),
        click.option(
            "--recover",
            "recover",
            type=_Event(),
            multiple=True,
            help="It is there again, with nothing loaded, as pi-3@300; repeatable.",
        ),
        click.option(
            "--load-gb-s",
            type=_Speed(),
            default=1.0,
            show_default=True,
            help="How fast a device loads weights when it is there again; inf: at once.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def read_changes(options: Mapping[str, Any]) -> Changes | None:
    """Return what ``--fail`` and ``--recover`` ask for; None where nothing fails.

    Raises
    ------
    InputError
        When a device recovers that has not failed.
    """
    from e2llm_opt.simulate.changes import Changes

    if not options["fail"] and not options["recover"]:
        return None
    faults: list[Fault] = []
    failures = list(_failures(options["fail"], options["recover"], faults))
    if faults:
        raise InputError(faults)
    return Changes(failures=failures, load_bytes_per_s=options["load_gb_s"] * GB_PER_S)


def warn_of_late_failures(changes: Changes | None, arrivals: Trace, *, quiet: bool) -> None:
    """Say of each failure after which no request arrives that it is late."""
    last_s = float(arrivals.arrival_s[-1])
    for failure in () if changes is None or quiet else changes.failures:
        if failure.at_s > last_s:
            late = f"nothing arrives after the {failure}: the last request comes at {last_s:.0f} s"
            click.echo(f"Warning: {late}; --requests simulates more of them.", err=True)


def _failures(
    fails: Sequence[tuple[str, float]], recovers: Sequence[tuple[str, float]], faults: list[Fault]
) -> Iterator[Failure]:
    """Give each recovery to the last failure of its device before it."""
    from e2llm_opt.simulate.changes import Failure

    until: dict[int, float] = {}
    for device, time in sorted(recovers, key=lambda event: event[1]):
        own = [k for k, (name, _) in enumerate(fails) if name == device]
        before = [k for k in own if fails[k][1] <= time and k not in until]
        if before:
            until[max(before, key=lambda k: fails[k][1])] = time
            continue
        wrong = f"'{device}' does not fail"
        if own:
            wrong = f"'{device}' has not failed at that time"
        right = f"give a --fail {device}@TIME before it"
        faults.append(Fault(path=f"--recover {device}@{time:g}", wrong=wrong, right=right))
    for k, (device, time) in enumerate(fails):
        yield Failure(device=device, at_s=time, recover_s=until.get(k))


def described_changes(changes: Changes) -> dict[str, Any]:
    """Return how devices were to fail, for the JSON answer."""
    events = {
        "fail": [[own.device, own.at_s] for own in changes.failures],
        "recover": [
            [own.device, own.recover_s] for own in changes.failures if own.recover_s is not None
        ],
    }
    speed = changes.load_bytes_per_s / GB_PER_S
    return {**events, "load_gb_s": speed if speed < float("inf") else None}
