"""A prediction on one screen: both phases, what limits them, memory; or many, one a row."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import gib, number, percent, seconds, size
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from e2llm_opt.predict.prediction import PredictedPhase, Prediction

_LEAST_SHARE = 0.01
"""Causes that take less of the time are not listed."""


def print_predictions(found: Sequence[Prediction], file: IO[str]) -> None:
    """Print one prediction in full, or several as a table, one device a row."""
    show(file, *(_one(found[0]) if len(found) == 1 else _many(found)))


def _one(answer: Prediction) -> Iterator[RenderableType]:
    yield _headline(answer, " - ".join(stage.device for stage in answer.stages))
    yield from section("Speed", _phases(answer))
    yield from section("Memory", _memory(answer))
    yield from _notes([answer])


def _many(found: Sequence[Prediction]) -> Iterator[RenderableType]:
    yield _headline(found[0], f"each of {len(found)} devices")
    rows = table(
        *("device", "prefill\ntok/s", "limited by", "decode\ntok/s", "limited by", "GiB needed"),
        right=(1, 3, 5),
    )
    for answer in found:
        rows.add_row(
            answer.stages[0].device,
            _with_interval(answer.prefill),
            answer.prefill.bound_by,
            _with_interval(answer.decode),
            answer.decode.bound_by,
            _used(answer.need_bytes, answer.have_bytes, fits=answer.fits),
        )
    yield Text("")
    yield rows
    yield from _notes(found)


def _headline(answer: Prediction, where: str) -> Text:
    text = Text(answer.model, style="bold")
    text.append(f" {answer.weights} on {where}, runtime {answer.runtime}", "not bold")
    requests = "1 request" if answer.batch == 1 else f"{answer.batch} requests at once"
    text.append(
        f"\n{requests}, prompt {number(answer.prompt_tokens)} tokens, context "
        f"{answer.context_tokens} tokens, KV cache {answer.kv_cache}",
        "not bold",
    )
    return text


def _phases(answer: Prediction) -> Table:
    rows = table("phase", "tok/s", "80 % between", "time", "time goes to", right=(1, 2))
    rows.add_row("prefill", *_figures(answer.prefill, "a prompt"))
    rows.add_row("decode", *_figures(answer.decode, "a token"))
    return rows


def _figures(phase: PredictedPhase, what: str) -> tuple[str, ...]:
    low, high = phase.tokens_per_s_interval
    return (
        number(phase.tokens_per_s),
        f"{number(low)} - {number(high)}",
        f"{seconds(phase.seconds)} {what}",
        _causes(phase),
    )


def _causes(phase: PredictedPhase) -> str:
    shares = phase.shares
    taken = {
        "compute": shares.compute,
        "bandwidth": shares.bandwidth,
        "overhead": shares.overhead,
        "hop": shares.hop,
    }
    largest = sorted(taken.items(), key=lambda cause: -cause[1])
    return ", ".join(f"{cause} {percent(part)}" for cause, part in largest if part >= _LEAST_SHARE)


def _memory(answer: Prediction) -> Table:
    rows = table(
        *("device", "layers", "weights", "KV cache", "buffers", "GiB needed", "host RAM"),
        right=(2, 3, 4, 5, 6),
    )
    for stage in answer.stages:
        start, stop = stage.layers
        rows.add_row(
            stage.device,
            Text(f"[{start}, {stop})", no_wrap=True),
            gib(stage.weights_bytes),
            size(stage.kv_cache_bytes),
            gib(stage.overhead_bytes),
            _used(stage.need_bytes, stage.have_bytes, fits=stage.fits),
            gib(stage.host_bytes) if stage.host_bytes else "",
        )
    return rows


def _used(need: float, have: float, *, fits: bool) -> Text:
    return Text(f"{gib(need)}/{gib(have)}", style="" if fits else "bold red")


def _with_interval(phase: PredictedPhase) -> str:
    """Return the speed, and how far it may be off: four in five lie within that share of it."""
    wide = phase.tokens_per_s_interval[1] / phase.tokens_per_s - 1.0
    return f"{number(phase.tokens_per_s)} ±{100 * wide:.0f}%"


def _notes(found: Iterable[Prediction]) -> Iterator[RenderableType]:
    warnings = dict.fromkeys(warning for answer in found for warning in answer.warnings)
    if warnings:
        yield from section("Warnings", Text("\n".join(warnings), style="yellow"))
