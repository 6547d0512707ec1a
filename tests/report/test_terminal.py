"""The report: everything that matters, on one screen, plain in a pipe."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.plan.plan import Plan, UnusedDevice
from e2llm_opt.report.terminal import plan_report, print_plan
from tests.samples import overloaded_plan, replica, sample_plan, stage

if TYPE_CHECKING:
    from rich.console import RenderableType


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(plan: Plan, file: io.StringIO | None = None) -> str:
    file = file or io.StringIO()
    print_plan(plan, file)
    return file.getvalue()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    "words",
    [
        "llama-3.1-8b on 3 of 4 devices",
        "objective waiting_time, arrival rate 0.31/s",
        "r0 DECODE",
        "[17, 32)",
        "5.5/6.5",
        "1405",
        "24.7",
        "74 %",
        "waiting time 913 ms",
        "TTFT 740 ms",
        "TPOT 40 ms",
        "latency 25.5 s",
        "0.44/s, gap 5 %, proven bound",
        "r1 r0 0.31/s 72 MiB 610 ms",
        "waits 0.287 s longer",
        "2450",
        "phone: 3 GiB hold no whole layer",
        "the efficiency of phone is assumed",
    ],
)
def test_the_report_tells(words: str) -> None:
    assert words in " ".join(printed(sample_plan()).split())


@pytest.mark.parametrize("plan", [sample_plan(), overloaded_plan()], ids=["stable", "overloaded"])
@pytest.mark.parametrize("columns", [80, 120])
def test_the_report_fits_on_one_screen(
    plan: Plan, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(plan).splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 45


def test_a_pipe_gets_plain_ascii() -> None:
    text = printed(sample_plan())
    assert text.isascii()
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_terminal_gets_colours_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[36m" in printed(sample_plan(), Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in printed(sample_plan(), Terminal())


def test_a_plan_above_capacity_says_that_it_never_settles() -> None:
    text = " ".join(printed(overloaded_plan()).split())
    assert "waiting time -" in text
    assert "Not stable: 0.31/s arrive" in text
    assert "Not stable" not in printed(sample_plan())


def test_names_are_taken_literally() -> None:
    """A device called ``[red]`` is no colour, and ``:bug:`` no picture."""
    plan = sample_plan()
    plan = replace(
        plan,
        replicas=(replica("r0", "MIXED", stage("[red]x[/]", 0, 32)),),
        unused_devices=(UnusedDevice(device=":bug:", reason="[bold]slow"),),
    )
    text = printed(plan)
    assert "[red]x[/]" in text
    assert ":bug:: [bold]slow" in text


def test_figures_of_a_phase_that_a_replica_does_not_serve_are_left_out() -> None:
    lines = printed(sample_plan()).splitlines()
    decode = next(line for line in lines if "r0 DECODE" in line)
    prefill = next(line for line in lines if "r1 PREFILL" in line)
    assert "1405" not in decode
    assert "24.7" not in prefill
    mixed = replica("r0", "MIXED", stage("tower", 0, 32))
    line = next(
        line
        for line in printed(replace(sample_plan(), replicas=(mixed,))).splitlines()
        if "r0 MIXED" in line
    )
    assert "1405" in line
    assert "24.7" in line


def test_the_report_can_be_printed_elsewhere() -> None:
    from rich.console import Console

    report: RenderableType = plan_report(sample_plan())
    file = io.StringIO()
    Console(file=file, width=100).print(report)
    assert "Replicas" in file.getvalue()
