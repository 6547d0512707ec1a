"""What is exported means the plan's layers to the engine, by the engine's own rules."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt import export
from e2llm_opt.export import engines
from e2llm_opt.export.engines import ENGINES
from e2llm_opt.export.options import ExportOptions
from tests.export import parsers
from tests.export.plans import expected, plans

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan

WEIGHTS = {
    "llama.cpp": "q4_k_m",
    "prima.cpp": "q4_k_m",
    "distributed-llama": "q4_0",
    "exo": "mlx_4bit",
}
FREE = ("llama.cpp", "vllm", "sglang", "prima.cpp", "parallax", "petals", "exo")
"""Engines that can express any cut of any roles."""


def layers(plan: Plan) -> int:
    return plan.replicas[0].stages[-1].layers[1]


def back(plan: Plan, engine: str, options: ExportOptions | None = None) -> parsers.Cuts:
    answer = export(plan, engine, options=options)
    assert answer.not_expressible is None, answer.not_expressible
    return parsers.PARSERS[engine](answer, layers(plan))


def test_every_engine_has_a_parser() -> None:
    assert set(parsers.PARSERS) == set(ENGINES)


def test_every_engine_is_listed_in_the_help_and_explained_in_the_documents() -> None:
    from e2llm_opt.cli.export import command

    root = Path(__file__).parents[2]
    texts = [(root / "docs" / name).read_text("utf-8") for name in ("export.md", "commands.md")]
    helps = next(str(own.to_info_dict()["help"]) for own in command.params if "--to" in own.opts)
    for engine in ENGINES:
        assert all(f"`{engine}`" in text for text in texts), f"docs: explain {engine}"
        assert engine in helps


def test_every_reason_of_a_refusal_is_explained() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "export.md").read_text("utf-8")
    sources = (root / "e2llm_opt" / "export").rglob("*.py")
    reasons = {
        reason
        for path in sources
        for reason in re.findall(r'NotExpressibleError\(\s*"([^"]+)"', path.read_text("utf-8"))
    }
    assert len(reasons) >= 10
    assert not {reason for reason in reasons if f"`{reason}`" not in text}


def test_every_module_that_launches_is_an_engine() -> None:
    folder = Path(engines.__file__).parent
    with_launch = {
        path.stem for path in folder.glob("*.py") if "\ndef launch(" in path.read_text("utf-8")
    }
    assert with_launch == set(ENGINES.values())


@pytest.mark.parametrize("engine", FREE)
@given(data=st.data())
def test_the_layers_come_back(engine: str, data: st.DataObject) -> None:
    plan = data.draw(plans(weights=WEIGHTS.get(engine, "f16")))
    assert back(plan, engine) == expected(plan)


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "10000")))
@given(plans(most_stages=8))
def test_the_layers_come_back_from_every_engine_ten_thousand_times(plan: Plan) -> None:
    wanted = expected(plan)
    assert {engine: back(plan, engine) for engine in FREE} == dict.fromkeys(FREE, wanted)


@given(plans(plain_names=True), st.sampled_from(("q4_k_m", "f16")))
def test_kubernetes_has_the_layers_in_labels(plan: Plan, weights: str) -> None:
    object.__setattr__(plan.problem, "options", {"weights": weights, "kv_cache": "f16"})
    assert back(plan, "kubernetes") == expected(plan)


@given(plans(plain_names=True), st.sampled_from(("v1alpha1", "v1beta1")))
def test_dynamo_pins_every_stage_to_its_node(plan: Plan, version: str) -> None:
    options = ExportOptions(dynamo_api=version)  # type: ignore[arg-type] # one of the two
    assert back(plan, "dynamo", options) == expected(plan)


@given(plans(weights="q4_0", powers=True))
def test_distributed_llama_takes_equal_shares(plan: Plan) -> None:
    assert back(plan, "distributed-llama") == expected(plan)


@given(plans(plain_names=True))
def test_llm_d_takes_equal_cuts_and_refuses_others(plan: Plan) -> None:
    answer = export(plan, "llm-d")
    is_equal = all(
        len({b - a for a, b in (s.layers for s in own.stages)}) == 1 for own in plan.replicas
    )
    assert (answer.not_expressible is None) == is_equal
    if is_equal:
        assert parsers.llm_d(answer, layers(plan)) == expected(plan)


@given(plans(plain_names=True))
def test_ray_binds_every_bundle_to_its_device(plan: Plan) -> None:
    answer = export(plan, "ray-serve")
    if answer.not_expressible is None:
        assert parsers.ray_serve(answer, layers(plan)) == expected(plan)
    else:
        assert answer.not_expressible.startswith("unlike replicas of one role")


@pytest.mark.parametrize("counts", [(20, 60), (16, 16), (24, 8), (1, 127), (40, 1, 39)])
def test_bare_layer_counts_would_be_wrong(counts: tuple[int, ...]) -> None:
    """The reader of the split sees the fault that the +1 is for: 20,60 means 21/59."""
    total = sum(counts)

    def cut(split: list[int]) -> list[int]:
        places = parsers.llama_devices(",".join(map(str, split)), 999, total)[:-1]
        return [places.count(d) for d in range(len(counts))]

    assert cut([*counts[:-1], counts[-1] + 1]) == list(counts)
    assert cut(list(counts)) != list(counts)
    if counts == (20, 60):
        assert cut([20, 60]) == [21, 59]
