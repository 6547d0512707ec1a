"""Changes that may make a plan possible, the cheapest first.

First what costs a line in the file and gives something up (context, slots, speed, a constraint),
then machines and memory that are there already (an excluded device, host RAM), then what must be
fetched anew (smaller weights), then another engine.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.partition.partition import best_cut, decode_demand
from e2llm_opt.runtime import runtime
from e2llm_opt.units import GB_PER_S, GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.shortage import Shortage
    from e2llm_opt.search.trials import Trials

Change = tuple[str, "Problem"]
"""What to write into the inventory file, and the problem that makes."""

_CONTEXT_STEP = 256
_GGUF = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "q2_k")
_LADDERS = {
    "vllm": ("fp8", "awq"),
    "sglang": ("fp8", "awq"),
    "parallax": ("fp8", "awq"),
    "petals": ("int8", "nf4"),
    "exo": ("mlx_8bit", "mlx_6bit", "mlx_4bit", "mlx_3bit"),
}
"""Weight formats that an engine's users go down, the best first; GGUF's for all others."""
_GGUF_ENGINES = ("llama.cpp", "prima.cpp")
_TENSOR_ENGINES = ("vllm", "sglang", "parallax", "petals")
_HOST_GB_S = 40.0
"""Two channels of DDR4-3200 (51.2 GB/s peak), as far as decoding reaches it."""
_BUS_GB_S = 12.0
"""PCIe 3.0 x16 or 4.0 x8 (15.8 GB/s peak), less protocol and pageable memory."""


def changes(problem: Problem, shortage: Shortage, trials: Trials) -> Iterator[Change]:
    """Yield changes that may help, the cheapest first; each must still be verified."""
    lacks_memory = not shortage.is_held and not shortage.has_no_legal_cut
    if lacks_memory:
        yield from _smaller_context(problem)
    yield from _fewer_slots(problem, trials)
    if shortage.is_held and problem.workload.slowest_tpot_s < math.inf:
        yield from _lower_floor(problem, trials)
    yield from _fewer_constraints(problem)
    yield from _included(problem, trials)
    if lacks_memory:
        yield from _spilled(problem)
    yield from _smaller_weights(problem, trials)
    yield from _other_engine(problem, trials)


def lower_rate(problem: Problem, rate_per_s: float) -> Iterator[Change]:
    """Yield *rate_per_s*, to two digits, where that is less than what arrives."""
    workload = problem.workload
    if rate_per_s <= 0:
        return
    digits = 10.0 ** (1 - math.floor(math.log10(rate_per_s)))
    rate = math.floor(rate_per_s * digits * (1 - 1e-6)) / digits
    if 0 < rate < workload.rate_per_s:
        yield f"rate_per_s: {rate:g}", replace(problem, workload=replace(workload, rate_per_s=rate))


def is_held(problem: Problem, slots: int) -> bool:
    """Whether some cut of all devices that may be used holds the model and *slots* requests."""
    costs = costs_of(problem)
    names = problem.constraints.exclude
    rows = tuple(d for d, device in enumerate(problem.devices) if device.name not in names)
    return best_cut(costs, rows, decode_demand(costs, slots, 1), "any") is not None


def freed(problem: Problem) -> Problem:
    """Return *problem* without the constraints that say which device must hold what."""
    limits = replace(problem.constraints, use_all_devices=False, pin=(), layers=())
    return replace(problem, constraints=limits)


def _smaller_context(problem: Problem) -> Iterator[Change]:
    """Yield the largest multiple of 256 tokens whose KV cache some cut of all devices holds."""
    slots = problem.workload.slots or 1

    def smaller(tokens: int) -> Problem:
        return replace(problem, workload=replace(problem.workload, context_tokens=tokens))

    low, high = 0, -(-problem.workload.context_tokens // _CONTEXT_STEP)
    while high - low > 1:
        middle = (low + high) // 2
        holds = is_held(freed(smaller(middle * _CONTEXT_STEP)), slots)
        low, high = (middle, high) if holds else (low, middle)
    if low:
        yield f"context_tokens: {low * _CONTEXT_STEP}", smaller(low * _CONTEXT_STEP)


def _fewer_slots(problem: Problem, trials: Trials) -> Iterator[Change]:
    for slots in range((problem.workload.slots or 1) - 1, 0, -1):
        changed = replace(problem, workload=replace(problem.workload, slots=slots))
        if trials.is_feasible(changed):
            yield f"slots: {slots}", changed
            return


def _lower_floor(problem: Problem, trials: Trials) -> Iterator[Change]:
    """Yield the highest speed floor that is feasible, to two digits, where it is the limit."""
    workload = problem.workload
    low, high = 0.0, 1 / workload.slowest_tpot_s
    for _ in range(12):
        middle = (low + high) / 2
        slower = replace(workload, min_tokens_per_s=middle, slo_tpot_s=None)
        if trials.is_feasible(replace(problem, workload=slower)):
            low = middle
        else:
            high = middle
    digits = 10.0 ** (1 - math.floor(math.log10(low))) if low > 0 else 1.0
    speed = math.floor(low * digits) / digits
    if speed > 0:
        yield from _slower(problem, speed)


def _slower(problem: Problem, speed: float) -> Iterator[Change]:
    """Yield the limits that ask for more than *speed* [tokens/s], lowered to it."""
    workload, words = problem.workload, []
    if workload.min_tokens_per_s > speed:
        workload = replace(workload, min_tokens_per_s=speed)
        words.append(f"min_tokens_per_s: {speed:g}")
    if workload.slo_tpot_s is not None and workload.slo_tpot_s * speed < 1:
        slowest_s = math.ceil(1e4 / speed) / 1e4
        workload = replace(workload, slo_tpot_s=slowest_s)
        words.append(f"slo.tpot_s: {slowest_s:g}")
    yield ", ".join(words), replace(problem, workload=workload)


def _fewer_constraints(problem: Problem) -> Iterator[Change]:
    constraints, workload = problem.constraints, problem.workload
    for survive in range(constraints.survive - 1, -1, -1):
        fewer = replace(constraints, survive=survive)
        text = f"constraints.survive: {survive or 'leave it out'}"
        yield text, replace(problem, constraints=fewer)
    if workload.slo_ttft_s is not None:
        free = replace(workload, slo_ttft_s=None)
        yield "slo.ttft_s: leave it out", replace(problem, workload=free)
    for change, changed in (
        ("replicas: leave it out", replace(constraints, replicas=None)),
        ("use_all_devices: false", replace(constraints, use_all_devices=False)),
        ("roles: auto", replace(constraints, roles="auto")),
        ("layers: leave it out", replace(constraints, layers=())),
        ("pin: leave it out", replace(constraints, pin=())),
    ):
        if changed != constraints:
            yield f"constraints.{change}", replace(problem, constraints=changed)


def _included(problem: Problem, trials: Trials) -> Iterator[Change]:
    """Yield the excluded devices that alone would do, else all of them together."""
    excluded = problem.constraints.exclude
    if not excluded:
        return

    def without(names: tuple[str, ...]) -> Problem:
        return replace(problem, constraints=replace(problem.constraints, exclude=names))

    alone = [tuple(other for other in excluded if other != name) for name in excluded]
    useful = [names for names in alone if trials.is_feasible(without(names))]
    for names in useful or [()]:
        yield f"constraints.exclude: [{', '.join(names)}]", without(names)


def _spilled(problem: Problem) -> Iterator[Change]:
    """Yield the least host RAM that one card, or else all cards together, would need."""
    if not sum(problem.model.layer_spillable_bytes):
        return
    # RAM that a device of the same host computes in is not to be had.
    taken = {d.host for d in problem.devices if d.memory_kind is not MemoryKind.DISCRETE}
    cards = [
        device.name
        for device in problem.devices
        if device.host not in taken
        and not device.can_spill
        and device.name not in problem.constraints.exclude
    ]
    most = math.ceil(
        (sum(problem.model.layer_spillable_bytes) + problem.model.embedding_bytes) / GIB
    )
    slots = problem.workload.slots or 1

    def least(names: Iterable[str]) -> int | None:
        chosen = set(names)
        return _least(most, lambda gib: is_held(freed(_with_host_ram(problem, chosen, gib)), slots))

    alone = [(gib, name) for name in cards if (gib := least([name])) is not None]
    if alone:
        order = [problem.devices[d].name for d in costs_of(problem).classes.order]
        gib, name = min(alone, key=lambda found: (found[0], order.index(found[1])))
        chosen = [name]
    elif len(cards) > 1 and (found := least(cards)) is not None:
        gib, chosen = found, cards
    else:
        return
    speeds = f"host_bandwidth_gb_s: {_HOST_GB_S:g}, bus_gb_s: {_BUS_GB_S:g}"
    text = f"devices {', '.join(chosen)}: {{host_memory_gib: {gib}, {speeds}}}"
    yield text, _with_host_ram(problem, set(chosen), gib)


def _least(most: int, fits: Callable[[int], bool]) -> int | None:
    """Return the least of 1 … *most* that *fits*; None where not even the most does."""
    low, high = 0, most
    if not fits(most):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _with_host_ram(problem: Problem, names: set[str], gib: int) -> Problem:
    devices = tuple(
        replace(
            device,
            host_memory_bytes=gib * GIB,
            host_bandwidth_bytes_per_s=_HOST_GB_S * GB_PER_S,
            bus_bytes_per_s=_BUS_GB_S * GB_PER_S,
        )
        if device.name in names
        else device
        for device in problem.inventory.devices
    )
    return problem.with_devices(devices)


def _smaller_weights(problem: Problem, trials: Trials) -> Iterator[Change]:
    """Yield the first format down the engine's ladder that is feasible."""
    for name in lighter_weights(problem):
        changed = replace(problem, weights=name)
        if trials.is_feasible(changed):
            yield f"weights: {name}", changed
            return


def lighter_weights(problem: Problem) -> Iterator[str]:
    """Yield the formats down the engine's ladder whose weights are smaller, the largest first.

    None where a file has weights of its own.
    """
    if problem.facts.layer_weight_bytes is not None:
        return
    for name in _LADDERS.get(problem.runtime.name, _GGUF):
        if replace(problem, weights=name).model.weight_bytes < problem.model.weight_bytes:
            yield name


def _other_engine(problem: Problem, trials: Trials) -> Iterator[Change]:
    """Yield the first other engine that reads the same weights and makes a plan possible."""
    for name in _readers(problem.weights):
        if name == problem.runtime.name:
            continue
        try:
            changed = replace(problem, runtime=runtime(name))
        except InputError:  # an engine without roles, or with fewer slots
            continue
        if trials.is_feasible(changed):
            yield f"runtime: {name}", changed
            return


def _readers(weights: str) -> tuple[str, ...]:
    """Return the engines that read a weight format, those with the least overhead first."""
    if weights.startswith("mlx"):
        return ("exo",)
    if weights in {"f16", "bf16", "f32"}:
        return (*_GGUF_ENGINES, "exo", *_TENSOR_ENGINES)
    if re.match(r"i?q\d|mxfp4$|gguf", weights):
        return _GGUF_ENGINES
    return _TENSOR_ENGINES
