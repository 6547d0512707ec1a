"""The two other answers: why there is no plan, and what is wrong with one."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import rate, size
from e2llm_opt.report.screen import section, show, table
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from e2llm_opt.check.verdict import Report, Violation
    from e2llm_opt.plan.infeasible import Infeasible


def print_infeasible(answer: Infeasible, file: IO[str]) -> None:
    """Print why there is no plan: who lacks what, and which changes help."""
    show(file, *_infeasible(answer))


def print_check(report: Report, file: IO[str]) -> None:
    """Print what is wrong with a plan, or that nothing is."""
    if report.valid:
        replicas = _counted(len(report.replicas), "replica")
        line = f"The plan is valid: {replicas}, capacity {rate(report.capacity_per_s)}."
        show(file, Text(line, style="green"))
        return
    violations = _counted(len(report.violations), "violation")
    answer = table("device", "what", "need", "have")
    for violation in report.violations:
        answer.add_row(
            violation.device or "",
            violation.what,
            _amount(violation, violation.need),
            _amount(violation, violation.have),
        )
    show(file, Text(f"The plan is not valid: {violations}.", style="bold red"), answer)


def _infeasible(answer: Infeasible) -> Iterator[RenderableType]:
    yield Text("There is no plan.", style="bold red")
    yield Text(answer.reason)
    devices = table("device", "need", "have", "missing", right=(1, 2, 3))
    for device in answer.devices:
        missing = max(0, device.need_bytes - device.have_bytes)
        devices.add_row(
            device.device,
            size(device.need_bytes),
            size(device.have_bytes),
            size(missing) if missing else "",
        )
    yield from section("Devices", devices)
    sums = (
        f"in all {size(answer.total_bytes)}, of which KV cache {size(answer.kv_cache_bytes)}; "
        f"short of {size(answer.shortfall_bytes)}"
    )
    yield Text(f"\n{sums}" if answer.shortfall_bytes else "")
    lines = [f"{entry.change}   makes it {entry.makes}" for entry in answer.suggestions]
    if not lines and answer.shortfall_bytes:
        lines = [
            "no smaller weights, shorter context or looser limit that was tried",
            "e2llm-opt advise INVENTORY --target-rate RATE   finds the cheapest devices to buy",
        ]
    if lines:
        yield from section("What would help", Text("\n".join(lines), style="green"))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _amount(violation: Violation, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    # More figures than elsewhere: what is asked and what there is may differ in the last one.
    return f"{value / GIB:.3f} GiB" if "memory" in violation.what else f"{value:.6g}"
