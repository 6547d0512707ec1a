"""A simulation on one screen: how long requests waited and took, and what was busy."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from e2llm_opt.report.quantities import number, percent, rate, seconds
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from e2llm_opt.simulate.summary import Disturbance, Summary
    from e2llm_opt.workload.workload import Workload

_TIMES = (
    ("waiting time", "waiting_time_s"),
    ("  before prefill", "wait_prefill_s"),
    ("  KV transfer", "wait_kv_s"),
    ("  before decode", "wait_decode_s"),
    ("TTFT", "ttft_s"),
    ("TPOT", "tpot_s"),
    ("latency", "latency_s"),
)
_ROLE_STYLES = {"PREFILL": "cyan", "DECODE": "green", "MIXED": "magenta"}
_STATE_STYLES = {"open": "green", "down": "bold red", "loading": "yellow", "draining": "yellow"}
_BUSY = 0.9
"""Utilisation from which a figure is yellow."""
_LISTED_LINKS = 12


def print_simulation(
    summary: Summary, workload: Workload, num_requests: int, file: IO[str]
) -> None:
    """Print *summary*; of *num_requests* that were asked for, fewer may have been simulated."""
    show(file, *_parts(summary, workload, num_requests))


def _parts(summary: Summary, workload: Workload, num_requests: int) -> Iterator[RenderableType]:
    yield from _headline(summary, num_requests)
    yield from section("Times", _times(summary))
    limits = _limits(summary, workload)
    if limits is not None:
        yield from section("Service levels", limits)
    yield from section("Replicas", _replicas(summary))
    if summary.links:
        yield from section("Links", _links(summary))
    if summary.changes is not None:
        yield from section("Changes", Group(*_changes(summary.changes)))


def _headline(summary: Summary, num_requests: int) -> Iterator[Text]:
    requests, arrived, served = summary.requests, summary.arrivals, summary.throughput
    if requests.simulated < num_requests:
        line = f"Interrupted: the first {requests.simulated} of {num_requests} requests."
        yield Text(line, style="yellow")
    warmup = f", the first {requests.warmup} to warm up" if requests.warmup else ""
    yield Text(f"{requests.simulated} requests at {rate(arrived.rate_per_s)}{warmup}")
    yield Text(
        f"served {rate(served.requests_per_s)}, {number(served.output_tokens_per_s)} tokens/s of "
        "answers"
    )
    if requests.rejected:
        line = f"{requests.rejected} rejected: longer than what any slots hold"
        yield Text(line, style="bold red")
    if requests.unserved:
        line = f"{requests.unserved} without an answer: no replica was there any more"
        yield Text(line, style="bold red")
    trend = summary.trend
    halves = f"{seconds(trend.first_half_s)}, then {seconds(trend.second_half_s)}"
    if trend.verdict == "drifting":
        yield Text(f"Drifting: waits grow from half to half, {halves}.", style="bold red")
    elif trend.verdict == "stable":
        yield Text(f"stable: mean wait of the first half {halves}", style="green")
    else:
        yield Text("too few requests to tell whether waits grow")


def _times(summary: Summary) -> Table:
    answer = table("", "mean", "P50", "P90", "P99", right=range(1, 5))
    for name, field in _TIMES:
        spread = getattr(summary, field)
        answer.add_row(name, *map(seconds, (spread.mean, spread.p50, spread.p90, spread.p99)))
    return answer


def _limits(summary: Summary, workload: Workload) -> Table | None:
    """Return the share of requests within each limit; None where there is no limit."""
    met, least = summary.slo, workload.min_tokens_per_s
    rows = (
        (f"TTFT up to {seconds(workload.slo_ttft_s)}", met.ttft),
        (f"TPOT up to {seconds(workload.slo_tpot_s)}", met.tpot),
        (f"at least {number(least)} tokens/s", met.min_tokens_per_s),
        ("all of them", met.every),
    )
    given = [(name, share) for name, share in rows if share is not None]
    if not given:
        return None
    answer = table("limit", "met by", right=(1,))
    for name, share in given[: -1 if len(given) == 2 else None]:  # noqa: PLR2004 - one limit: all
        answer.add_row(name, percent(share))
    return answer


def _replicas(summary: Summary) -> Table:
    answer = table(
        *("replica", "requests", "waiting", "utilisation", "device", "computes"), right=(1, 2, 3, 5)
    )
    for replica in summary.replicas:
        name = Text(f"{replica.id} {replica.role}", style=_ROLE_STYLES.get(replica.role, ""))
        own: list[Text | str] = [
            name,
            str(replica.requests),
            number(replica.mean_queue),
            _busy(replica.utilisation),
        ]
        for device in summary.devices:
            if device.replica == replica.id:
                answer.add_row(*own, device.device, _busy(device.utilisation))
                own = [Text(""), "", "", Text("")]
    return answer


def _links(summary: Summary) -> Table:
    answer = table("link", "direction", "busy", "waiting", right=(2, 3))
    for link in summary.links[:_LISTED_LINKS]:
        kind = "" if link.kind == "link" else f"{link.kind} "
        answer.add_row(
            f"{kind}{link.name}", link.direction, _busy(link.utilisation), number(link.mean_queue)
        )
    hidden = len(summary.links) - _LISTED_LINKS
    if hidden > 0:
        answer.add_row(f"{hidden} more", "", Text("less"), "")
    return answer


def _changes(found: Disturbance) -> Iterator[RenderableType]:
    """Yield what changes cost, and what each device did."""
    yield Text(
        f"{found.requests_retried} requests begun anew, {found.tokens_twice} tokens lost and "
        "computed again"
    )
    waits = table("arrived", "mean wait", right=(1,))
    for name, wait in (
        ("before", found.wait_before_s),
        ("during", found.wait_during_s),
        ("after", found.wait_after_s),
    ):
        waits.add_row(f"{name} the changes", seconds(wait))
    yield waits
    spans = table("device", "from", "until", "is", "for", right=(1, 2))
    last = ""
    for span in found.timeline:
        name, last = "" if span.device == last else span.device, span.device
        style = _STATE_STYLES.get(span.state, "")
        spans.add_row(
            name,
            seconds(span.from_s),
            seconds(span.until_s),
            Text(span.state, style=style),
            span.replica or "",
        )
    yield spans


def _busy(share: float) -> Text:
    return Text(percent(share), style="yellow" if share > _BUSY else "")
