"""The catalogue as tables: what an inventory file may name, and where the figures come from."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.table import Table

from e2llm_opt.catalogue.catalogue import DeviceEntry, ModelEntry, RuntimeRow, WeightFormatRow
from e2llm_opt.predict.evidence import device_evidence
from e2llm_opt.report.quantities import number
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    Entry = DeviceEntry | ModelEntry | WeightFormatRow | RuntimeRow

_DEVICE = ("device", "memory", "GiB", "GB/s", "TFLOPS", "W", "name")
_MODEL = ("model", "layers", "hidden", "parameters\n(10^9)", "context")
_WEIGHTS = ("format", "attention", "FFN", "experts", "embedding", "head", "KV cache")
_RUNTIME = ("runtime", "GiB", "hop ms", "slots", "pipelined", "moves KV", "topology")


def print_catalogue(entries: Sequence[Entry], file: IO[str]) -> None:
    """Print *entries* of one kind, one a row; bits a parameter for weight formats."""
    headers, numbers = {
        DeviceEntry: (_DEVICE, range(2, 6)),
        ModelEntry: (_MODEL, range(1, 5)),
        WeightFormatRow: (_WEIGHTS, range(1, 7)),
        RuntimeRow: (_RUNTIME, range(1, 4)),
    }[type(entries[0])]
    answer: Table = table(*headers, right=numbers)
    for entry in entries:
        answer.add_row(*_row(entry))
    show(file, answer)


def print_evidence(entries: Sequence[DeviceEntry], file: IO[str]) -> None:
    """Print every number of *entries* with its evidence, and the sources below."""
    rows = table("device", "number", "value", "evidence", right=(2,))
    sources: dict[str, None] = {}
    for entry in entries:
        for i, one in enumerate(device_evidence(entry)):
            sources.setdefault(one.source)
            mark = f"{one.evidence} [{list(sources).index(one.source) + 1}]"
            rows.add_row(entry.key if i == 0 else "", one.number, number(one.value), mark)
    listed = Table.grid(padding=(0, 1, 0, 0))
    listed.add_column()
    listed.add_column(overflow="fold")
    for i, source in enumerate(sources, start=1):
        listed.add_row(f"[{i}]", source)
    show(file, rows, *section("Sources", listed))


def _row(entry: Entry) -> tuple[str, ...]:
    if isinstance(entry, DeviceEntry):
        figures = (entry.memory_gib, entry.memory_bandwidth_gb_s, entry.fp16_tflops, entry.power_w)
        return (entry.key, entry.memory_kind, *map(number, figures), entry.name)
    if isinstance(entry, ModelEntry):
        shape = (entry.facts.get("num_hidden_layers"), entry.facts.get("hidden_size"))
        return (
            entry.key,
            *("" if size is None else str(size) for size in shape),
            number(entry.params_b),
            "" if entry.max_context_tokens is None else str(entry.max_context_tokens),
        )
    if isinstance(entry, WeightFormatRow):
        bits = (entry.attention_bits, entry.ffn_bits, entry.experts_bits, entry.embedding_bits)
        return (entry.key, *map(number, (*bits, entry.head_bits, entry.kv_cache_bits)))
    return (
        entry.key,
        *map(number, (entry.overhead_gib, entry.hop_overhead_ms, entry.max_slots)),
        "yes" if entry.pipelined else "no",
        "yes" if entry.disaggregation else "no",
        entry.topology,
    )
