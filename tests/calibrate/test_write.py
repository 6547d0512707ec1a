"""What is written: the fitted values and nothing else, whatever the style of the file."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.calibrate.calibrate import calibrate
from e2llm_opt.calibrate.write import write_calibration
from e2llm_opt.errors import InputError
from e2llm_opt.loading.inventory_edit import edited
from e2llm_opt.loading.load import load_inventory
from e2llm_opt.loading.yaml_file import parse
from e2llm_opt.provenance import Provenance
from e2llm_opt.speed import Phase
from tests.calibrate.machines import run

if TYPE_CHECKING:
    from pathlib import Path

DAY = date(2026, 1, 31)
BOTH = [run(Phase.DECODE, 128, speed=30.0), run(Phase.PREFILL, 512, speed=1500.0)]
STYLES = {
    "block": (
        "devices:\n"
        "  - name: tower  # mine\n"
        "    type: rtx-3060-12gb\n"
        "\n"
        "  # the other\n"
        "  - {name: b, type: apple-m4}\n"
    ),
    "flow": (
        "devices:\n- {name: tower,   type: rtx-3060-12gb}   # mine\n- {name: b, type: apple-m4}\n"
    ),
    "trailing comma": (
        "devices: [{name: tower, type: rtx-3060-12gb, }, {name: b, type: apple-m4}]"
    ),
    "no newline at the end": ("devices:\n  - name: tower\n    type: rtx-3060-12gb # mine"),
    "CRLF": ("devices:\r\n  - name: tower\r\n    type: rtx-3060-12gb\r\nweights: f16\r\n"),
    "has the keys": (
        "devices:\n"
        "  - name: tower\n"
        "    efficiency:  # of old\n"
        "      prefill: 0.4   # guessed\n"
        "      decode: 0.6\n"
        "    layer_overhead_us: 20 # guessed\n"
        "    type: rtx-3060-12gb\n"
    ),
    "has one of two": (
        "devices:\n"
        "  - name: tower\n"
        "    type: rtx-3060-12gb\n"
        "    efficiency:\n"
        "      prefill: 0.4   # guessed\n"
        "\n"
        "weights: f16\n"
    ),
    "flow over lines": (
        "devices:\n"
        "  - {name: tower,  # é 🚀\n"
        "     type: rtx-3060-12gb,\n"
        "     efficiency: {decode: 0.6}}\n"
    ),
    "merged": (
        "devices:\n  - {name: b, <<: &card {type: rtx-3060-12gb}}\n  - name: tower\n    <<: *card\n"
    ),
    "quoted": ('"devices":\n  - \'name\': "tower"\n    "type": rtx-3060-12gb\n'),
    "alias at the end": (
        "devices:\n  - {name: b, type: &t rtx-3060-12gb}\n  - name: tower\n    type: *t\n"
    ),
}


def written(text: str, folder: Path, measurements: list[object] | None = None) -> str:
    path = folder / "lab.yaml"
    path.write_bytes(text.encode())
    found = calibrate(load_inventory(path), measurements or BOTH)  # type: ignore[arg-type]
    write_calibration(found, path, day=DAY)
    by_name = {device.name: device for device in load_inventory(path).devices}
    for device in found.inventory.devices:
        own = by_name[device.name]  # the file may know of earlier measurements, too
        assert replace(own, provenance=device.provenance) == device
    return path.read_bytes().decode()


@pytest.mark.parametrize("style", STYLES)
def test_the_file_then_says_what_was_fitted_and_loses_nothing(style: str, tmp_path: Path) -> None:
    text = STYLES[style]
    result = written(text, tmp_path)
    if "efficiency" not in text:  # pure additions: taking them out gives the old file
        left = iter(result)
        assert all(character in left for character in text)
    for comment in ("# mine", "# the other", "# of old", "# guessed", "# é 🚀"):
        assert result.count(comment) == text.count(comment)
    assert ("\r\n" in result) == ("\r\n" in text)
    assert "calibrated: {date: 2026-01-31, sources: [" in result


def test_lines_of_other_devices_stay_byte_for_byte(tmp_path: Path) -> None:
    old, new = STYLES["block"], written(STYLES["block"], tmp_path)
    assert [line for line in new.splitlines() if line in old.splitlines()] == old.splitlines()
    assert len(new.splitlines()) == len(old.splitlines()) + 3


def test_a_second_calibration_adds_its_points_to_the_first(tmp_path: Path) -> None:
    first = written(STYLES["block"], tmp_path, [run(Phase.DECODE, 128, speed=30.0)])
    device = load_inventory(tmp_path / "lab.yaml").devices[0]
    assert device.provenance is Provenance.CATALOGUE
    second = written(first, tmp_path, [run(Phase.PREFILL, 512, speed=1500.0)])
    assert "sources: [decode-128, prefill-512], prefill: 1, decode: 1}" in second
    assert second.count("calibrated:") == second.count("efficiency:") == 1
    device = load_inventory(tmp_path / "lab.yaml").devices[0]
    assert device.provenance is Provenance.MEASURED


def test_devices_of_a_count_are_written_once(tmp_path: Path) -> None:
    text = "devices:\n  - {name: tower, type: rtx-3060-12gb, count: 3}\n"
    assert written(text, tmp_path).count("efficiency") == 1


def test_what_others_inherit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    text = "devices:\n  - &card {name: tower, type: rtx-3060-12gb}\n  - {<<: *card, name: b}\n"
    with pytest.raises(InputError, match="tower cannot be set here: b would change, too"):
        written(text, tmp_path)
    assert (tmp_path / "lab.yaml").read_text(encoding="utf-8") == text


def test_another_file_can_be_written(tmp_path: Path) -> None:
    path, other = tmp_path / "lab.yaml", tmp_path / "other.yaml"
    path.write_text(STYLES["block"], encoding="utf-8")
    write_calibration(calibrate(load_inventory(path), BOTH), path, other)
    assert path.read_text(encoding="utf-8") == STYLES["block"]
    assert load_inventory(other).devices[0].provenance is Provenance.MEASURED


def test_an_unknown_item_is_refused() -> None:
    with pytest.raises(InputError, match=r"lab\.yaml: the device 'x' is not listed"):
        edited(STYLES["block"], {"x": {"layer_overhead_us": 3.0}}, file="lab.yaml")


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=9)


@given(
    st.lists(words, max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("", "  ")),
    st.floats(1e-4, 2.0),
    st.floats(1e-9, 1e6),
)
@settings(max_examples=60)
def test_any_comments_stay_and_any_value_reads_back(
    comments: list[str], is_flow: bool, has_keys: bool, indent: str, value: float, overhead: float
) -> None:
    keys = ["name: tower", "type: rtx-3060-12gb", *(["efficiency: {decode: 0.5}"] * has_keys)]
    notes = [f"  # {comment}" for comment in [*comments, "", "", "", ""]]
    if is_flow:
        item = f"{indent}- {{{', '.join(keys)}}}{notes[0]}"
    else:
        lines = [f"{indent}  {key}{note}" for key, note in zip(keys, notes, strict=False)]
        item = f"{indent}- " + "\n".join(lines)[len(indent) + 2 :]
    text = f"{notes[0].strip()}\ndevices:\n{item}\n{indent}{notes[1].strip()}\n"
    keys_set = {"efficiency": {"prefill": value}, "layer_overhead_us": overhead}
    found = edited(text, {"tower": keys_set}, file="x")  # type: ignore[dict-item]
    device = parse(found)[0].value["devices"][0]
    assert device["efficiency"]["prefill"] == pytest.approx(value, rel=1e-12)
    assert device["layer_overhead_us"] == pytest.approx(overhead, rel=1e-12)
    assert ("decode" in device["efficiency"]) == has_keys
    assert [line for line in text.splitlines() if line.lstrip().startswith("#")] == [
        line for line in found.splitlines() if line.lstrip().startswith("#")
    ]
    assert all(found.count(comment) >= text.count(comment) for comment in comments)
