"""Warnings say what is true, once, and name the device, link or setting they are about."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from e2llm_opt import Device, Inventory, Link, Problem, Provenance, Workload
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.plan.plan import Plan
from e2llm_opt.runtime import Runtime
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))

LONG = "campus"
"""The example whose search takes longest."""


def two_macs(**overrides: Any) -> Problem:
    return Problem.load(ROOT / "examples" / "two-macs.yaml", **overrides)


def warned(problem: Problem) -> tuple[str, ...]:
    found = plan(problem, stop=Stop(max_evaluations=40, stagnation=2))
    assert isinstance(found, Plan)
    return found.warnings


def about(problem: Problem, words: str) -> list[str]:
    return [line for line in warned(problem) if words in line]


def with_links(problem: Problem, *links: Link) -> Problem:
    return replace(problem, inventory=replace(problem.inventory, links=links))


def with_devices(problem: Problem, **changes: Any) -> Problem:
    devices = tuple(replace(device, **changes) for device in problem.devices)
    return replace(problem, inventory=replace(problem.inventory, devices=devices))


SETTINGS = {
    *(field.name for kind in (Workload, Runtime) for field in fields(kind)),
    *("slo.ttft_s", "efficiency", "reserved_gib"),
}


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        pytest.param(name, rate, marks=[pytest.mark.slow] if LONG in name else [])
        for name in EXAMPLES
        for rate in (None, 0, 1000)
    ],
)
def test_every_warning_names_a_device_a_link_or_a_setting(name: str, rate: float | None) -> None:
    given = {} if rate is None else {"workload": {"rate_per_s": rate}}
    problem = Problem.load(ROOT / "examples" / f"{name}.yaml", **given)
    ends = {end for link in problem.inventory.links for end in link.ends}
    names = SETTINGS | ends | {device.name for device in problem.devices}
    lines = warned(problem)
    assert len(set(lines)) == len(lines)
    for line in lines:
        assert any(word in line for word in names), line


def test_a_rate_near_the_capacity_is_warned_of() -> None:
    found = plan(two_macs())
    assert isinstance(found, Plan)
    capacity = found.predicted.capacity_per_s
    for share, is_near in ((0.5, False), (0.95, True)):
        lines = about(two_macs(workload={"rate_per_s": share * capacity}), "of the capacity of")
        assert bool(lines) is is_near
    assert lines[0].endswith("a little more makes waits much longer")
    assert "is 95 % of" in lines[0]


@pytest.mark.parametrize("slots", [1, 4, 9])
def test_a_device_almost_full_is_named(slots: int) -> None:
    found = plan(two_macs(workload={"slots": slots}))
    assert isinstance(found, Plan)
    parts = {s.device: s.memory_bytes for replica in found.replicas for s in replica.stages}
    full = [name for name, memory in parts.items() if memory.free / memory.capacity < 0.03]
    lines = [line for line in found.warnings if " full; reserved_gib" in line]
    assert len(lines) == bool(full)
    assert all(line.startswith(f"{' and '.join(full)} ") for line in lines)


def test_a_role_that_one_replica_plays_alone_is_a_risk() -> None:
    (line,) = about(two_macs(), "is the only MIXED replica")
    assert line.endswith("nothing is served when one of its devices fails (macbook and studio)")
    apart = two_macs(
        model="llama-3.1-8b",
        runtime="generic",
        constraints={"roles": "disaggregated", "replicas": 2},
    )
    lines = about(apart, "is the only")
    assert [line.split()[4] for line in lines] == ["PREFILL", "DECODE"]
    both = two_macs(model="llama-3.1-8b", constraints={"replicas": 2})
    assert not about(both, "is the only")


def test_moving_kv_caches_that_is_most_of_the_wait_names_the_link() -> None:
    slow = Link(
        ends=("studio", "macbook"),
        forward_bytes_per_s=1e7,
        backward_bytes_per_s=1e7,
        latency_s=1e-3,
        interface="eth0",
    )
    apart = two_macs(
        model="llama-3.1-8b",
        runtime="generic",
        constraints={"roles": "disaggregated", "replicas": 2},
    )
    (line,) = about(with_links(apart, slow), "moving a KV cache from r0 to r1")
    assert "link studio - macbook (eth0)" in line


def test_a_half_duplex_link_that_is_used_is_named_and_one_that_is_not_is_not() -> None:
    assert not about(two_macs(), "half duplex")  # the Wi-Fi is, but nothing crosses it
    wifi = [link for link in two_macs().inventory.links if link.interface == "wifi"]
    (line,) = about(with_links(two_macs(), *wifi), "half duplex")
    words = "link studio - macbook (wifi) is half duplex: both directions share 300 Mbit/s"
    assert line == words


def test_a_fast_link_with_a_slow_one_behind_it_is_named() -> None:
    fast, slow = (
        Link(
            ends=(device, "lan"),
            forward_bytes_per_s=speed,
            backward_bytes_per_s=speed,
            latency_s=1e-4,
        )
        for device, speed in (("studio", 1.25e9), ("macbook", 1.25e7))
    )
    (line,) = about(with_links(two_macs(), fast, slow), "is used for at most")
    words = "link studio - lan is used for at most 100 of its 10000 Mbit/s: what lies behind it"
    assert line.startswith(words)


def test_a_context_that_the_model_was_not_made_for_is_warned_of() -> None:
    assert not about(two_macs(), "was made for")
    (line,) = about(
        two_macs(
            model="llama-3.1-8b", constraints={}, workload={"context_tokens": 140000, "slots": 1}
        ),
        "was made for",
    )
    assert line == "context_tokens 140000 is more than the 131072 that llama-3.1-8b was made for"


def test_a_model_file_says_what_it_was_made_for(tmp_path: Path) -> None:
    from e2llm_opt.model.hf_config import facts, facts_from_config

    whole = {"num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 10, "n_positions": 1024}
    assert facts_from_config(whole, name="x").max_position_embeddings == 1024
    assert facts("llama-3.1-8b").max_position_embeddings == 131072
    del whole["n_positions"]
    assert facts_from_config(whole, name="x").max_position_embeddings == 0
    assert tmp_path.exists()


def test_an_engine_that_serves_fewer_than_memory_holds_is_named() -> None:
    small = two_macs(model="llama-3.2-1b", workload={"min_tokens_per_s": 0}, constraints={})
    (line,) = about(small, "could hold more requests than")
    assert f"the {small.runtime.max_slots} slots that exo is taken to serve (max_slots)" in line
    asked = two_macs(model="llama-3.2-1b", workload={"slots": small.runtime.max_slots})
    assert not about(asked, "could hold more requests than")


def test_where_speeds_come_from_is_told_by_device() -> None:
    (line,) = about(two_macs(), "are those of such devices elsewhere")
    assert line.startswith("speeds of macbook and studio are")
    stated = with_devices(two_macs(), unstated=())
    (line,) = about(stated, "follow from specifications and efficiencies")
    assert line.startswith("speeds of macbook and studio follow")
    measured = with_devices(two_macs(), provenance=Provenance.MEASURED)
    assert not [line for line in warned(measured) if "elsewhere" in line]
    assert not [line for line in warned(measured) if "efficienc" in line]
    assumed = with_devices(two_macs(), provenance=Provenance.ASSUMED)
    (line,) = about(assumed, "efficiency is a default for")
    assert "macbook and studio" in line
    boards = with_devices(two_macs(), memory_kind=MemoryKind.CPU)
    (line,) = about(boards, "from one CPU to the next")
    assert line.endswith("measure macbook and studio")


def test_nothing_to_warn_of_is_nothing() -> None:
    """Two measured devices, each with a whole model, room, and nothing near a limit."""
    devices = tuple(
        Device(
            name=name,
            memory_bytes=64e9,
            memory_bandwidth_bytes_per_s=4e11,
            fp16_flop_per_s=4e13,
            provenance=Provenance.MEASURED,
        )
        for name in ("a", "b")
    )
    problem = two_macs(
        model="llama-3.1-8b", constraints={"replicas": 2}, workload={"slots": 8, "rate_per_s": 0.1}
    )
    assert warned(replace(problem, inventory=Inventory(devices=devices, links=()))) == ()
