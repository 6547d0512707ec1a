"""Every example is a valid problem, and the testbed says what the paper's fit says."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.loading.load import load_problem

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_valid_problem(path: Path) -> None:
    problem = load_problem(path)
    assert problem.inventory == Inventory.load(path)
    total = sum(device.usable_bytes for device in problem.devices)
    assert problem.model.weight_bytes < total


def test_the_examples_are_those_of_the_readme() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {
        "campus-fog",
        "day-and-night",
        "e2llm-testbed",
        "homelab",
        "jetson-fleet",
        "raspberry-cluster",
        "two-macs",
    }


def test_the_testbed_is_the_fitted_one() -> None:
    problem = load_problem(EXAMPLES / "e2llm-testbed.yaml")
    names = [device.name for device in problem.devices]
    assert names == ["rtx-5070", "m1-a", "m1-b", "rtx-3060m", "m2max-a", "m2max-b", "orin"]
    gib = [device.usable_bytes / 2**30 for device in problem.devices]
    assert gib == pytest.approx([11.7, 12, 12, 5.7, 22, 22, 25])
    assert [device.decode_efficiency for device in problem.devices] == [
        *[0.8125, 0.95, 0.95, 0.85, 0.4791, 0.4791, 0.4588]
    ]
    assert len(problem.inventory.links) == 21
    assert {link.forward_bytes_per_s for link in problem.inventory.links} == {115e6}
    assert problem.model.num_layers == 24
    engine = problem.runtime
    assert (engine.name, engine.head, engine.topology, engine.max_slots) == (
        *("llama.cpp", "first", "ring", 16),
    )
    assert (engine.is_pipelined, engine.has_disaggregation) == (True, True)
    assert (engine.overhead_bytes, engine.hop_overhead_s, engine.bus_hop_overhead_s) == (0, 0, 0)
    assert engine.activation_bytes == 2
    assert problem.workload.context_tokens == 1280


def test_the_campus_is_forty_devices_of_eight_kinds() -> None:
    problem = load_problem(EXAMPLES / "campus-fog.yaml")
    assert len(problem.devices) == 40
    assert len({device.type for device in problem.devices}) == 8
