"""Every kind of wrong file: one clear line for each fault, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.loading.load import load_inventory, load_problem

Said = Callable[[str], list[str]]
TOWER = "  - {name: tower, type: rtx-3060-12gb}\n"
LINK = "via: lan, bandwidth_mbit_s: 940, latency_ms: 0.2}"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("{type: rtx-3060-12gb}", "name: missing; every device needs a unique name"),
        ("{name: a, type: rtx-3060-12gbb}", "type: unknown device 'rtx-3060-12gbb'; did you mean"),
        ("{name: a}", "memory_gib: missing; give it, or the type of a catalogue device"),
        (
            "{name: a, type: rpi5, memory_gb: 8}",
            "memory_gb: unknown key; did you mean memory_gib?",
        ),
        ("{name: a, type: rpi5, zzz: 8}", "zzz: unknown key; known keys: name, type, memory_gib"),
        ("{name: a, type: rpi5, power_w: }", "power_w: has no value; give one or remove the key"),
        ("{name: 5, type: rpi5}", "name: must be text, got 5; put it in quotes"),
        ("{name: '', type: rpi5}", "name: must not be empty"),
        ("{name: ' a', type: rpi5}", "name: is not a usable name: ' a'; at most 200 printable"),
        (
            "{name: a, type: rpi5, memory_gib: 8 GB}",
            "memory_gib: must be a number, got '8 GB'; write a plain number, the unit is GiB",
        ),
        ("{name: a, type: rpi5, memory_gib: true}", "memory_gib: must be a number, got true"),
        ("{name: a, type: rpi5, memory_gib: [8]}", "memory_gib: must be a number, got a list"),
        ("{name: a, type: rpi5, memory_gib: .nan}", "memory_gib: must be a finite number, got nan"),
        ("{name: a, type: rpi5, memory_gib: .inf}", "memory_gib: must be a finite number, got inf"),
        ("{name: a, type: rpi5, memory_gib: 0}", "memory_gib: must be positive, got 0"),
        ("{name: a, type: rpi5, memory_gib: -8}", "memory_gib: must be positive, got -8"),
        (
            "{name: a, type: rpi5, memory_gib: 8589934592}",
            "memory_gib: must be at most 100000, got 8589934592; the unit is GiB",
        ),
        (
            f"{{name: a, type: rpi5, memory_gib: {'9' * 400}}}",
            "memory_gib: must be a finite number, got inf",
        ),
        ("{name: a, type: rpi5, power_w: -1}", "power_w: must be at least 0, got -1"),
        ("{name: a, type: rpi5, count: 0}", "count: must be at least 1, got 0"),
        ("{name: a, type: rpi5, count: 1.5}", "count: must be a whole number, got 1.5"),
        ("{name: a, type: rpi5, count: 1e9}", "count: must be at most 10000, got 1000000000"),
        (
            "{name: a, type: rpi5, count: 2, uuid: X}",
            "uuid: one card cannot be 2 devices; remove uuid or count",
        ),
        (
            "{name: a, type: rpi5, calibrated: {date: yesterday}}",
            "calibrated.date: must be a date, got 'yesterday'; write it as 2026-01-31",
        ),
        ("{name: a, type: rpi5, calibrated: {decode: 2}}", "calibrated.date: missing"),
        (
            "{name: a, type: rpi5, calibrated: {date: 2026-01-31, decode: -2}}",
            "calibrated.decode: must be at least 0, got -2",
        ),
        (
            "{name: a, type: rpi5, efficiency: 0.5}",
            "efficiency: must be a mapping of keys to values, got 0.5",
        ),
        (
            "{name: a, type: rpi5, efficiency: {decode: 70}}",
            "efficiency.decode: must be at most 2, got 70",
        ),
        (
            "{name: a, type: rpi5, efficiency: {decod: 0.7}}",
            "efficiency.decod: unknown key; did you mean decode?",
        ),
        (
            "{name: a, type: rpi5, reserved_gib: 8}",
            "reserved_gib: all of the device's memory is reserved",
        ),
        (
            "{name: a, type: rtx-3060-12gb, host_memory_gib: 8, bus_gb_s: 12}",
            "host_bandwidth_gb_s: missing; weights spill to host RAM with host_memory_gib",
        ),
        (
            "{name: tower, type: rpi5}",
            "name: the name 'tower' is taken by devices[0] on line 2; names must be unique",
        ),
    ],
)
def test_a_wrong_device_is_one_line(device: str, message: str, said: Said) -> None:
    rest = "model: llama-3.2-1b\nworkload: {prompt_tokens: 100, output_tokens: 50}\n"
    lines = said(f"devices:\n{TOWER}  - {device}\n{rest}")
    assert lines[0].startswith(f"lab.yaml:3: devices[1].{message}")


def test_a_device_that_is_no_mapping_is_refused(said: Said) -> None:
    lines = said(f"devices:\n{TOWER}  - tower\nmodel: phi-4\nworkload: {{trace: x}}\n")
    assert lines[0] == ("lab.yaml:3: devices[1]: must be a mapping of keys to values, got 'tower'")


@pytest.mark.parametrize(
    ("link", "place", "message"),
    [
        ("{between: [tower, pi], bandwidth_mbit_s: 1, latency_ms: 1}", "between[1]", "'pi' stands"),
        (
            "{between: [tower, towr], bandwidth_mbit_s: 1, latency_ms: 1}",
            "between[1]",
            (
                "'towr' is no device and no host, and only this link leads to it; did you mean "
                "tower? a switch joins two links or more"
            ),
        ),
        (f"{{between: [tower], {LINK}", "via", "'lan' is no device and no host, and only this"),
        (
            "{between: [tower, tower], bandwidth_mbit_s: 1, latency_ms: 1}",
            "between",
            "both ends are the same",
        ),
        (
            "{between: [tower, pi-1, pi-2], bandwidth_mbit_s: 1, latency_ms: 1}",
            "between",
            "must name two ends, got 3; add via",
        ),
        (
            "{between: [tower], bandwidth_mbit_s: 1, latency_ms: 1}",
            "between",
            "must name two ends, got 1; add via",
        ),
        (f"{{between: [], {LINK}", "between", "names no end"),
        ("{between: everything, bandwidth_mbit_s: 1, latency_ms: 1}", "between", "must be all or"),
        ("{between: [tower, 5], bandwidth_mbit_s: 1, latency_ms: 1}", "between[1]", "must be text"),
        (
            "{between: [tower, pi-1], via: pi-2, bandwidth_mbit_s: 1, latency_ms: 1}",
            "via",
            "'pi-2' is a device or a host, not a switch; via needs",
        ),
        (f"{{between: [tower, lan], {LINK}", "between[1]", "'lan' is the switch of via itself"),
        ("{between: all, latency_ms: 1}", "bandwidth_mbit_s", "missing; what iperf3 shows"),
        ("{between: all, bandwidth_mbit_s: 1}", "latency_ms", "missing; one way, about half"),
        ("{bandwidth_mbit_s: 1, latency_ms: 1}", "between", "missing; two ends"),
        (
            "{between: all, bandwidth_mbit_s: 1e12, latency_ms: 1}",
            "bandwidth_mbit_s",
            "must be at most 100000000, got 1e+12; the unit is Mbit/s",
        ),
        (
            "{between: all, bandwidth_mbit_s: 0, latency_ms: 1}",
            "bandwidth_mbit_s",
            "must be positive, got 0",
        ),
        (
            "{between: all, bandwidth_mbit_s: 1, latency_ms: -1}",
            "latency_ms",
            "must be at least 0, got -1",
        ),
        (
            "{between: [tower, pi-1], bandwidth_mbit_s: {forward: 1}, latency_ms: 1}",
            "bandwidth_mbit_s.backward",
            "missing",
        ),
        (
            "{between: all, bandwidth_mbit_s: {forward: 1, backward: 2}, latency_ms: 1}",
            "bandwidth_mbit_s",
            "forward and backward need two ends",
        ),
        (
            "{between: all, bandwidth_mbit_s: 1, latency_ms: 1, duplex: semi}",
            "duplex",
            "must be full or half, got 'semi'",
        ),
    ],
)
def test_a_wrong_link_is_one_line(
    link: str, place: str, message: str, good: str, said: Said
) -> None:
    start, end = good.index("links:"), good.index("model:")
    lines = said(f"{good[:start]}links:\n  - {link}\n{good[end:]}")
    assert len(lines) == 1
    assert lines[0].startswith(f"lab.yaml:5: links[0].{place}: {message}")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("runtime: lama.cpp", "runtime: unknown runtime 'lama.cpp'; did you mean llama.cpp"),
        ("runtime: {name: lama.cpp}", "runtime.name: unknown runtime 'lama.cpp'; did you mean"),
        ("runtime: {hop_ms: 1}", "runtime.hop_ms: unknown key; did you mean"),
        ("runtime: {topology: rung}", "runtime.topology: must be ring or star, got 'rung'; did"),
        ("runtime: {pipelined: maybe}", "runtime.pipelined: must be yes or no, got 'maybe'"),
        ("runtime: {pipelined: 1}", "runtime.pipelined: must be yes or no, got 1"),
        ("runtime: {max_slots: 0}", "runtime.max_slots: must be at least 1, got 0"),
        ("runtime: [vllm]", "runtime: must be a mapping of keys to values, got a list"),
        ("kv_cache: f61", "kv_cache: unknown KV cache format 'f61'; did you mean f16"),
        ("kv_cache: 16", "kv_cache: must be text, got 16; put it in quotes"),
        ("objective: fast", "objective: must be waiting_time, latency, throughput, max_context"),
        ("constraints: {pin: {r0: tower}}", "constraints.pin.r0: must be a list, got 'tower'"),
        ("constraints: {pin: [tower]}", "constraints.pin: must be a mapping of keys to values"),
        ("constraints: {pin: {r0: [towr]}}", "constraints.pin.r0[0]: no device is called 'towr'"),
        (
            "constraints: {layers: {tower: 0}}",
            "constraints.layers.tower: must be at least 1, got 0",
        ),
        ("constraints: {layers: {tower: 99}}", "constraints.layers: tower: must be 1 to"),
        ("constraints: {layers: {towr: 3}}", "constraints.layers.towr: no device is called 'towr'"),
        ("constraints: {replicas: 0}", "constraints.replicas: must be at least 1, got 0"),
        ("constraints: {roles: both}", "constraints.roles: must be auto, disaggregated or mixed"),
        (
            "constraints: {roles: disaggregated}\nruntime: llama.cpp",
            "constraints.roles: llama.cpp cannot move a KV cache",
        ),
        (
            "constraints: {exclude: [towr]}",
            "constraints.exclude[0]: no device is called 'towr'; did you mean tower?",
        ),
        (
            "constraints: {exclude: [tower, pi]}",
            "constraints.exclude: every device is excluded",
        ),
        ("context_tokens: 5", "context_tokens: unknown key; it belongs under workload"),
        ("modle: x", "modle: unknown key; did you mean model?"),
    ],
)
def test_a_wrong_section_is_one_line(section: str, message: str, good: str, said: Said) -> None:
    lines = said(good + section + "\n")
    assert len(lines) == 1
    assert lines[0].startswith(f"lab.yaml:9: {message}")


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("{}", "prompt_tokens: missing; mean tokens; here, or with --prompt-tokens"),
        ("{output_tokens: 5}", "prompt_tokens: missing; mean tokens; here, or with"),
        ("{prompt_tokens: 0, output_tokens: 5}", "prompt_tokens: must be at least 1, got 0"),
        ("{prompt_tokens: {cv: 1}, output_tokens: 5}", "prompt_tokens.mean: missing; the mean in"),
        (
            "{prompt_tokens: {mean: 9, cv: 1, p95: 9}, output_tokens: 5}",
            "prompt_tokens: gives both cv and p95; they say the same thing; keep one",
        ),
        (
            "{prompt_tokens: {mean: 9, p95: 5}, output_tokens: 5}",
            "prompt_tokens: No lognormal has mean 9 and p95 5; p95 must be between 9 and",
        ),
        ("{prompt_tokens: 9, output_tokens: 5, rate_per_s: -1}", "rate_per_s: must be at least 0"),
        ("{prompt_tokens: 9, output_tokens: 5, slots: 1e6}", "slots: must be at most 100000, got"),
        ("{prompt_tokens: 9, output_tokens: 5, slots: 65}", "slots: generic decodes at most 64"),
        ("{prompt_tokens: 9, output_tokens: 5, slo: {ttft: 3}}", "slo.ttft: unknown key; did you"),
        ("{prompt_tokens: 9, output_tokens: 5, slo: {ttft_s: 0}}", "slo.ttft_s: must be positive"),
        (
            "{prompt_tokens: 90, output_tokens: 50, context_tokens: 100}",
            "context_tokens: a mean request has 140 tokens, got room for 100",
        ),
        ("{trace: t.csv, prompt_tokens: 9}", "prompt_tokens: a trace gives the lengths already"),
        ("{trace: nowhere.csv}", "trace: nowhere.csv: cannot be read: no such file or directory"),
    ],
)
def test_a_wrong_workload_is_named_first(
    workload: str, message: str, good: str, said: Said
) -> None:
    start = good.index("workload:")
    lines = said(f"{good[:start]}workload: {workload}\n")
    assert lines[0].startswith(f"lab.yaml:8: workload.{message}")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("llama-3.1-88b", "model: unknown model 'llama-3.1-88b'; did you mean llama-3.1-8b"),
        ("zzzzzz", "model: unknown model 'zzzzzz'; e2llm-opt catalog models lists those known"),
        ("42", "model: must be a name or a mapping, got 42"),
        ("m.gguf", "model: m.gguf: cannot be read: no such file or directory"),
        ("nowhere.json", "model: nowhere.json: cannot be read: no such file or directory"),
        ("{hiden_size: 8}", "model.hiden_size: unknown key; did you mean hidden_size?"),
    ],
)
def test_a_wrong_model_is_one_line(model: str, message: str, good: str, said: Said) -> None:
    lines = said(good.replace("llama-3.2-1b", model))
    assert len(lines) == 1
    assert lines[0].startswith(f"lab.yaml:6: {message}")


def test_missing_sections_say_what_to_give(said: Said) -> None:
    assert said("weights: f16\n") == [
        "lab.yaml: devices: missing; list at least one device",
        (
            "lab.yaml: model: missing; a catalogue name, a path to config.json or to a .gguf, "
            "or a mapping; here or with --model"
        ),
        (
            "lab.yaml: workload.prompt_tokens: missing; mean tokens; here, or with "
            "--prompt-tokens, or give a trace"
        ),
        (
            "lab.yaml: workload.output_tokens: missing; mean tokens; here, or with "
            "--output-tokens, or give a trace"
        ),
    ]


def test_an_empty_list_of_devices_is_refused(good: str, said: Said) -> None:
    rest = good[good.index("model:") :]
    assert said(f"devices: []\n{rest}") == [
        "lab.yaml:1: devices: there are no devices; list at least one"
    ]


def test_listing_a_card_twice_is_refused_at_the_second(good: str, said: Said) -> None:
    rest = good[good.index("model:") :]
    cards = "  - {name: a, type: rtx-3060-12gb, uuid: GPU-6f1c}\n"
    assert said(f"devices:\n{cards}{cards.replace('name: a', 'name: b')}{rest}") == [
        (
            "lab.yaml:3: devices[1].uuid: uuid GPU-6f1c is listed by devices[0] on line 2 already; "
            "one card is one device; remove the alias"
        )
    ]


def test_a_counted_name_may_not_hit_another_device(good: str, said: Said) -> None:
    rest = good[good.index("model:") :]
    devices = "  - {name: pi-2, type: rpi5}\n  - {name: pi, type: rpi5, count: 3}\n"
    assert said(f"devices:\n{devices}{rest}") == [
        (
            "lab.yaml:3: devices[1].name: the name 'pi-2' is taken by devices[0] on line 2; "
            "names must be unique"
        )
    ]


def test_a_link_to_a_wrong_device_is_no_second_fault(good: str, said: Said) -> None:
    wrong = good.replace("type: rtx-3060-12gb", "type: rtx-3060-12gb, memory_gib: zero")
    assert said(wrong) == ["lab.yaml:2: devices[0].memory_gib: must be a number, got 'zero'"]


def test_all_faults_of_a_file_come_at_once_sorted_by_line(said: Said) -> None:
    lines = said("""\
devices:
  - name: tower
    type: rtx-30600
    memory_gib: -1
  - {name: tower, type: rpi5, cuont: 3}
links:
  - {between: [tower, lann], bandwidth_mbit_s: 940, latency_ms: fast}
model: lama-3.1-8b
weights: q4_k_mm
runtime: {name: llama, pipelined: perhaps}
workload: {prompt_tokens: -5, slo: {tpot: 1}}
objective: speed
objective: cost
constraints: {exclude: [tow]}
""")
    assert [line.split(": ")[0].removeprefix("lab.yaml:") for line in lines] == [
        *["3", "4", "5", "5", "7", "8", "9", "10", "10", "11", "11", "11", "12", "13", "14"]
    ]


def test_ten_thousand_hosts_cannot_be_linked_pairwise(good: str, said: Said) -> None:
    text = good.replace("count: 2", "count: 9000").replace("[tower, pi-1, pi-2], via: lan", "all")
    assert said(text) == [
        "lab.yaml:5: links[0]: more than 100000 links; join the hosts by a switch"
    ]


def test_too_many_devices_are_refused(good: str, said: Said) -> None:
    text = good.replace("count: 2", "count: 10000")
    assert said(text)[0] == "lab.yaml:1: devices: more than 10000 devices"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "b.yaml"
    binary.write_bytes(bytes(range(256)))
    nul = tmp_path / "n.yaml"
    nul.write_bytes(b"devices: []\nmodel: \0\n")
    large = tmp_path / "l.yaml"
    large.write_bytes(b"#" * (4 * 2**20 + 1))
    wanted = {
        binary: "b.yaml:2: not a text file; save it as UTF-8",
        nul: "n.yaml:2: not a text file (NUL characters)",
        large: "l.yaml: larger than 4 MiB",
        tmp_path: f"{tmp_path.name}: cannot be read: is a directory",
        binary / "x.yaml": "b.yaml/x.yaml: cannot be read: not a directory",
        tmp_path / "none.yaml": "none.yaml: cannot be read: no such file or directory",
        tmp_path / "a\0b": "cannot be read: this is no file name",
    }
    for path, message in wanted.items():
        for load in (load_problem, load_inventory):
            with pytest.raises(InputError) as caught:
                load(path)
            assert str(caught.value).endswith(message)
            assert len(caught.value.faults) == 1


def test_an_unreadable_file_is_refused(write: Callable[[str], str], good: str) -> None:
    path = Path(write(good))
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(InputError, match="cannot be read: permission denied"):
            load_problem(path)
    else:
        pytest.skip("this user may read everything")
