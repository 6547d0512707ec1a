"""Merging: what was measured replaces, what is new is added, and every other byte stays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import InputError
from e2llm_opt.importers import source
from e2llm_opt.importers.combine import combined
from e2llm_opt.importers.describe import device_items, link_items
from e2llm_opt.importers.found import Found, FoundDevice, FoundLink
from e2llm_opt.importers.inventory import inventoried
from e2llm_opt.loading.inventory_merge import Merged, merged_items
from e2llm_opt.loading.load import load_inventory
from tests.importers import samples

ROOT = Path(__file__).parents[2]

LAB = """\
# my machines
devices:
  - name: desktop          # under the table
    type: rtx-3060-12gb
    reserved_gib: 1.0      # the screen

  - name: laptop
    type: rtx-3060-laptop
    uuid: GPU-lap          # its card
    memory_gib: 6

links:
  - {between: [desktop, laptop], bandwidth_mbit_s: 940, latency_ms: 0.15}  # a cable
# what is served
model: llama-3.1-8b
"""


def device(name: str, **values: float | str) -> FoundDevice:
    return FoundDevice(name=name, where="f:1", hardware="RTX 3090", values=values)


def link(one: str, other: str, **values: float | str) -> FoundLink:
    return FoundLink(ends=(one, other), where="f:2", **values)  # type: ignore[arg-type] # by name


def merge(text: str, *found: FoundDevice | FoundLink) -> Merged:
    devices = tuple(one for one in found if isinstance(one, FoundDevice))
    links = tuple(one for one in found if isinstance(one, FoundLink))
    both = Found(devices=devices, links=links)
    return merged_items(text, device_items(both, "test"), link_items(both, "test"), file="lab")


def differences(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that are gone, and those that are new."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_a_device_of_the_same_name_gets_what_was_measured_and_keeps_what_was_chosen() -> None:
    text = merge(LAB, device("desktop", memory_gib=11.76, uuid="GPU-1")).text
    gone, new = differences(LAB, text)
    assert gone == []
    assert new == ["    memory_gib: 11.76", "    uuid: GPU-1"]
    assert yaml.safe_load(text)["devices"][0]["type"] == "rtx-3060-12gb"


def test_a_device_of_the_same_uuid_keeps_its_name() -> None:
    text = merge(LAB, device("tower-0", memory_gib=5.8, uuid="GPU-lap")).text
    assert differences(LAB, text) == (["    memory_gib: 6"], ["    memory_gib: 5.8"])


def test_another_card_of_the_same_name_is_not_the_same_device() -> None:
    text = merge(LAB, device("laptop", uuid="GPU-other")).text
    assert len(yaml.safe_load(text)["devices"]) == 3


def test_new_items_stand_behind_the_last_of_their_list() -> None:
    text = merge(LAB, device("box", memory_gib=24.0), link("box", "desktop", latency_ms=1.0)).text
    assert differences(LAB, text)[0] == []
    value = yaml.safe_load(text)
    assert [one["name"] for one in value["devices"]] == ["desktop", "laptop", "box"]
    assert value["links"][1]["between"] == ["box", "desktop"]
    assert text.index("memory_gib: 6") < text.index("box") < text.index("\nlinks:")
    assert text.index("box, desktop") < text.index("# what is served")


def test_a_measured_way_replaces_one_direction_also_when_the_ends_are_turned() -> None:
    text = merge(LAB, link("laptop", "desktop", forward_mbit_s=300.0)).text
    assert differences(LAB, text) == (
        ["  - {between: [desktop, laptop], bandwidth_mbit_s: 940, latency_ms: 0.15}  # a cable"],
        [
            (
                "  - {between: [desktop, laptop], bandwidth_mbit_s: {forward: 940, backward: 300}, "
                "latency_ms: 0.15}  # a cable"
            )
        ],
    )


def test_what_was_left_open_is_filled_and_loads(tmp_path: Path) -> None:
    text = "devices:\n  - name: a\n    memory_gib:   # TODO: soon\n    fp16_tflops:\n"
    path = tmp_path / "lab.yaml"
    path.write_text(merge(text, device("a", memory_gib=24.0)).text, encoding="utf-8")
    (filled,) = load_inventory(path).devices
    assert (filled.type, filled.fp16_flop_per_s) == ("rtx-3090", 71e12)
    assert "TODO" not in path.read_text(encoding="utf-8")


def test_another_type_than_in_the_file_is_told() -> None:
    assert "there it is rtx-3090" in merge(LAB, device("desktop")).notes[0]
    same = LAB.replace("rtx-3060-12gb", "RTX 3090")
    assert not any("there it is" in note for note in merge(same, device("desktop")).notes)


def test_both_ways_turned_are_both_ways_turned() -> None:
    turned = link("laptop", "desktop", forward_mbit_s=300.0, backward_mbit_s=500.0)
    rates = yaml.safe_load(merge(LAB, turned).text)["links"][0]["bandwidth_mbit_s"]
    assert rates == {"forward": 500, "backward": 300}


def test_links_of_one_pair_are_told_apart_by_interface() -> None:
    wifi = merge(LAB, link("desktop", "laptop", latency_ms=4.0, interface="wifi")).text
    cable = link("laptop", "desktop", latency_ms=0.1, interface="cable")
    both = merge(wifi, replace(cable, forward_mbit_s=9000.0)).text
    third = merge(both, link("desktop", "laptop", latency_ms=5.0, interface="wifi")).text
    found = {one["interface"]: one["latency_ms"] for one in yaml.safe_load(third)["links"]}
    assert found == {"wifi": 5.0, "cable": 0.1}


def test_ping_and_then_iperf3_make_a_whole_link_and_no_todo_stays() -> None:
    ping = source("ping").read(samples.PING_LINUX, "tower.txt")
    first = inventoried(combined([ping]), "ping").text
    assert "bandwidth_mbit_s:   # TODO" in first
    iperf3 = source("iperf3").read(samples.iperf3(back=8e8, rtt_us=0), "a.json")
    second = inventoried(combined([iperf3]), "iperf3", into=first).text
    (only,) = yaml.safe_load(second)["links"]
    assert only["bandwidth_mbit_s"] == {"forward": 941, "backward": 800}
    assert only["latency_ms"] == 0.156
    assert "TODO" not in second


@pytest.mark.parametrize(
    ("before", "key"),
    [
        ("model: x\n", "devices"),
        ("model: x", "devices"),
        ("devices: []\nmodel: x\n", "devices"),
        ("devices:\nmodel: x\n", "devices"),
        ("devices:   # none yet\nmodel: x\n", "devices"),
        ("devices: [{name: a, type: rtx-3090}]   # mine\nmodel: x\n", "devices"),
        ("devices: [\n  {name: a, type: rtx-3090},\n]\nmodel: x\n", "devices"),
        ("devices:\n- name: a\n  type: rtx-3090\nmodel: x\n", "devices"),
        ("devices:\n    - {name: a, type: rtx-3090}   # mine\n\n\nmodel: x\n", "devices"),
        ("devices:\r\n  - name: a\r\n    type: rtx-3090\r\nmodel: x\r\n", "devices"),
        ("devices:\n  - name: a\n    efficiency:\n      decode: 0.5\nmodel: x\n", "devices"),
        ("", "devices"),
        ("# nothing yet\n", "devices"),
    ],
)
def test_a_device_is_added_to_any_style_of_list(before: str, key: str) -> None:
    text = merge(before, device("new", memory_gib=24.0)).text
    old = yaml.safe_load(before) or {}
    value = yaml.safe_load(text)
    assert value[key][:-1] == (old.get(key) or [])
    assert value[key][-1]["name"] == "new"
    assert {k: v for k, v in value.items() if k != key} == {
        k: v for k, v in old.items() if k != key
    }
    comments = [part for part in before.split() if part.startswith("#")]
    assert all(comment in text for comment in comments)
    assert ("\r" in text) == ("\r" in before)
    assert "\r" not in text.replace("\r\n", "")


def test_a_merge_twice_changes_nothing_more() -> None:
    found = device("box", memory_gib=24.0, uuid="GPU-9"), link("box", "laptop", latency_ms=1.0)
    once = merge(LAB, *found)
    assert merge(once.text, *found) == Merged(once.text, ())


@pytest.mark.parametrize("ends", ["all", "[box, desktop, mini]"])
def test_a_second_way_beside_a_switch_is_told(ends: str) -> None:
    text = f"links:\n  - {{between: {ends}, via: lan, bandwidth_mbit_s: 940, latency_ms: 0.2}}\n"
    notes = merge(text, link("box", "desktop", latency_ms=1.0)).notes
    assert "box - desktop: both reach 'lan', too" in notes[0]
    assert ("lan" in str(merge(text, link("x", "box", latency_ms=1.0)).notes)) == (ends == "all")


def test_devices_of_a_count_stay() -> None:
    text = "devices:\n  - {name: pi, type: rpi5, count: 3}\n"
    result = merge(text, device("pi", memory_gib=8.0))
    assert result.text == text
    assert "stands for several" in result.notes[0]


def test_a_change_that_others_would_inherit_is_refused() -> None:
    text = "devices:\n  - &a {name: a, memory_gib: 8}\n  - {<<: *a, name: b}\n"
    with pytest.raises(InputError, match="other parts of the file would change"):
        merge(text, device("a", memory_gib=9.0))


def test_what_is_no_yaml_is_refused_by_line() -> None:
    with pytest.raises(InputError, match="lab:2"):
        merge("devices:\n\t- x\n", device("a"))


NAMES = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable() and text.strip())


@given(names=st.lists(NAMES.map(str.strip), min_size=1, max_size=4, unique=True))
def test_names_of_any_kind_are_found_again(names: list[str]) -> None:
    found = [device(name, memory_gib=24.0) for name in names if name not in {"desktop", "laptop"}]
    once = merge(LAB, *found).text
    kept = [one["name"] for one in yaml.safe_load(once)["devices"]]
    assert kept == ["desktop", "laptop", *(one.name for one in found)]
    assert merge(once, *found).text == once


@given(st.data())
def test_a_merge_into_any_cut_of_a_file_is_done_or_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(LAB)))
    stop = data.draw(st.integers(start, len(LAB)))
    try:
        text = merge(LAB[:start] + LAB[stop:], device("desktop", memory_gib=5.0)).text
    except InputError:
        return
    names = [one.get("name") for one in yaml.safe_load(text)["devices"] if isinstance(one, dict)]
    assert "desktop" in names
    assert json.dumps(yaml.safe_load(text))


def test_only_what_is_new_is_said_to_be_open() -> None:
    """A source that knows the latency leaves the bandwidth of a known link as it is."""
    printed = (ROOT / "examples" / "imports" / "desktop.ping").read_text(encoding="utf-8")
    ping = source("ping").read(printed, "desktop.ping", "desktop")
    found = combined([ping], {"192.168.1.7": "mini"})
    lab = (
        "devices:\n  - {name: desktop, type: rtx-3060-12gb}\n  - {name: mini, type: apple-m4}\n"
        "links:\n  - {between: [desktop, mini], bandwidth_mbit_s: 940, latency_ms: 1}\n"
    )
    notes = inventoried(found, "ping", into=lab).notes
    assert notes == ("desktop - mini: latency_ms set",)
    other = lab.replace("mini", "third")
    notes = inventoried(found, "ping", into=other).notes
    assert "desktop - mini: bandwidth_mbit_s not known yet; see TODO" in notes
