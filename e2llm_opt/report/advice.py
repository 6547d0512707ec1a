"""Advice on one screen: what is there now, what to change and what it gains; or what to buy."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import UNKNOWN, number, percent, rate, seconds
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from e2llm_opt.advise.advice import Advice, AdviceRow
    from e2llm_opt.advise.sizing import Sizing

_RANKED = {
    "money": "Ranked by gain in capacity a dollar",
    "power": "Ranked by gain in capacity a watt",
    "capacity": "Ranked by gain in capacity",
    "waiting_time": "Ranked by gain in waiting time",
}
_APART = {"money": "Without a price", "power": "Without power"}


def print_advice(advice: Advice, file: IO[str]) -> None:
    """Print what there is now, the ranked changes, those without a price, and what may go."""
    show(file, *_advice(advice))


def _advice(advice: Advice) -> Iterator[RenderableType]:
    now = Text("Now: ", style="bold")
    now.append(
        f"capacity {rate(advice.capacity_per_s)}, waiting time {_wait(advice)}", style="not bold"
    )
    yield now
    if advice.reason:
        yield Text(f"no plan: {advice.reason}", style="red")
    bought = [row for row in advice.rows if row.kind != "retire"]
    ranked, apart = bought[: advice.num_ranked], bought[advice.num_ranked :]
    retired = [row for row in advice.rows if row.kind == "retire"]
    given_up = [row for row in ranked if row.gives_up]
    if ranked:
        yield from section(_RANKED[advice.by], _ranks(ranked))
    if given_up:
        lines = (f"{row.change}: {row.gives_up}" for row in given_up)
        yield from section("Given up", Text("\n".join(lines)))
    if apart:
        yield from section(_APART.get(advice.by, "Others"), _others(apart))
    untried = advice.untried
    if not bought and (untried.dominated or untried.bounded or untried.late or not retired):
        yield Text("No change that was tried gains anything.")
    if retired:
        yield from section("Retire: what is lost", _retired(retired))
    yield from _notes(advice)


def _wait(one: Advice | AdviceRow) -> str:
    return seconds(one.waiting_time_s) if one.is_stable else "unstable"


def _ranks(rows: Sequence[AdviceRow]) -> Table:
    answer = table(
        *("", "change", "capacity", "gain", "waiting", "USD", "W", "gain/\n1000 USD"),
        "gain/\n100 W",
        right=(0, *range(2, 9)),
        dense=True,
    )
    for rank, row in enumerate(rows, start=1):
        answer.add_row(
            str(rank),
            row.change,
            rate(row.capacity_per_s),
            rate(row.capacity_gain_per_s),
            _wait(row),
            number(row.price),
            number(row.power_w),
            _per(row.gain_per(row.price), 1000),
            _per(row.gain_per(row.power_w), 100),
        )
    return answer


def _others(rows: Sequence[AdviceRow]) -> Table:
    answer = table(
        *("", "change", "capacity", "gain", "waiting", "gives up"), right=(0, 2, 3, 4), dense=True
    )
    for row in rows:
        answer.add_row(
            "-",
            row.change,
            rate(row.capacity_per_s),
            rate(row.capacity_gain_per_s),
            _wait(row),
            row.gives_up,
        )
    return answer


def _per(gain: float | None, amount: float) -> str:
    return UNKNOWN if gain is None else rate(gain * amount)


def _dollars(price: float | None) -> str:
    return UNKNOWN if price is None else f"{number(price)} USD"


def _watts(power_w: float | None) -> str:
    return UNKNOWN if power_w is None else f"{number(power_w)} W"


def _retired(rows: Sequence[AdviceRow]) -> Table:
    answer = table(
        *("", "change", "capacity", "loss", "waiting", "W saved", "USD new"),
        right=(0, *range(2, 7)),
        dense=True,
    )
    for row in rows:
        answer.add_row(
            "-",
            row.change,
            rate(row.capacity_per_s),
            "none" if row.capacity_gain_per_s == 0 else rate(-row.capacity_gain_per_s),
            _wait(row),
            number(None if row.power_w is None else -row.power_w),
            number(None if row.price is None else -row.price),
        )
    return answer


def _notes(advice: Advice) -> Iterator[RenderableType]:
    untried, lines = advice.untried, list(advice.warnings)
    if untried.dominated:
        lines.append(f"{untried.dominated} types: another is as fast and as large, and no dearer")
    if untried.bounded:
        lines.append(f"{untried.bounded} types: a bound says that they cannot be among the best")
    if untried.late:
        lines.append(f"{untried.late} changes were not tried for lack of time")
    lines += [f"{device} stays: {why}" for device, why in untried.kept.items()]
    if lines:
        yield from section("Notes", Text("\n".join(lines), style="yellow"))


def print_sizing(sizing: Sizing, file: IO[str]) -> None:
    """Print the devices to buy, what they cost, how far from the bound that is, and their plan."""
    show(file, *_sizing(sizing))


def _sizing(sizing: Sizing) -> Iterator[RenderableType]:
    names = ", ".join(f"{num} x {name}" for name, num in sizing.devices.items())
    yield Text(names, style="bold")
    yield Text(f"{_dollars(sizing.price)}, {_watts(sizing.power_w)}")
    unit = "USD" if sizing.target.by == "money" else "W"
    bound = f"no catalogue devices that do it cost less than {number(sizing.bound)} {unit}"
    if sizing.gap > 0:
        bound += f"; these are {percent(sizing.gap)} above"
    yield Text(f"Bound: {bound}.")
    if sizing.is_cheapest:
        yield Text("Every cheaper set was ruled out: by this bound, or by planning it.")
    figures = sizing.plan.predicted
    yield from section(
        "Plan",
        Text(
            f"{sizing.plan.summary()}\nTTFT {seconds(figures.ttft_s)}, TPOT "
            f"{seconds(figures.tpot_s)}; {sizing.tried} sets were planned"
        ),
    )
    yield from section("Notes", Text("\n".join(sizing.warnings), style="yellow"))
