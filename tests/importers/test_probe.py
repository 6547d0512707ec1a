"""Probing: what sysfs and nvidia-smi say becomes the devices of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.importers.inventory import inventoried
from e2llm_opt.importers.machine import Machine, this_machine
from e2llm_opt.importers.probe import probed
from e2llm_opt.loading.load import load_inventory
from e2llm_opt.units import GIB
from tests.importers.samples import NVIDIA_SMI

if TYPE_CHECKING:
    from pathlib import Path

PI = Machine(name="pi", memory_bytes=7.9 * GIB, product="Raspberry Pi 5 Model B Rev 1.0")


def test_a_board_is_known_by_its_name_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "pi.yaml"
    path.write_text(inventoried(probed(PI), "probe").text, encoding="utf-8")
    (device,) = load_inventory(path).devices
    assert (device.name, device.type) == ("pi", "raspberry-pi-5-8gb")
    assert abs(device.memory_bytes - 7.9 * GIB) < 0.001 * GIB


def test_cards_come_before_the_cpu_and_take_the_given_name() -> None:
    found = probed(replace(PI, nvidia_smi=NVIDIA_SMI), "box")
    assert [device.name for device in found.devices] == ["box-0", "box-1"]
    assert {device.values["host"] for device in found.devices} == {"box"}
    assert all(str(device.values["uuid"]).startswith("GPU-") for device in found.devices)


def test_a_jetson_is_its_board_whatever_nvidia_smi_says() -> None:
    said = "index, name, uuid, memory.total [MiB]\n0, Orin (nvgpu), [N/A], [N/A]\n"
    orin = Machine(
        name="orin",
        memory_bytes=61.4 * GIB,
        product="NVIDIA Jetson AGX Orin Developer Kit",
        nvidia_smi=said,
    )
    text = inventoried(probed(orin), "probe").text
    assert "type: jetson-agx-orin-64" in text


def test_words_of_nvidia_smi_that_are_no_table_are_left_out() -> None:
    found = probed(replace(PI, nvidia_smi="Failed to initialize NVML\n"))
    assert found.devices[0].hardware == PI.product
    assert "left out" in found.notes[0]


def test_a_card_of_amd_counts_but_not_the_graphics_of_a_known_chip() -> None:
    card = ("AMD Radeon RX 7900 XTX", 24.0 * GIB, "abc")
    tower = Machine(name="t", memory_bytes=64 * GIB, processor="Some CPU", amd_cards=(card,))
    assert "type: rx-7900-xtx" in inventoried(probed(tower), "probe").text
    halo = Machine(
        name="h",
        memory_bytes=125 * GIB,
        processor="AMD RYZEN AI MAX+ 395 w/ Radeon 8060S",
        amd_cards=(("", 0.5 * GIB, ""),),
    )
    assert "type: ryzen-ai-max-395" in inventoried(probed(halo), "probe").text


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_machine_is_read_from_proc_and_sys(tmp_path: Path) -> None:
    write(tmp_path / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) N100\n")
    write(tmp_path / "sys/class/dmi/id/product_name", "NUC12\n")
    write(tmp_path / "sys/class/net/eth0/speed", "2500\n")
    write(tmp_path / "sys/class/net/eth0/device/vendor", "0x8086\n")
    write(tmp_path / "sys/class/net/docker0/speed", "10000\n")
    write(tmp_path / "sys/class/net/wlan0/speed", "-1\n")
    amd = tmp_path / "sys/class/drm/card1/device"
    write(amd / "vendor", "0x1002\n")
    write(amd / "mem_info_vram_total", f"{16 * 2**30}\n")
    machine = this_machine(tmp_path)
    assert (machine.processor, machine.product) == ("Intel(R) N100", "NUC12")
    assert machine.interfaces == (("eth0", 2500),)
    assert machine.amd_cards == (("", 16 * GIB, ""),)
    assert machine.memory_bytes > GIB / 8
    write(tmp_path / "proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0")
    assert this_machine(tmp_path).product == "Raspberry Pi 5 Model B Rev 1.0"


def test_an_empty_machine_says_nothing_and_is_still_an_entry(tmp_path: Path) -> None:
    text = inventoried(probed(this_machine(tmp_path)), "probe").text
    assert text.startswith("devices:\n")
