"""Engines: defaults of DESIGN section 5, and overrides that drag others along."""

from __future__ import annotations

import pytest

from e2llm_opt.catalogue.catalogue import runtime_rows
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.runtime import MixedPause, Runtime, runtime
from e2llm_opt.units import GIB

ENGINES = tuple(runtime(row.key) for row in runtime_rows())


def those(claim: object) -> set[str]:
    """Names of the engines for which *claim* holds."""
    return {engine.name for engine in ENGINES if claim(engine)}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "overhead_gib", "hop_ms", "max_slots"),
    [
        ("generic", 0.5, 0.3, 64),
        ("llama.cpp", 0.6, 5, 16),
        ("prima.cpp", 0.5, 5, 64),
        ("exo", 1, 1, 64),
        ("vllm", 2, 0.3, 64),
        ("sglang", 2, 0.3, 64),
    ],
)
def test_defaults_are_those_of_the_design(
    name: str, overhead_gib: float, hop_ms: float, max_slots: int
) -> None:
    engine = runtime(name)
    assert engine.overhead_bytes == pytest.approx(overhead_gib * GIB)
    assert engine.hop_overhead_s == pytest.approx(hop_ms / 1000)
    assert engine.bus_hop_overhead_s == pytest.approx(0.0003)
    assert engine.max_slots == max_slots
    assert engine.prefill_chunk_tokens == 512


def test_engines_differ_where_the_design_says_so() -> None:
    everyone = {engine.name for engine in ENGINES}
    assert those(lambda e: not e.is_pipelined) == {"llama.cpp"}
    assert those(lambda e: e.topology == "star") == {"llama.cpp"}
    assert those(lambda e: e.embedding == "host") == {"llama.cpp", "prima.cpp"}
    assert those(lambda e: e.kv_layout == "latent") == {"vllm", "sglang"}
    assert those(lambda e: e.logits_buffer) == {"vllm", "sglang"}
    four = {"llama.cpp", "prima.cpp", "distributed-llama"}
    assert those(lambda e: e.activation_bytes == 4) == four
    assert those(lambda e: e.activation_bytes == 2) == everyone - four
    assert those(lambda e: e.has_disaggregation) == {"generic", "vllm", "sglang", "exo"}
    assert those(lambda e: e.head == "last") == everyone
    assert those(lambda e: e.layerwise_kv) == set()


def test_decode_pauses_for_the_occupancy_exactly_where_the_engine_overlaps() -> None:
    for engine in ENGINES:
        assert (engine.mixed_pause is MixedPause.OCCUPANCY) == engine.is_pipelined


def test_names_are_matched_whatever_the_spelling() -> None:
    assert runtime("LLaMA_cpp") == runtime("llama.cpp") == runtime("llama-server")


def test_overrides_win() -> None:
    engine = runtime("llama.cpp", max_slots=4, mixed_pause="occupancy")
    assert (engine.max_slots, engine.mixed_pause) == (4, MixedPause.OCCUPANCY)
    assert engine.topology == "star"


def test_pausing_follows_pipelining_unless_it_is_given() -> None:
    assert runtime("llama.cpp", is_pipelined=True).mixed_pause is MixedPause.OCCUPANCY
    assert runtime("vllm", is_pipelined=False).mixed_pause is MixedPause.LATENCY
    kept = runtime("vllm", is_pipelined=False, mixed_pause=MixedPause.OCCUPANCY)
    assert kept.mixed_pause is MixedPause.OCCUPANCY


@pytest.mark.parametrize(("hop_s", "bus_s"), [(0.0, 0.0), (0.0001, 0.0001), (0.02, 0.0003)])
def test_a_hop_inside_a_host_never_costs_more_than_one_over_the_network(
    hop_s: float, bus_s: float
) -> None:
    assert runtime("llama.cpp", hop_overhead_s=hop_s).bus_hop_overhead_s == pytest.approx(bus_s)


def test_a_given_bus_hop_is_kept() -> None:
    engine = runtime("generic", hop_overhead_s=0.0, bus_hop_overhead_s=0.001)
    assert engine.bus_hop_overhead_s == 0.001


def test_unknown_engines_offer_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean llama\.cpp"):
        runtime("lama.cpp")


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        runtime("generic", slots=3)


def test_every_field_of_an_engine_has_its_column() -> None:
    assert isinstance(runtime("generic"), Runtime)
    assert {row.key for row in runtime_rows()} == {
        *("generic", "llama.cpp", "vllm", "sglang", "prima.cpp", "exo"),
        *("distributed-llama", "parallax", "petals"),
    }
