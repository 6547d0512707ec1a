"""Each source says what it knows, marks what it does not, and names the line that is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import e2llm_opt.importers
from e2llm_opt.errors import InputError
from e2llm_opt.importers import SOURCES, source
from e2llm_opt.importers.combine import combined
from e2llm_opt.importers.found import usable_name
from e2llm_opt.importers.inventory import inventoried
from e2llm_opt.importers.sources.graph import found_in
from e2llm_opt.loading.load import load_inventory
from e2llm_opt.loading.yaml_file import parse
from tests.importers import samples
from tests.importers.samples import SAMPLES

FILE = "tower.txt"


def imported(name: str, *texts: str, names: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the inventory that files of one source give, as it is read back."""
    found = [source(name).read(text, FILE) for text in texts]
    text = inventoried(combined(found, names), name).text
    value = parse(text)[0].value
    assert yaml.safe_load(text).keys() == value.keys(), "other readers see the same"
    return value


def only(name: str, text: str) -> dict[str, Any]:
    (device,) = imported(name, text)["devices"]
    assert isinstance(device, dict)
    return device


def wrong(name: str, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        source(name).read(text, FILE)
    return caught.value


def variants() -> list[tuple[str, str]]:
    return [(name, variant) for name, all_of in SAMPLES.items() for variant in all_of]


def test_every_module_is_listed_and_has_samples() -> None:
    folder = Path(e2llm_opt.importers.__file__).parent / "sources"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == {one.module for one in SOURCES}
    assert {one.name for one in SOURCES} == set(SAMPLES)
    assert len(SOURCES) == 10


@pytest.mark.parametrize(("name", "variant"), variants())
def test_what_is_complete_loads(name: str, variant: str, tmp_path: Path) -> None:
    found = combined([source(name).read(SAMPLES[name][variant], FILE)])
    result = inventoried(found, name)
    path = tmp_path / "lab.yaml"
    path.write_text(result.text, encoding="utf-8")
    if found.devices and "TODO" not in result.text:
        inventory = load_inventory(path)
        asked = sum(int(device.values.get("count", 1)) for device in found.devices)
        assert len(inventory.devices) == asked
        assert len(inventory.links) == len(found.links)
    else:
        assert "TODO" in result.text or not found.devices
        todo = [note for note in result.notes if "TODO" in note]
        assert len(todo) == sum("TODO" in item for item in result.text.split("\n  - "))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("other", [*SAMPLES, "nothing", "words", "binary"])
def test_foreign_output_is_refused_with_its_file(name: str, other: str) -> None:
    foreign = {"nothing": "", "words": "command not found\n", "binary": "\x01\x02{[,"}
    texts = [foreign[other]] if other in foreign else list(SAMPLES[other].values())
    if name == other:
        return
    for text in texts:
        fault = wrong(name, text).faults[0]
        assert fault.file == FILE
        assert fault.line >= 1 or not text or name == "graph" or "the file is" in fault.wrong


@pytest.mark.parametrize(("name", "variant"), variants())
@given(data=st.data())
def test_cut_output_is_read_or_refused_but_never_a_bug(
    name: str, variant: str, data: st.DataObject
) -> None:
    text = SAMPLES[name][variant]
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    middle = data.draw(st.sampled_from(["", "\n", '"', "{", "[", "null", "-1", ","]))
    try:
        found = source(name).read(text[:start] + middle + text[stop:], FILE)
    except InputError as error:
        files = {fault.file for fault in error.faults}
    else:
        files = {FILE}
        parse(inventoried(combined([found]), name).text or "links: []")
    assert files == {FILE}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


def replaced(value: Any, data: st.DataObject) -> Any:
    """Return *value* with anything in the place of some part of it."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 4)) == 0:
        return data.draw(JSON)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    key = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    copy[key] = replaced(value[key], data)
    return copy


@pytest.mark.parametrize(
    ("name", "variant"), [one for one in variants() if SAMPLES[one[0]][one[1]].strip()[0] in "{["]
)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused(
    name: str, variant: str, data: st.DataObject
) -> None:
    text = json.dumps(replaced(json.loads(SAMPLES[name][variant]), data), indent=1)
    try:
        found = source(name).read(text, FILE)
    except InputError as error:
        lines = [fault.line for fault in error.faults]
    else:
        lines = [1]
        parse(inventoried(combined([found]), name).text or "links: []")
    assert all(0 <= line <= len(text.splitlines()) for line in lines)


def test_cards_keep_their_uuid_and_say_what_the_catalogue_filled() -> None:
    found = source("nvidia-smi").read(samples.NVIDIA_SMI, FILE)
    text = inventoried(found, "nvidia-smi").text
    one, two = yaml.safe_load(text)["devices"]
    assert one["uuid"] == "GPU-1d9bd5b8-0a7d-4b0f-9a39-1df2a0a2c3f1"
    assert (one["name"], one["host"], one["type"]) == ("tower-0", "tower", "rtx-3060-12gb")
    assert (one["memory_gib"], one["power_w"]) == (12, 170)
    assert (two["type"], two["memory_bandwidth_gb_s"]) == ("rtx-3090", 936)
    assert "not in nvidia-smi: from the catalogue (rtx-3060-12gb, sourced)" in text
    assert "9.0 GiB were in use" in text, "worth a reserve"
    assert "0.3 GiB were in use" not in text, "the driver's own"


def test_memory_that_a_card_does_not_tell_is_the_catalogues() -> None:
    device = only("nvidia-smi", samples.NVIDIA_SMI_UNIFIED)
    assert (device["type"], device["memory_gib"]) == ("dgx-spark", 128)


def test_one_card_is_called_as_its_machine() -> None:
    assert only("nvidia-smi", samples.NVIDIA_SMI_BARE)["name"] == "tower"
    assert source("nvidia-smi").read(samples.NVIDIA_SMI_BARE, FILE, "box").devices[0].name == "box"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (3, samples.NVIDIA_SMI.replace("GPU-7c1b1c1e-2f7a-4b1f-8c2e-6a7c1e2f7a4b, ", "")),
        (2, samples.NVIDIA_SMI.replace("12288 MiB", "many")),
        (1, samples.NVIDIA_SMI.replace("memory.total [MiB]", "what?!")),
        (1, "0, 1, 2\n"),
    ],
)
def test_a_wrong_line_of_nvidia_smi_is_named(line: int, text: str) -> None:
    (fault,) = wrong("nvidia-smi", text).faults
    assert (fault.line, "nvidia-smi --query-gpu=" in fault.right) == (line, True)


def test_rpc_servers_are_devices_of_their_own_host() -> None:
    local, remote = imported("llama-server", samples.LLAMA_SERVER)["devices"]
    assert (local["host"], local["type"]) == ("tower", "rtx-3060-12gb")
    assert (remote["name"], remote["host"]) == ("192.168.1.5:50052", "192.168.1.5")
    assert remote["fp16_tflops"] is None
    _, old = imported("llama-server", samples.LLAMA_SERVER_OLD)["devices"]
    assert old["name"] == "10.0.0.4:50052"


def test_a_broken_line_of_llama_server_is_named() -> None:
    text = samples.LLAMA_SERVER.replace("(24109 MiB, 23800 MiB free)", "(?)")
    assert wrong("llama-server", text).faults[0].line == 6
    assert "only the CPU" in str(wrong("llama-server", "Available devices:\n"))


def test_both_directions_of_iperf3_are_one_link() -> None:
    there = samples.iperf3(rate=941e6)
    back = samples.iperf3(
        rate=702e6,
        local="192.168.1.7",
        remote="192.168.1.2",
        host="192.168.1.2",
        system="Linux mini.lan 6.8 x86_64",
        rtt_us=600,
    )
    (link,) = imported("iperf3", there, back)["links"]
    assert link["between"] == ["tower", "mini.lan"]
    assert link["bandwidth_mbit_s"] == {"forward": 941, "backward": 702}
    assert link["latency_ms"] == pytest.approx(0.206), "half of 412 us, the one that waited less"


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        (samples.iperf3(), (941, None)),
        (samples.iperf3(reverse=1), (None, 941)),
        (samples.iperf3(back=5e8), (941, 500)),
    ],
)
def test_rates_are_those_received_from_client_to_server(
    text: str, rates: tuple[float | None, float | None]
) -> None:
    (link,) = source("iperf3").read(text, FILE).links
    assert (link.forward_mbit_s, link.backward_mbit_s) == rates
    assert link.ends == ("192.168.1.2", "mini.lan")


def test_the_servers_own_file_has_the_same_direction() -> None:
    text = samples.iperf3(is_server=True, local="10.0.0.1", remote="10.0.0.2", rtt_us=0)
    (link,) = source("iperf3").read(text, FILE).links
    assert link.ends == ("10.0.0.2", "10.0.0.1"), "the client first"
    assert (link.forward_mbit_s, link.latency_ms) == (941, None)


def test_a_failed_test_of_iperf3_is_refused() -> None:
    text = '{\n "start": {},\n "error": "unable to connect to server"\n}'
    (fault,) = wrong("iperf3", text).faults
    assert (fault.line, "unable to connect" in fault.wrong) == (3, True)
    broken = samples.iperf3().replace('"bits_per_second": 941000000.0\n\t\t}\n', '"x": 1}')
    assert wrong("iperf3", broken).faults[0].line > 1


def test_streams_together_are_told() -> None:
    assert "-P 1" in source("iperf3").read(samples.iperf3(streams=4), FILE).notes[0]


@pytest.mark.parametrize(
    ("text", "end", "latency_ms"),
    [
        (samples.PING_LINUX, "mini.lan", 0.156),
        (samples.PING_MAC, "mini.lan", 2.45),
        (samples.PING_BUSYBOX, "10.0.0.4", 0.3),
        (samples.PING_WINDOWS, "mini", 1.0),
    ],
)
def test_latency_is_half_the_mean_of_ping(text: str, end: str, latency_ms: float) -> None:
    (link,) = source("ping").read(text, FILE).links
    assert link.ends == ("tower", end)
    assert link.latency_ms == pytest.approx(latency_ms)


def test_who_does_not_answer_is_named() -> None:
    (fault,) = wrong("ping", samples.PING_LINUX + samples.PING_DEAD).faults
    assert (fault.line, "mini.lan did not answer" in fault.wrong) == (7, True)


def test_names_are_given_by_address_or_by_name() -> None:
    for called in ("192.168.1.7", "mini.lan"):
        (link,) = imported("ping", samples.PING_LINUX, names={called: "mini"})["links"]
        assert link["between"] == ["tower", "mini"]
    with pytest.raises(InputError, match=r"nothing is called 10\.9\.9\.9"):
        imported("ping", samples.PING_LINUX, names={"10.9.9.9": "mini"})


def test_nodes_of_kubernetes_are_counted_cards_or_cpus() -> None:
    found = source("kubernetes").read(samples.KUBERNETES, FILE)
    gpu, edge, cpu = imported("kubernetes", samples.KUBERNETES)["devices"]
    assert (gpu["type"], gpu["count"], gpu["host"]) == ("a100-sxm-80gb", 4, "gpu-a")
    assert (edge["type"], "count" in edge) == ("tesla-t4", False), "four pods share one card"
    assert (cpu["memory_gib"], cpu["fp16_tflops"]) == (31.262, None)
    assert any("cordoned" in note and f"{FILE}:" in note for note in found.notes)


def test_a_node_that_is_wrong_is_named_by_line_and_path() -> None:
    text = samples.KUBERNETES.replace('"32780344Ki"', '"much"')
    (fault,) = wrong("kubernetes", text).faults
    line = next(i for i, line in enumerate(text.splitlines(), 1) if "much" in line)
    assert (fault.path, fault.line) == ("items[2].status.allocatable.memory", line)


def test_gpustack_reserves_and_shares_hosts() -> None:
    one, two, mac, plain = imported("gpustack", samples.GPUSTACK)["devices"]
    assert [one["name"], two["name"]] == ["worker-1-0", "worker-1-1"]
    assert (one["host"], one["reserved_gib"], one["type"]) == ("worker-1", 1, "rtx-4090")
    assert (mac["type"], mac["memory_gib"]) == ("apple-m2-ultra", 192)
    assert plain["memory_gib"] == 16
    assert any(
        "not_ready" in note for note in source("gpustack").read(samples.GPUSTACK, FILE).notes
    )


def test_facts_of_several_machines_and_who_was_not_reached() -> None:
    found = source("ansible").read(samples.ANSIBLE, FILE)
    pi, box = imported("ansible", samples.ANSIBLE)["devices"]
    assert (pi["type"], pi["memory_gib"]) == ("raspberry-pi-5-8gb", 7.875)
    assert (box["name"], box["type"]) == ("box", "intel-n100")
    assert any("nas was not reached" in note for note in found.notes)
    assert any("eth0 runs at 1000 Mbit/s" in note for note in found.notes)
    for text in (samples.ANSIBLE_TREE, samples.ANSIBLE_CACHE):
        assert only("ansible", text)["name"] == "pi"


def test_a_wrong_fact_is_named_by_its_line_in_the_whole_output() -> None:
    text = samples.ANSIBLE.replace("15735", '"all"')
    (fault,) = wrong("ansible", text).faults
    assert '"all"' in text.splitlines()[fault.line - 1]


def test_kinds_of_nodes_of_ray() -> None:
    head, l4, *pairs = imported("ray", samples.RAY)["devices"]
    assert (head["name"], head["memory_gib"]) == ("head", 32)
    assert (l4["type"], l4["count"]) == ("nvidia-l4", 3)
    assert [(pair["host"], pair["count"]) for pair in pairs] == [("a100x2-1", 2), ("a100x2-2", 2)]
    names = [device["name"] for device in imported("ray", samples.RAY_LOCAL)["devices"]]
    assert names == ["192.168.1.2", "192.168.1.3", "pi.lan"]


def test_parallax_knows_speeds_and_round_trips() -> None:
    value = imported("parallax", samples.PARALLAX)
    one, two = value["devices"]
    assert (one["fp16_tflops"], one["memory_bandwidth_gb_s"]) == (82.6, 1008), "not the catalogue's"
    assert (two["count"], two["type"]) == (2, "rtx-3090")
    (link,) = value["links"]
    assert (link["between"], link["latency_ms"]) == (["a", "b"], 1.0), "half the mean of both"
    assert only("parallax", samples.PARALLAX_STATUS)["type"] == "apple-m4"


def test_a_graph_is_the_same_as_an_object_as_json_and_as_graphml() -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_node("tower", type="rtx-3060-12gb")
    graph.add_node("mini", memory_gib=24.0, memory_bandwidth_gb_s=120.0, fp16_tflops=4.3)
    graph.add_edge("tower", "lan", bandwidth_mbit_s=940.0, latency_ms=0.1)
    graph.add_edge("mini", "lan", bandwidth_mbit_s=500.0, latency_ms=0.2)
    file = io.BytesIO()
    nx.write_graphml(graph, file)
    as_json = json.dumps(nx.node_link_data(graph, edges="edges"))
    texts = [file.getvalue().decode(), as_json]
    wanted = yaml.safe_load(inventoried(found_in(graph), "graph").text)
    assert [imported("graph", text) for text in texts] == [wanted, wanted]
    assert len(wanted["devices"]) == len(wanted["links"]) == 2, "lan is a switch"


def test_edges_of_a_directed_graph_are_directions() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("a", type="rtx-3090")
    graph.add_node("b", type="rtx-3090")
    graph.add_edge("a", "b", bandwidth_mbit_s=100, latency_ms=1)
    graph.add_edge("b", "a", bandwidth_mbit_s=20, latency_ms=1)
    (link,) = found_in(graph).links
    assert (link.forward_mbit_s, link.backward_mbit_s) == (100, 20)


def test_broken_and_dangerous_graphs_are_refused() -> None:
    assert wrong("graph", "<graphml>\n<graph>\n</x>").faults[0].line == 3
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]><graphml>&a;</graphml>'
    assert "document type" in str(wrong("graph", bomb))
    text = samples.GRAPH.replace('"target": "lan"', '"target": "nowhere"', 1)
    fault = wrong("graph", text).faults[0]
    assert '"nowhere"' in text.splitlines()[fault.line - 1]
    fault = wrong("graph", samples.GRAPH.replace("24", '"x"')).faults[0]
    assert (fault.path, fault.line > 1) == ("nodes[1].memory_gib", True)


def test_a_card_in_two_files_is_one_card() -> None:
    found = source("nvidia-smi").read(samples.NVIDIA_SMI, FILE)
    both = combined([found, source("nvidia-smi").read(samples.NVIDIA_SMI, "again.csv")])
    assert len(both.devices) == 2
    assert sum("kept once" in note for note in both.notes) == 2


def test_two_machines_of_one_name_get_two_names() -> None:
    facts = source("ansible").read(samples.ANSIBLE_CACHE, FILE)
    assert [device.name for device in combined([facts, facts]).devices] == ["pi", "pi-2"]


ODD = st.text(min_size=1, max_size=30) | st.sampled_from(
    [
        "no",
        "NO",
        "1e9",
        "1_000",
        "0b1",
        "12:30",
        "010",
        "null",
        "-",
        "a: b",
        "# c",
        "it's",
        'say "hi"',
        "$(rm -rf ~)",
        "`x`;|&",
        "日本 🖥",
    ]
)


@given(name=ODD, product=ODD)
def test_any_name_survives(name: str, product: str) -> None:
    node = {"node_id": name, "gpu_name": product, "memory_gb": 8, "tflops_fp16": 1}
    text = json.dumps([{**node, "memory_bandwidth_gbps": 9}])
    wanted = usable_name(name.encode(errors="replace").decode())
    if not wanted:
        assert "node_id" in str(wrong("parallax", text))
        return
    found = source("parallax").read(text, "odd\nfile.json")
    written = inventoried(found, "parallax").text
    assert parse(written)[0].value["devices"][0]["name"] == wanted
    assert yaml.safe_load(written)["devices"][0]["name"] == wanted
