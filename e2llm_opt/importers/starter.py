"""A first inventory for a newcomer: every line that is there is explained."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from e2llm_opt.catalogue.catalogue import device_entry
from e2llm_opt.loading.inventory_items import written
from e2llm_opt.loading.load import problem_from_mapping

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_MBIT_S = 940.0
"""What one stream gets of gigabit Ethernet [Mbit/s]."""
DEFAULT_LATENCY_MS = 0.2
"""One way through a switch at home [ms]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A link between two devices; ``between`` is empty for one network that joins all."""

    between: tuple[str, ...] = ()
    bandwidth_mbit_s: float = DEFAULT_MBIT_S
    latency_ms: float = DEFAULT_LATENCY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """What a first inventory says.

    Parameters
    ----------
    devices
        Name and catalogue type of each.
    wires
        Links; where there are none, a switch joins all devices.
    model, weights, runtime
        What is served, in which weight format (empty: a ``.gguf`` has its own), by which engine.
    rate_per_s, prompt_tokens, output_tokens
        The requests.
    """

    devices: Sequence[tuple[str, str]]
    wires: Sequence[Wire] = ()
    model: str = "llama-3.1-8b"
    weights: str = "q4_k_m"
    runtime: str = "llama.cpp"
    rate_per_s: float = 0.05
    prompt_tokens: float = 600
    output_tokens: float = 300


def starter_text(starter: Starter, *, file: str = "inventory.yaml") -> str:
    """Return the YAML text of a first inventory.

    Parameters
    ----------
    starter
        What it says.
    file
        What it will be called, for the commands in its comments.

    Raises
    ------
    InputError
        With everything that is wrong with *starter*: unknown types, names that are taken …
    """
    problem_from_mapping(_mapping(starter))
    parts = (_head(file), _devices(starter), _links(starter), _served(starter), _asked(starter))
    return "\n".join(parts)


def _wires(starter: Starter) -> list[Wire]:
    if starter.wires or len(starter.devices) == 1:
        return list(starter.wires)
    return [Wire()]


def _mapping(starter: Starter) -> dict[str, Any]:
    """Return what the text says, to be checked before it is written."""
    links: list[dict[str, Any]] = []
    for wire in _wires(starter):
        ends: dict[str, Any] = {"between": list(wire.between)}
        if not wire.between:
            ends = {"between": "all", "via": _switch(starter)}
        rates = {"bandwidth_mbit_s": wire.bandwidth_mbit_s, "latency_ms": wire.latency_ms}
        links.append(ends | rates)
    weights = {"weights": starter.weights} if starter.weights else {}
    return {
        "devices": [{"name": name, "type": kind} for name, kind in starter.devices],
        "links": links,
        "model": starter.model,
        **weights,
        "runtime": starter.runtime,
        "workload": {
            "rate_per_s": starter.rate_per_s,
            "prompt_tokens": starter.prompt_tokens,
            "output_tokens": starter.output_tokens,
        },
    }


def _switch(starter: Starter) -> str:
    """Return a name for the switch that no device has."""
    names = {name for name, _ in starter.devices}
    return next(name for name in ("lan", "switch", "network", "lan-0") if name not in names)


def _head(file: str) -> str:
    name = "".join(char if char.isprintable() else "?" for char in shlex.quote(file))
    return (
        "# The machines, and what they shall serve.\n"
        "#\n"
        f"# Next:  e2llm-opt plan {name}\n"
        "# Every key is explained in docs/file-formats.md.\n"
    )


def _devices(starter: Starter) -> str:
    lines = [
        "devices:",
        "  # `type` is an entry of the catalogue (e2llm-opt catalog devices). It brings memory,",
        "  # bandwidth and compute; what you write beside it wins, such as memory_gib: 12.",
    ]
    for name, kind in starter.devices:
        entry = device_entry(kind)
        lines.append(f"  - name: {written(name)}")
        about = f"{entry.memory_gib:g} GiB, {entry.memory_bandwidth_gb_s:g} GB/s"
        lines.append(f"    type: {written(entry.key)}   # {entry.name}: {about}")
        lines.append(
            f"    reserved_gib: {entry.reserved_gib:.6g}   # for the system, other programs"
        )
    return "\n".join(lines) + "\n"


def _links(starter: Starter) -> str:
    wires = _wires(starter)
    if not wires:
        return "# links:   # none: there is one machine\n"
    lines = [
        "links:",
        "  # Measure these: bandwidth is what iperf3 -c HOST shows for one stream, latency half of",
        "  # what ping shows. e2llm-opt import iperf3 FILE --into this file does it for you.",
    ]
    for wire in wires:
        rates = f"    bandwidth_mbit_s: {wire.bandwidth_mbit_s:.15g}   # each direction"
        if wire.bandwidth_mbit_s == DEFAULT_MBIT_S:
            rates += "; what gigabit Ethernet gives"
        if wire.between:
            lines.append(f"  - between: {written(list(wire.between))}")
        else:
            lines.append("  - between: all")
            lines.append(
                f"    via: {written(_switch(starter))}   # a switch: neither device nor host"
            )
        lines += [rates, f"    latency_ms: {wire.latency_ms:.15g}   # one way"]
    return "\n".join(lines) + "\n"


def _served(starter: Starter) -> str:
    weights = f"weights: {written(starter.weights)}   # e2llm-opt catalog weights\n"
    weights = weights if starter.weights else "# weights: the .gguf has its own\n"
    return (
        f"model: {written(starter.model)}   # e2llm-opt catalog models, or a path to a config.json "
        "or .gguf\n"
        f"{weights}"
        f"runtime: {written(starter.runtime)}   # the engine: e2llm-opt catalog runtimes\n"
    )


def _asked(starter: Starter) -> str:
    return (
        "workload:\n"
        f"  rate_per_s: {starter.rate_per_s:.15g}   # requests a second, on average\n"
        f"  prompt_tokens: {starter.prompt_tokens:.15g}   # mean length of a prompt\n"
        f"  output_tokens: {starter.output_tokens:.15g}   # mean length of an answer\n"
        "  # context_tokens: 4096   # the longest request there is; else from the means\n"
        "  # min_tokens_per_s: 7    # every answer at least this fast\n"
        "\n"
        "objective: waiting_time   # or latency, throughput, max_context, cost\n"
    )
