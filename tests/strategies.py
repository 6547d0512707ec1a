"""Random small problems for hypothesis: valid by construction, shrinking to one alike device.

Numbers come from short lists, so that equal devices, layers and links turn up, and so that some
problems fit comfortably, some barely and some not at all. One layer weighs some hundred MB.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.device import Device, MemoryKind
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.runtime import Runtime, runtime
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

MB = 1e6
_MEMORY = (3000.0, 1500.0, 900.0, 6000.0, 450.0)
_SMALL_MEMORY = (900.0, 450.0, 1500.0)
_BANDWIDTH = (100e9, 30e9, 300e9, 8e9)
_FLOPS = (10e12, 1e12, 40e12)
_LINK_SPEED = (100e6, 1e9, 10e6, 3e6)
_LATENCY = (3e-4, 0.0, 5e-3, 3e-2)
_LAYER = (300.0, 100.0, 600.0, 40.0)


@st.composite
def devices(
    draw: st.DrawFn,
    num_devices: int,
    *,
    is_tight: bool = False,
    is_apart: bool = False,
    has_host_ram: bool = False,
) -> tuple[Device, ...]:
    """Return devices of a few kinds, some of them on one host; *is_tight*: with little memory."""
    memory = _SMALL_MEMORY if is_tight else _MEMORY
    kinds = [draw(_kinds(memory, has_host_ram=has_host_ram)) for _ in range(min(num_devices, 3))]
    found: list[Device] = []
    for d in range(num_devices):
        kind = draw(st.sampled_from(kinds))
        host = draw(st.sampled_from([f"d{e}" for e in (d, *range(0 if is_apart else d))]))
        shared = next((device.host for device in found if device.name == host), host)
        found.append(replace(kind, name=f"d{d}", host=shared))
    shares_ram = {own.host for own in found if own.memory_kind is not MemoryKind.DISCRETE}
    return tuple(
        replace(own, host_memory_bytes=0.0) if own.host in shares_ram else own for own in found
    )


@st.composite
def _kinds(draw: st.DrawFn, memory: Sequence[float], *, has_host_ram: bool) -> Device:
    memory_kind = draw(st.sampled_from(MemoryKind))
    host = (4000.0, 400.0, 4000.0, 0.0) if has_host_ram else (0.0, 0.0, 400.0, 4000.0)
    return Device(
        name="kind",
        memory_bytes=draw(st.sampled_from(memory)) * MB,
        reserved_bytes=draw(st.sampled_from((0.0, 100.0))) * MB,
        memory_bandwidth_bytes_per_s=draw(st.sampled_from(_BANDWIDTH)),
        fp16_flop_per_s=draw(st.sampled_from(_FLOPS)),
        prefill_efficiency=draw(st.sampled_from((0.5, 0.3))),
        decode_efficiency=draw(st.sampled_from((1.0, 0.6))),
        layer_overhead_s=draw(st.sampled_from((0.0, 15e-6, 1e-3))),
        memory_kind=memory_kind,
        host_bus_bytes_per_s=draw(st.sampled_from((8e9, 2e9))),
        power_w=draw(st.sampled_from((None, 10.0, 200.0))),
        cost_per_hour=draw(st.sampled_from((None, 0.1, 0.02))),
        host_memory_bytes=draw(st.sampled_from(host)) * MB * (memory_kind == "discrete"),
        host_bandwidth_bytes_per_s=draw(st.sampled_from((5e9, 20e9))),
        bus_bytes_per_s=draw(st.sampled_from((10e9, 3e9))),
    )


@st.composite
def inventories(
    draw: st.DrawFn,
    *,
    min_devices: int = 1,
    max_devices: int = 5,
    is_linked: bool = False,
    is_tight: bool = False,
    is_apart: bool = False,
    has_host_ram: bool = False,
) -> Inventory:
    """Return devices with direct links, switches and private links between them.

    With *is_linked* every two hosts have a way to each other.
    """
    num_devices = draw(st.integers(min_devices, max_devices))
    machines = draw(
        devices(num_devices, is_tight=is_tight, is_apart=is_apart, has_host_ram=has_host_ram)
    )
    hosts = list(dict.fromkeys(device.host for device in machines))
    links: list[Link] = []
    if draw(st.booleans()):
        links += draw(_pairwise(hosts, least=int(is_linked)))
    else:
        links += draw(_switched(hosts, has_all=is_linked))
    for one, other in combinations(machines, 2):
        if one.host == other.host and draw(st.sampled_from((False, False, False, True))):
            links.append(draw(_links(one.name, other.name)))
    return Inventory(devices=machines, links=tuple(links))


@st.composite
def _pairwise(draw: st.DrawFn, hosts: Sequence[str], *, least: int) -> list[Link]:
    if draw(st.booleans()):
        one = draw(_links("a", "b"))
        return [replace(one, ends=pair) for pair in combinations(hosts, 2)]
    found = []
    for first, second in combinations(hosts, 2):
        count = max(least, draw(st.sampled_from((1, 1, 1, 0, 2))))
        found += [draw(_links(first, second, f"eth{i}")) for i in range(count)]
    return found


@st.composite
def _switched(draw: st.DrawFn, hosts: Sequence[str], *, has_all: bool) -> list[Link]:
    """Return links to one switch or to two that a trunk joins; a few hosts may stay away."""
    if len(hosts) < 2:
        return []
    one = draw(_links("host", "switch")) if draw(st.booleans()) else None
    is_split = draw(st.booleans())
    found = []
    for i, host in enumerate(hosts):
        if has_all or i < 2 or draw(st.sampled_from((True, True, True, False))):
            link = draw(_links("host", "switch")) if one is None else one
            found.append(replace(link, ends=(host, "lan" if i % 2 == 0 else "attic")))
    if not is_split:
        return [replace(link, ends=(link.ends[0], "lan")) for link in found]
    return [*found, draw(_links("lan", "attic"))]


@st.composite
def _links(draw: st.DrawFn, first: str, second: str, interface: str = "") -> Link:
    forward = draw(st.sampled_from(_LINK_SPEED))
    backward = draw(st.sampled_from((forward, *_LINK_SPEED)))
    return Link(
        ends=(first, second),
        forward_bytes_per_s=forward,
        backward_bytes_per_s=backward,
        latency_s=draw(st.sampled_from(_LATENCY)),
        interface=interface,
        is_half_duplex=forward == backward and draw(st.booleans()),
    )


@st.composite
def facts(draw: st.DrawFn, *, max_layers: int = 8, is_spillable: bool = False) -> ModelFacts:
    """Return a model given by bytes and FLOPs, its layers alike or not."""
    num_layers = draw(st.integers(1, max_layers))
    is_alike = draw(st.booleans())
    spread = (1,) if is_alike else (1, 2, 5)

    def per_layer(values: Sequence[float]) -> tuple[float, ...]:
        base = draw(st.sampled_from(values))
        return tuple(base * draw(st.sampled_from(spread)) for _ in range(num_layers))

    weights = tuple(value * MB for value in per_layer(_LAYER))
    active = None
    if draw(st.sampled_from((False, False, True))):
        share = draw(st.sampled_from((0.25, 0.05)))
        active = tuple(value * share for value in weights)
    spillable = None
    if is_spillable or draw(st.booleans()):
        shares = draw(st.sampled_from(((0.5,), (0.5, 0.0, 0.9))))
        spillable = tuple(value * draw(st.sampled_from(shares)) for value in weights)
    starts = None
    if draw(st.sampled_from((False, False, True))):
        starts = tuple(draw(st.sets(st.integers(0, num_layers - 1))))
    is_tied = draw(st.booleans())
    return ModelFacts(
        name="random",
        num_hidden_layers=num_layers,
        hidden_size=draw(st.sampled_from((4096, 512, 65536))),
        vocab_size=draw(st.sampled_from((1000, 50_000))),
        tie_word_embeddings=is_tied,
        layer_weight_bytes=weights,
        layer_active_weight_bytes=active,
        layer_spillable_bytes=spillable,
        kv_bytes_per_token=per_layer((20e3, 4e3, 100e3)),
        layer_flops_per_token=per_layer((600e6, 50e6, 3e9)),
        embedding_bytes=draw(st.sampled_from((50.0, 0.0, 400.0))) * MB,
        head_bytes=draw(st.sampled_from((50.0, 0.0, 400.0))) * MB,
        allowed_stage_starts=starts,
    )


@st.composite
def runtimes(draw: st.DrawFn, *, topology: str | None = None) -> Runtime:
    """Return an engine with all its rules drawn."""
    return runtime(
        "generic",
        overhead_bytes=draw(st.sampled_from((50.0, 0.0, 200.0))) * MB,
        logits_buffer=draw(st.booleans()),
        hop_overhead_s=draw(st.sampled_from((3e-4, 0.0, 5e-3))),
        is_pipelined=draw(st.booleans()),
        max_slots=draw(st.integers(1, 6)),
        prefill_chunk_tokens=draw(st.sampled_from((512, 128))),
        activation_bytes=draw(st.sampled_from((2.0, 4.0))),
        topology=topology or draw(st.sampled_from(("ring", "star"))),
        layerwise_kv=draw(st.booleans()),
        head=draw(st.sampled_from(("last", "first"))),
        embedding=draw(st.sampled_from(("first", "host"))),
        sends_logits=draw(st.booleans()),
        returns_tokens=draw(st.sampled_from((True, True, True, False))),
        has_disaggregation=draw(st.sampled_from((True, True, False))),
    )


@st.composite
def workloads(draw: st.DrawFn, *, max_slots: int) -> Workload:
    """Return requests that fit into a few hundred MB of KV cache, at rates from idle to flooded."""
    cv = draw(st.sampled_from((0.5, 0.0, 1.2)))
    return Workload(
        prompt=Lengths(mean=draw(st.sampled_from((300.0, 700.0, 64.0))), cv=cv),
        output=Lengths(mean=draw(st.sampled_from((100.0, 20.0, 400.0))), cv=cv),
        rate_per_s=draw(st.sampled_from((0.2, 0.0, 1.0, 5.0, 0.02))),
        context_tokens=draw(st.sampled_from((512, 2048))),
        slots=draw(st.none() | st.integers(1, max_slots)),
        min_tokens_per_s=draw(st.sampled_from((0.0, 0.0, 2.0, 20.0))),
        slo_tpot_s=draw(st.sampled_from((None, None, 0.2))),
    )


@st.composite
def constraints(
    draw: st.DrawFn, names: Sequence[str], num_layers: int, *, has_roles: bool
) -> Constraints:
    """Return few constraints, mostly none."""
    pinned = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    pin = draw(st.sampled_from(({}, {}, {"r1": pinned}, {"a": pinned[:1], "b": pinned[1:]})))
    fixed = draw(st.sampled_from(({}, {}, {}, {names[0]: 1}, {names[-1]: num_layers // 2 + 1})))
    roles = ("auto", "auto", "mixed", "disaggregated") if has_roles else ("auto", "mixed")
    return Constraints(
        replicas=draw(st.sampled_from((None, None, None, 2 if len(pin) > 1 else 1, 2))),
        use_all_devices=draw(st.sampled_from((False, False, False, True))),
        roles=draw(st.sampled_from(roles)),
        pin={name: devices for name, devices in pin.items() if devices},
        layers=fixed,
    )


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    min_devices: int = 1,
    max_devices: int = 5,
    max_layers: int = 8,
    topology: str | None = None,
    is_linked: bool = False,
    is_tight: bool = False,
    is_apart: bool = False,
    is_constrained: bool = False,
    has_host_ram: bool = False,
) -> Problem:
    """Return a whole problem.

    *is_tight*: several devices are needed for one replica; *is_apart*: each has its own host;
    *has_host_ram*: most devices can spill, and so can layers.
    """
    engine = draw(runtimes(topology=topology))
    inventory = draw(
        inventories(
            min_devices=min_devices,
            max_devices=max_devices,
            is_linked=is_linked,
            is_tight=is_tight,
            is_apart=is_apart,
            has_host_ram=has_host_ram,
        )
    )
    model = draw(facts(max_layers=max_layers, is_spillable=has_host_ram))
    names = [device.name for device in inventory.devices]
    limits = constraints(names, model.num_hidden_layers, has_roles=engine.has_disaggregation)
    return Problem(
        inventory=inventory,
        facts=model,
        runtime=engine,
        workload=draw(workloads(max_slots=engine.max_slots)),
        objective=draw(st.sampled_from(Objective)),
        constraints=draw(limits) if is_constrained else Constraints(),
    )


# ---------------------------------------------------------------- the same problem, put otherwise


def relabelled(problem: Problem, random: Random) -> Problem:
    """Return *problem* with its devices and links shuffled, and everything renamed."""
    inventory = problem.inventory
    ends = {end for link in inventory.links for end in link.ends}
    known = sorted({d.name for d in problem.devices} | {d.host for d in problem.devices} | ends)
    names = [f"n{i}" for i in range(len(known))]
    random.shuffle(names)
    new = dict(zip(known, names, strict=True))
    machines = [replace(d, name=new[d.name], host=new[d.host]) for d in problem.devices]
    limits = replace(
        problem.constraints,
        pin={name: [new[d] for d in pin] for name, pin in problem.constraints.pins.items()},
        layers={new[name]: num for name, num in problem.constraints.fixed_layers.items()},
    )
    links = [replace(link, ends=(new[link.ends[0]], new[link.ends[1]])) for link in inventory.links]
    random.shuffle(machines)
    random.shuffle(links)
    inventory = Inventory(devices=tuple(machines), links=tuple(links))
    return replace(problem, inventory=inventory, constraints=limits)


def rescaled(problem: Problem, factor: float) -> Problem:
    """Return *problem* with every time multiplied by *factor* (the fixed bus latency aside)."""
    machines = tuple(
        replace(
            device,
            memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s / factor,
            fp16_flop_per_s=device.fp16_flop_per_s / factor,
            layer_overhead_s=device.layer_overhead_s * factor,
            host_bus_bytes_per_s=device.host_bus_bytes_per_s / factor,
            host_bandwidth_bytes_per_s=device.host_bandwidth_bytes_per_s / factor,
            bus_bytes_per_s=device.bus_bytes_per_s / factor,
        )
        for device in problem.devices
    )
    links = tuple(
        replace(
            link,
            forward_bytes_per_s=link.forward_bytes_per_s / factor,
            backward_bytes_per_s=link.backward_bytes_per_s / factor,
            latency_s=link.latency_s * factor,
        )
        for link in problem.inventory.links
    )
    engine = replace(
        problem.runtime,
        hop_overhead_s=problem.runtime.hop_overhead_s * factor,
        bus_hop_overhead_s=problem.runtime.bus_hop_overhead_s * factor,
    )
    inventory = Inventory(devices=machines, links=links)
    return replace(problem, inventory=inventory, runtime=engine)
