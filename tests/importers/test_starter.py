"""A first inventory is valid, commented, and says what it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt import Problem
from e2llm_opt.errors import InputError
from e2llm_opt.importers.starter import Starter, Wire, starter_text

if TYPE_CHECKING:
    from pathlib import Path

HOME = Starter(devices=[("tower", "rtx-3060"), ("mini", "Apple M4")])


def problem(starter: Starter, folder: Path) -> Problem:
    path = folder / "first.yaml"
    path.write_text(starter_text(starter, file=str(path)), encoding="utf-8")
    return Problem.load(path)


def test_a_switch_joins_all_unless_links_are_given(tmp_path: Path) -> None:
    assert [link.ends for link in problem(HOME, tmp_path).inventory.links] == [
        ("tower", "lan"),
        ("mini", "lan"),
    ]
    wired = Starter(
        devices=HOME.devices, wires=[Wire(between=("mini", "tower"), bandwidth_mbit_s=9400)]
    )
    (link,) = problem(wired, tmp_path).inventory.links
    assert (link.ends, link.forward_bytes_per_s) == (("mini", "tower"), 9.4e9 / 8)


def test_every_key_is_commented_and_values_are_those_of_the_catalogue(tmp_path: Path) -> None:
    text = starter_text(HOME)
    plain = [line for line in text.splitlines() if line.strip().startswith("- ") is False]
    told = [line for line in plain if ":" in line and not line.endswith(":")]
    assert all("#" in line for line in told)
    found = problem(HOME, tmp_path)
    stated = Problem.load(
        tmp_path / "first.yaml", devices=[{"name": n, "type": t} for n, t in HOME.devices]
    )
    assert [d.usable_bytes for d in found.devices] == [d.usable_bytes for d in stated.devices]


@pytest.mark.slow
def test_a_first_inventory_is_planned(tmp_path: Path) -> None:
    assert isinstance(e2llm_opt.plan(problem(HOME, tmp_path)), e2llm_opt.Plan)


def test_everything_that_is_wrong_is_told() -> None:
    bad = Starter(devices=[("a", "rtx-9999"), ("a", "rtx-3090")], model="nope")
    with pytest.raises(InputError) as caught:
        starter_text(bad)
    assert len(caught.value.faults) >= 3


NAMES = st.text(min_size=1, max_size=20).filter(lambda t: t.isprintable() and t == t.strip() != "")


@given(names=st.lists(NAMES, min_size=1, max_size=3, unique=True), file=st.text(max_size=20))
def test_names_of_any_kind_are_written_right(names: list[str], file: str) -> None:
    text = starter_text(Starter(devices=[(name, "rtx-3090") for name in names]), file=file)
    assert [one["name"] for one in yaml.safe_load(text)["devices"]] == names
