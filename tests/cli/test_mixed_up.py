"""Files in each other's place: nothing is lost, and the message says what was mixed up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.importers.found import Found, FoundDevice
from e2llm_opt.importers.probe import refuse_card

if TYPE_CHECKING:
    from tests.cli.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAN, INVENTORY = str(EXAMPLES / "plans" / "homelab.json"), str(EXAMPLES / "homelab.yaml")
CARD = (
    "devices:\n  - {name: tower, type: rtx-3060-12gb}\n  - {name: pi, type: raspberry-pi-5-8gb}\n"
)


@pytest.mark.parametrize("command", ["check", "simulate", "failures", "report", "replan"])
def test_a_plan_and_an_inventory_in_each_other_s_place(command: str, run: Run) -> None:
    result = run(command, INVENTORY, PLAN)
    assert result.exit_code == 2
    assert "the plan comes first" in result.stderr
    assert len(result.stderr.splitlines()) <= 2


def test_an_inventory_is_not_overwritten_by_its_plan(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "lab.yaml"
    own.write_text(Path(INVENTORY).read_text(encoding="utf-8"), encoding="utf-8")
    before = own.read_bytes()
    for name in (str(own), str(tmp_path / "." / "lab.yaml")):
        result = run("plan", str(own), "-q", "-o", name)
        assert result.exit_code == 2
        assert "would be overwritten, and it is what is read" in result.stderr
        assert own.read_bytes() == before


def probed(name: str, hardware: str = "", **values: str | float) -> Found:
    device = FoundDevice(name=name, where="here", hardware=hardware, values=dict(values), notes=())
    return Found(devices=(device,), notes=())


def test_a_cpu_is_not_written_into_the_entry_of_a_card() -> None:
    with pytest.raises(InputError, match="tower is a rtx-3060-12gb there, but no card"):
        refuse_card(probed("tower", "Intel(R) Xeon(R)", memory_gib=23.5), CARD, "lab.yaml")
    refuse_card(probed("tower", "NVIDIA GeForce RTX 3060", memory_gib=12.0), CARD, "lab.yaml")
    refuse_card(probed("tower", "", memory_gib=12.0, uuid="GPU-1"), CARD, "lab.yaml")
    refuse_card(probed("pi", "Raspberry Pi 5", memory_gib=7.9), CARD, "lab.yaml")
    refuse_card(probed("new", "Intel(R) Xeon(R)", memory_gib=23.5), CARD, "lab.yaml")
    refuse_card(probed("tower", "Intel(R) Xeon(R)"), "", "lab.yaml")
