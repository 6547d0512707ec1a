"""Products as drivers, labels and boards spell them are found in the catalogue, or not guessed."""

from __future__ import annotations

import pytest

from e2llm_opt.catalogue.catalogue import device_entries
from e2llm_opt.importers.hardware import catalogue_device, nearest_types


@pytest.mark.parametrize(
    ("hardware", "memory_gib", "key"),
    [
        ("NVIDIA GeForce RTX 3060", 12.0, "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060", None, "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 6.0, "rtx-3060m"),
        ("NVIDIA-GeForce-RTX-3090-SHARED", 24.0, "rtx-3090"),
        ("NVIDIA A100-SXM4-80GB", 80.0, "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 80.0, "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", 79.6, "h100-pcie-80gb"),
        ("Tesla V100-SXM2-32GB", 32.0, "tesla-v100-32gb"),
        ("Tesla V100-SXM2-16GB", 16.0, "tesla-v100-16gb"),
        ("Tesla T4", 15.0, "tesla-t4"),
        ("NVIDIA RTX 6000 Ada Generation", 48.0, "rtx-6000-ada"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16.0, "rtx-4070-ti-super"),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 24.0, "rx-7900-xtx"),
        ("Apple M4 Pro", 48.0, "apple-m4-pro"),
        ("NVIDIA Jetson AGX Orin Developer Kit", 61.4, "jetson-agx-orin-64"),
        ("NVIDIA Jetson AGX Orin Developer Kit", 29.8, "jetson-agx-orin-32"),
        ("Raspberry Pi 5 Model B Rev 1.0", 7.9, "raspberry-pi-5-8gb"),
        ("Raspberry Pi 5 Model B Rev 1.1", 15.8, "raspberry-pi-5-16gb"),
        ("Raspberry Pi 4 Model B Rev 1.4", 7.6, "raspberry-pi-4-8gb"),
        ("Intel(R) N100", 15.4, "intel-n100"),
        ("Intel(R) Core(TM) Ultra 7 258V", 31.0, "core-ultra-7-258v"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", 125.0, "ryzen-ai-max-395"),
    ],
)
def test_a_product_is_found(hardware: str, memory_gib: float | None, key: str) -> None:
    entry = catalogue_device(hardware, memory_gib)
    assert entry is not None
    assert entry.key == key


@pytest.mark.parametrize(
    ("hardware", "memory_gib"),
    [
        ("NVIDIA GeForce RTX 3060", 8.0),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4.75),
        ("Quadro K420", 1.0),
        ("", None),
        ("GPU", None),
        ("13th Gen Intel(R) Core(TM) i7-13700K", 64.0),
    ],
)
def test_another_product_is_not_guessed(hardware: str, memory_gib: float | None) -> None:
    assert catalogue_device(hardware, memory_gib) is None


def test_every_device_is_found_by_each_of_its_names() -> None:
    for entry in device_entries():
        for name in (entry.key, entry.name):
            found = catalogue_device(name, entry.memory_gib)
            assert found is not None, name
            assert found.key == entry.key


def test_what_is_spelt_alike_is_offered() -> None:
    assert "rtx-3090" in nearest_types("NVIDIA GeForce RTX 3090 D")
