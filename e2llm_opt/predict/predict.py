"""How fast devices serve a model, without planning: prefill, decode, memory, and what limits."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.bounds import decode_shares, prefill_shares
from e2llm_opt.cost.costs import Costs, costs_of
from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import decode, decode_stages, prefill
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.predict.cuts import best_cut, given_cut
from e2llm_opt.predict.prediction import PredictedPhase, PredictedStage, Prediction
from e2llm_opt.problem import Problem
from e2llm_opt.provenance import Provenance
from e2llm_opt.speed import LIKELY
from e2llm_opt.units import GIB, MBIT_PER_S, MS
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from e2llm_opt.cost.bounds import Shares
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.predict.prediction import Interval
    from e2llm_opt.runtime import Runtime

DEFAULT_PROMPT_TOKENS = 512
DEFAULT_ANSWER_TOKENS = 128
"""Generated tokens in the context where none is given."""
DEFAULT_BANDWIDTH_MBIT_S = 1000.0
"""Of the links between devices that are given without links."""
DEFAULT_LATENCY_MS = 0.2


def predict(
    devices: Inventory | Sequence[Device],
    facts: ModelFacts,
    runtime: Runtime,
    weights: str = "",
    *,
    batch: int = 1,
    context: int | None = None,
    prompt: float = DEFAULT_PROMPT_TOKENS,
    layers: Sequence[int] | None = None,
) -> Prediction:
    """Predict how fast *devices* serve a model, by the cost model of the planner.

    Parameters
    ----------
    devices
        One, or the devices of one pipeline; a sequence is linked pairwise as :func:`linked` does.
    facts, runtime, weights
        The model, the engine, and the weight format, else that of the model's file, else ``f16``.
    batch
        Requests decoded at once.
    context
        Tokens that each request holds in its KV cache when it decodes; the prompt and
        ``DEFAULT_ANSWER_TOKENS`` where none is given. Memory holds the longer of both.
    prompt
        Length of the prompt [tokens].
    layers
        Layers of each device, in pipeline order; None: the cut that decodes fastest.

    Raises
    ------
    InputError
        When a number is impossible, the layers are not those of the model, or no link leads from
        one stage to the next.

    Notes
    -----
    A model that does not fit into memory is predicted as if it did: ``fits`` is False and
    ``warnings`` say what is missing. The interval of a pipeline is that of all its devices being
    slow, or all fast, at once: no narrower than the truth.

    Examples
    --------
    >>> from e2llm_opt import device_of_type, model_facts, predict, runtime
    >>> card = device_of_type("rtx-4090", name="card")
    >>> answer = predict([card], model_facts("llama-3.1-8b"), runtime("generic"), "q4_k_m")
    >>> answer.decode.bound_by
    'bandwidth'
    """
    inventory = devices if isinstance(devices, Inventory) else linked(devices)
    problem = Problem(
        inventory=inventory,
        facts=facts,
        runtime=runtime,
        workload=_workload(prompt, context),
        weights=weights,
    )
    return predict_problem(problem, batch=batch, context=context, prompt=prompt, layers=layers)


def predict_problem(
    problem: Problem,
    devices: Sequence[int] | None = None,
    *,
    batch: int = 1,
    context: int | None = None,
    prompt: float = DEFAULT_PROMPT_TOKENS,
    layers: Sequence[int] | None = None,
) -> Prediction:
    """Predict how fast *devices*, rows of ``problem.devices`` (all), serve its model as one.

    Machines, links, model, formats and engine are the problem's; its workload, objective and
    constraints are of no concern. Devices of a catalogue type whose speeds nobody measured get
    those that were fitted to such devices (:func:`e2llm_opt.speed.fitted`). All else, and what is
    raised, is as in :func:`predict`.
    """
    _refuse(problem, batch, layers)
    problem = replace(problem, workload=_workload(prompt, context), constraints=Constraints())
    rows = tuple(range(len(problem.devices)) if devices is None else devices)
    cut = given_cut(problem, rows, layers) if layers else best_cut(problem, rows, batch, prompt)
    costs = costs_of(problem)
    spilled = _spilled(costs, cut, batch)
    figures = decode(costs, cut, batch, spilled)
    load = batch, int(figures.micro_batches[-1])
    stages = tuple(_stages(costs, cut, spilled, load, prompt))
    if not math.isfinite(figures.tpot_s[-1]):
        names = ", ".join(problem.devices[d].name for d, _, _ in cut)
        raise InputError(f"No link leads from each of these devices to the next: {names}.")
    used = [problem.devices[d] for d, _, _ in cut]
    unused = tuple(problem.devices[d].name for d in rows if problem.devices[d] not in used)
    return Prediction(
        model=problem.model.name,
        weights=problem.weights,
        kv_cache=problem.kv_cache,
        runtime=problem.runtime.name,
        batch=batch,
        micro_batches=load[1],
        prompt_tokens=prompt,
        context_tokens=round(costs.mean_context),
        prefill=_prefill(costs, cut, spilled, prompt),
        decode=_decode(costs, cut, spilled, load),
        stages=stages,
        unused_devices=unused,
        fits=all(stage.fits for stage in stages),
        need_bytes=sum(stage.need_bytes for stage in stages),
        have_bytes=sum(stage.have_bytes for stage in stages),
        warnings=tuple(_warnings(problem, stages, unused)),
        provenance=max((device.provenance for device in used), key=list(Provenance).index),
    )


def linked(
    devices: Sequence[Device],
    *,
    bandwidth_bytes_per_s: float = DEFAULT_BANDWIDTH_MBIT_S * MBIT_PER_S,
    latency_s: float = DEFAULT_LATENCY_MS * MS,
) -> Inventory:
    """Return an inventory of *devices* with one equal link between any two of their hosts."""
    hosts = dict.fromkeys(device.host for device in devices)
    links = tuple(
        Link(
            ends=ends,
            forward_bytes_per_s=bandwidth_bytes_per_s,
            backward_bytes_per_s=bandwidth_bytes_per_s,
            latency_s=latency_s,
        )
        for ends in combinations(hosts, 2)
    )
    return Inventory(devices=tuple(devices), links=links)


def _workload(prompt: float, context: int | None) -> Workload:
    """Return the workload whose mean context is *context*, and whose slots hold both lengths."""
    if not (math.isfinite(prompt) and prompt > 0):
        raise InputError(f"prompt must be positive and finite, got {prompt} tokens.")
    held = math.ceil(prompt) + DEFAULT_ANSWER_TOKENS if context is None else context
    if held < 1:
        raise InputError(f"context must be positive, got {held} tokens.")
    return Workload(
        prompt=Lengths(mean=held / 2, cv=0.0),
        output=Lengths(mean=held, cv=0.0),
        context_tokens=max(held, math.ceil(prompt)),
    )


def _refuse(problem: Problem, batch: int, layers: Sequence[int] | None) -> None:
    most = problem.runtime.max_slots
    if not 1 <= batch <= most:
        raise InputError(
            f"batch must be 1 to {most}, what {problem.runtime.name} decodes at once, got {batch}."
        )
    if layers is not None and not layers:
        raise InputError("layers names no layer; leave it out for the best cut.")


def _spilled(costs: Costs, cut: Cut, batch: int) -> Spilled:
    """Return the layers of each stage in host RAM; none where even host RAM does not hold them.

    Such a stage does not fit, and is as fast as its device with enough memory of its own.
    """
    rule = costs.spill_rule
    return tuple(
        layers if _spilled_bytes(costs, layers) <= rule.host[stage[0], position_of(cut, j)] else ()
        for j, (stage, layers) in enumerate(zip(cut, costs.spilled(cut, batch), strict=True))
    )


def _spilled_bytes(costs: Costs, layers: Iterable[int]) -> float:
    return sum(float(costs.spill_rule.spillable[layer]) for layer in layers)


def _prefill(costs: Costs, cut: Cut, spilled: Spilled, tokens: float) -> PredictedPhase:
    def seconds(given: Costs) -> float:
        return prefill(given, cut, tokens, spilled).latency_s

    shares = prefill_shares(costs, cut, tokens, spilled)
    return _phase(tokens, seconds(costs), _interval(costs, seconds), shares)


def _decode(costs: Costs, cut: Cut, spilled: Spilled, load: tuple[int, int]) -> PredictedPhase:
    """Predict a step of *load*: so many requests in so many micro-batches."""
    batch, _ = load

    def seconds(given: Costs) -> float:
        return float(decode(given, cut, batch, spilled).tpot_s[-1])

    shares = decode_shares(costs, cut, load, spilled)
    return _phase(batch, seconds(costs), _interval(costs, seconds), shares)


def _phase(tokens: float, seconds: float, interval: Interval, shares: Shares) -> PredictedPhase:
    return PredictedPhase(
        tokens_per_s=tokens / seconds,
        tokens_per_s_interval=(tokens / interval[1], tokens / interval[0]),
        seconds=seconds,
        seconds_interval=interval,
        bound_by=shares.largest,
        shares=shares,
    )


def _interval(costs: Costs, seconds: Callable[[Costs], float]) -> Interval:
    """Return *seconds* where every stage is as fast, and as slow, as one in ten."""
    fast, slow = (
        seconds(Costs(replace(costs.problem, pessimistic=quantile))) for quantile in LIKELY
    )
    return fast, slow


def _stages(
    costs: Costs, cut: Cut, spilled: Spilled, load: tuple[int, int], prompt: float
) -> Iterator[PredictedStage]:
    """Yield the stages of *cut* with bytes and times."""
    figures = prefill(costs, cut, prompt, spilled)
    batch, micro_batches = load
    decode_s, _ = decode_stages(costs, cut, -(-batch // micro_batches), spilled)
    weights = costs.memory_prefix(0)
    kv = costs.kv_prefix(costs.problem.workload.context_tokens)
    for j, (d, start, stop) in enumerate(cut):
        device = costs.problem.devices[d]
        fixed = costs.stage_fixed(d, position_of(cut, j))
        moved = _spilled_bytes(costs, spilled[j])
        held = float(weights[stop] - weights[start]) + fixed.tables_bytes - moved
        cache = batch * float(kv[stop] - kv[start])
        need = held + cache + fixed.overhead_bytes
        yield PredictedStage(
            device=device.name,
            type=device.type,
            layers=(start, stop),
            spilled_layers=spilled[j],
            weights_bytes=round(held),
            kv_cache_bytes=round(cache),
            overhead_bytes=round(fixed.overhead_bytes),
            host_bytes=round(fixed.host_bytes + moved),
            need_bytes=round(need),
            have_bytes=round(device.usable_bytes),
            fits=need <= device.usable_bytes,
            prefill_s=float(figures.stage_s[j]),
            decode_s=float(decode_s[j]),
        )


def _warnings(
    problem: Problem, stages: tuple[PredictedStage, ...], unused: tuple[str, ...]
) -> Iterator[str]:
    for stage in stages:
        if not stage.fits:
            yield (
                f"does not fit: {stage.device} needs {_gib(stage.need_bytes)}, has "
                f"{_gib(stage.have_bytes)}; the speeds are those that it would have"
            )
    if unused:
        yield f"left out, as they would only slow the others down: {', '.join(unused)}"
    longest, held = problem.facts.max_position_embeddings, problem.workload.context_tokens
    if 0 < longest < held:
        yield f"{problem.facts.name} was made for contexts up to {longest} tokens, not {held}"


def _gib(value: float) -> str:
    return f"{value / GIB:.3g} GiB"
