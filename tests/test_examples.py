"""Each example gets a plan that holds, and says what a reader of the example would expect."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from e2llm_opt.check.check import check
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.json_file import load_plan, plan_schema
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Problem
from e2llm_opt.search.alternatives import WORSE_SIMULATED
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan

if TYPE_CHECKING:
    from e2llm_opt.plan.infeasible import Infeasible

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))
SMALL_SEARCH = {"campus-fog": Stop(max_evaluations=80, stagnation=2, max_refinements=5)}
"""Examples whose default search takes longer than a test may."""


@cache
def problem(name: str) -> Problem:
    return Problem.load(ROOT / "examples" / f"{name}.yaml")


@cache
def answer(name: str) -> Plan | Infeasible:
    return plan(problem(name), stop=SMALL_SEARCH.get(name))


def made(name: str) -> Plan:
    found = answer(name)
    assert isinstance(found, Plan), found
    return found


@cache
def wait_unit_s(name: str) -> float:
    return Search(costs_of(problem(name))).evaluator.ranking.wait_unit_s


def rounded(name: str, wait_s: float | None) -> int:
    """Return a wait in the units in which waits are compared (DESIGN section 5)."""
    assert wait_s is not None
    return round(wait_s / wait_unit_s(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_a_plan_that_the_checker_accepts(name: str) -> None:
    assert check(made(name), problem(name)).violations == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_an_example_keeps_up_with_its_requests(name: str) -> None:
    assert made(name).predicted.stable


@pytest.mark.parametrize("name", NAMES)
def test_every_device_is_used_once_or_listed_with_the_reason(name: str) -> None:
    used = [stage.device for replica in made(name).replicas for stage in replica.stages]
    unused = [device.device for device in made(name).unused_devices]
    assert sorted(used + unused) == sorted(device.name for device in problem(name).devices)
    assert all(device.reason for device in made(name).unused_devices)


@pytest.mark.parametrize("name", NAMES)
def test_every_stream_is_as_fast_as_the_example_asks(name: str) -> None:
    slowest = problem(name).workload.slowest_tpot_s
    for replica in made(name).replicas:
        assert replica.role == "PREFILL" or replica.decode.tpot_s <= slowest * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_no_replica_is_kept_that_gets_no_requests(name: str) -> None:
    assert all(replica.arrival_rate_per_s > 0 for replica in made(name).replicas)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"day-and-night"}))  # all its loads decide
def test_no_alternative_waits_less_than_the_plan(name: str) -> None:
    for other in made(name).alternatives:
        assert other.why_not
        if "constraints" in other.why_not or other.why_not == WORSE_SIMULATED:
            continue
        if other.waiting_time_s is not None:
            wait = rounded(name, made(name).predicted.waiting_time_s)
            assert wait <= rounded(name, other.waiting_time_s)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_is_not_all_mixed_is_compared_with_one_that_is(name: str) -> None:
    roles = {replica.role for replica in made(name).replicas}
    assert roles == {"MIXED"} or "all MIXED" in {other.name for other in made(name).alternatives}


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_an_example_obeys_the_schema(name: str) -> None:
    jsonschema.validate(json.loads(made(name).to_json()), plan_schema())


def test_the_testbed_s_plan_is_compared_with_the_other_way_to_serve() -> None:
    found = made("e2llm-testbed")
    others = {other.name for other in found.alternatives}
    assert ("all MIXED" if found.routes else "best disaggregated") in others


def test_the_two_macs_share_the_model_over_the_cable() -> None:
    (replica,) = made("two-macs").replicas
    assert {stage.device for stage in replica.stages} == {"studio", "macbook"}
    hops = [stage.next_hop for stage in replica.stages]
    assert all(hop is not None and hop.link == "thunderbolt" for hop in hops)


def test_without_the_cable_the_two_macs_use_wifi_and_are_slower() -> None:
    whole = problem("two-macs")
    links = tuple(link for link in whole.inventory.links if link.interface == "wifi")
    over_wifi = plan(replace(whole, inventory=replace(whole.inventory, links=links)))
    assert isinstance(over_wifi, Plan)
    hops = [stage.next_hop for stage in over_wifi.replicas[0].stages]
    assert all(hop is not None and hop.link == "wifi" for hop in hops)
    assert over_wifi.predicted.tpot_s > made("two-macs").predicted.tpot_s


def test_the_homelab_leaves_the_raspberry_pi_alone() -> None:
    found = made("homelab")
    assert "pi" in {device.device for device in found.unused_devices}
    assert {replica.role for replica in found.replicas} == {"MIXED"}
    assert "desktop" in {stage.device for r in found.replicas for stage in r.stages}


def test_a_raspberry_pi_holds_a_whole_model_rather_than_a_part() -> None:
    assert all(len(replica.stages) == 1 for replica in made("raspberry-cluster").replicas)


def test_the_campus_keeps_its_pipelines_away_from_the_radio_link() -> None:
    """A stage in the dormitory and one elsewhere would talk over 60 Mbit/s and 8 ms."""
    for replica in made("campus-fog").replicas:
        sites = {stage.device.split("-")[0] == "dorm" for stage in replica.stages}
        assert len(sites) == 1


@pytest.mark.slow
def test_the_whole_search_of_the_campus_is_no_worse_than_a_short_one() -> None:
    whole = plan(problem("campus-fog"))
    assert isinstance(whole, Plan)
    assert check(whole, problem("campus-fog")).violations == ()
    assert whole.predicted.stable
    whole_wait, short_wait = (
        rounded("campus-fog", found.predicted.waiting_time_s)
        for found in (whole, made("campus-fog"))
    )
    assert whole_wait <= short_wait


def test_the_two_commands_of_the_readme_work_as_programs(tmp_path: Path) -> None:
    output, example = str(tmp_path / "plan.json"), "examples/two-macs.yaml"
    for arguments in (("plan", example, "-o", output), ("check", output, example)):
        done = subprocess.run(
            [sys.executable, "-m", "e2llm_opt", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert replace(load_plan(output), provenance=made("two-macs").provenance) == made("two-macs")
