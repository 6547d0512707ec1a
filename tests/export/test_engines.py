"""What each engine is told beside the layers: contexts, roles, devices, ports, warnings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import ExportOptions, Problem, export
from e2llm_opt.export.front_door import weights
from e2llm_opt.plan.plan import NextHop
from e2llm_opt.problem import Role
from tests.export import parsers
from tests.export.parsers import has, value, values
from tests.export.plans import plan, replica

if TYPE_CHECKING:
    from e2llm_opt.export.exported import Export, ExportCommand
    from e2llm_opt.plan.plan import Plan, Replica

TWO = (("tower", 12), ("laptop", 20))


def server(answer: Export, program: str = "llama-server") -> ExportCommand:
    return next(own for own in answer.commands if own.argv[0] == program)


def pair(weights: str = "f16", runtime: str = "vllm") -> Plan:
    """Return two PREFILL replicas, one DECODE and one MIXED."""
    return plan(
        replica("p0", "PREFILL", TWO, 1),
        replica("p1", "PREFILL", [("p", 32)], 1),
        replica("d0", "DECODE", [("mac", 32)], 8),
        replica("m0", "MIXED", [("a", 32)], 3),
        weights=weights,
        runtime=runtime,
    )


# ---------------------------------------------------------------- llama.cpp


def test_llama_cpp_is_told_devices_shares_context_slots_and_cache() -> None:
    one = plan(replica("r0", "MIXED", TWO, 5), weights="q4_k_m", kv_cache="q8_0", context=2048)
    answer = export(one, "llama.cpp")
    worker, own = answer.commands
    assert worker.device == "tower"
    assert worker.argv == ("ggml-rpc-server", "-H", "tower", "-p", "50052", "-c")
    assert own.device == "laptop"
    assert value(own, "-dev") == "RPC0,CUDA0"
    assert value(own, "-ts") == "12,21"
    assert value(own, "--rpc") == "tower:50052"
    assert value(own, "-c") == str(2048 * 5)
    assert value(own, "-np") == "5"
    assert (value(own, "-ctk"), value(own, "-ctv")) == ("q8_0", "q8_0")
    assert value(own, "-fa") == "on", "a quantised V needs flash attention"
    assert not has(server(export(plan(one.replicas[0], weights="q8_0"), "llama.cpp")), "-fa")


def test_llama_bench_separates_with_slashes() -> None:
    script = export(plan(replica("r0", "MIXED", TWO), weights="q4_k_m"), "llama.cpp").files[
        "laptop/bench.sh"
    ]
    assert "-dev RPC0/CUDA0" in script
    assert "-ts 12/21" in script
    assert "llama-bench" in script


@pytest.mark.parametrize("num_layers", [32, 98, 99, 126, 200])
def test_all_layers_are_on_devices_however_many_there_are(num_layers: int) -> None:
    """With -ngl 99, the first layers of a model of 126 would stay on the CPU."""
    cut = [("tower", num_layers - 5), ("laptop", 5)]
    answer = export(plan(replica("r0", "MIXED", cut), weights="q4_k_m"), "llama.cpp")
    assert int(value(server(answer), "-ngl")) >= num_layers + 1
    assert parsers.llama_cpp(answer, num_layers) == [
        (("tower", 0, num_layers - 5), ("laptop", num_layers - 5, num_layers))
    ]


def test_the_open_port_of_a_worker_is_warned_of_wherever_it_is_started() -> None:
    answer = export(plan(replica("r0", "MIXED", TWO), weights="q4_k_m"), "llama.cpp")
    for text in (
        answer.files["README.md"],
        answer.files["tower/README.md"],
        answer.files["tower/start.sh"],
        " ".join(answer.warnings),
    ):
        assert "neither authentication nor encryption" in text.replace("\n", " ")
    words = {word for own in answer.commands for word in own.argv}
    assert not {".".join("0000"), "*"} & words, "bound to all interfaces"


def test_devices_of_the_servers_host_are_local() -> None:
    """Three cards of one host, one elsewhere: only that one is remote."""
    cut = [("g0", 8), ("far", 8), ("g1", 8), ("g2", 8)]
    addresses = {"g0": "10.0.0.1", "g1": "10.0.0.1", "g2": "10.0.0.1", "far": "10.0.0.9:6000"}
    answer = export(
        plan(replica("r0", "MIXED", cut), weights="q4_k_m"),
        "llama.cpp",
        options=ExportOptions(addresses=addresses, engine_devices={"g1": "Vulkan3"}),
    )
    assert [own.argv[0] for own in answer.commands] == ["ggml-rpc-server", "llama-server"]
    assert value(answer.commands[0], "-p") == "6000"
    assert value(server(answer), "--rpc") == "10.0.0.9:6000"
    assert value(server(answer), "-dev") == "CUDA0,RPC0,Vulkan3,CUDA2"
    assert value(server(answer), "-ts") == "8,8,8,9"
    assert "g2" in answer.files["g0/README.md"]
    assert "g0/start.sh" not in answer.files


def test_workers_on_one_host_have_ports_and_devices_of_their_own() -> None:
    cut = [("g0", 8), ("g1", 8), ("mac", 16)]
    options = ExportOptions(
        addresses={"g0": "10.0.0.1", "g1": "10.0.0.1"}, engine_devices={"g1": "CUDA1"}
    )
    one = plan(replica("r0", "MIXED", cut), weights="q4_k_m")
    first, second, own = export(one, "llama.cpp", options=options).commands
    assert (value(first, "-p"), value(second, "-p")) == ("50052", "50053")
    assert value(second, "--device") == "CUDA1"
    assert value(own, "--rpc") == "10.0.0.1:50052,10.0.0.1:50053"


def test_an_inventory_says_what_devices_are() -> None:
    """A Mac is MTL0, a board without GPU is CPU; the last stage on a CPU goes over loopback."""
    from e2llm_opt.loading.load import problem_from_mapping

    problem = problem_from_mapping(
        {
            "devices": [
                {"name": "mac", "type": "apple-m2", "memory_gib": 24, "host": "studio.lan"},
                {"name": "pi", "type": "raspberry-pi-5-16gb", "host": "10.0.0.7"},
            ],
            "links": [{"between": "all", "bandwidth_mbit_s": 940, "latency_ms": 0.2}],
            "model": "llama-3.2-3b",
            "weights": "q4_k_m",
            "runtime": "llama.cpp",
            "workload": {"prompt_tokens": 100, "output_tokens": 50, "context_tokens": 512},
        }
    )
    cut = [{"device": "mac", "layers": [0, 20]}, {"device": "pi", "layers": [20, 28]}]
    by_hand = {"replicas": [{"role": "MIXED", "slots": 1, "stages": cut}]}
    answer = export(by_hand, "llama.cpp", problem=problem)
    worker, local, own = answer.commands
    assert value(worker, "--device") == "MTL0"
    assert value(worker, "-H") == "studio.lan"
    assert local.device == own.device == "pi"
    assert value(local, "-H") == "127.0.0.1"
    assert value(local, "--device") == "CPU"
    assert value(own, "-dev") == "RPC0,RPC1"
    assert value(own, "--rpc") == f"studio.lan:50052,127.0.0.1:{value(local, '-p')}"
    assert "wait" in answer.files["pi/start.sh"]
    alone = {
        "replicas": [{"role": "MIXED", "slots": 1, "stages": [{"device": "pi", "layers": [0, 28]}]}]
    }
    own = server(export(alone, "llama.cpp", problem=problem))
    assert (value(own, "-dev"), value(own, "-ngl")) == ("none", "0")


def test_spilled_layers_stay_in_the_servers_ram() -> None:
    own = replica("r0", "MIXED", TWO)
    last = replace(own.stages[-1], spilled_layers=(12, 30, 31))
    spilled = replace(own, stages=(own.stages[0], last))
    routed = [0.0] * 30 + [1e9, 1e9]
    one = plan(spilled, weights="q4_k_m", layer_routed_bytes=routed)
    argv = server(export(one, "llama.cpp")).argv
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "-ot"] == [
        r"blk\.(30|31)\.ffn_.*_exps\.=CPU",
        r"blk\.(12)\.ffn_.*\.=CPU",
    ]


def test_dropped_roles_are_warned_of_and_shared_by_what_each_can_do() -> None:
    answer = export(pair("q4_k_m", "llama.cpp"), "llama.cpp")
    assert any("roles are dropped" in text for text in answer.warnings)
    assert answer.files["front-door/nginx.conf"].count("weight=25;") == 4, "they are all alike"


# ---------------------------------------------------------------- vLLM, SGLang


def test_vllm_lists_every_prefill_and_decode_host_for_the_proxy() -> None:
    answer = export(pair(), "vllm")
    proxy = answer.commands[-1]
    assert proxy.argv[:2] == ("python", "toy_proxy_server.py")
    assert values(proxy, "--prefiller-hosts") == ["tower", "p"]
    assert values(proxy, "--prefiller-ports") == ["8000", "8000"]
    assert values(proxy, "--decoder-hosts") == ["mac"]
    assert values(proxy, "--decoder-ports") == ["8000"]
    roles = {"p0": "kv_producer", "p1": "kv_producer", "d0": "kv_consumer"}
    for own in answer.commands[:-1]:
        if own.device == "a":
            assert not has(own, "--kv-transfer-config")
            continue
        config = json.loads(value(own, "--kv-transfer-config"))
        assert config["kv_connector"] == "NixlConnector"
        assert config["kv_role"] == roles[{"p": "p1", "mac": "d0"}.get(own.device, "p0")]
        assert own.env["VLLM_NIXL_SIDE_CHANNEL_HOST"] == own.device
        assert own.env["UCX_NET_DEVICES"] == "all"
    assert any("compatibility matrix" in text for text in answer.warnings)
    assert "server mac:8192 weight=50;" in answer.files["front-door/nginx.conf"]


def test_vllm_on_one_host_is_one_process_that_orders_its_gpus() -> None:
    cut = [("g1", 10), ("g0", 22)]
    options = ExportOptions(
        addresses={"g0": "10.0.0.1", "g1": "10.0.0.1"},
        engine_devices={"g0": "CUDA0", "g1": "CUDA1"},
    )
    (own,) = export(plan(replica("r0", "MIXED", cut)), "vllm", options=options).commands
    assert own.env["VLLM_PP_LAYER_PARTITION"] == "10,22"
    assert own.env["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert own.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert not has(own, "--nnodes")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "parallax", "llama.cpp", "prima.cpp", "exo"])
def test_no_two_processes_of_a_host_share_a_port(engine: str) -> None:
    names = [f"g{i}" for i in range(6)]
    made = [
        replica(f"r{i}", role, [(name, 32)])
        for i, (name, role) in enumerate(zip(names, ["PREFILL", "DECODE"] * 3, strict=True))
    ]
    weights_ = {"llama.cpp": "q4_k_m", "prima.cpp": "q4_k_m", "exo": "mlx_4bit"}.get(engine, "f16")
    options = ExportOptions(addresses=dict.fromkeys(names, "10.0.0.1"))
    answer = export(plan(*made, weights=weights_), engine, options=options)
    options_ = ("--port", "--api-port", "-p", "--disaggregation-bootstrap-port")
    ports = [
        own.argv[i + 1]
        for own in answer.commands
        for i, word in enumerate(own.argv)
        if word in options_
    ]
    ports += [
        own.env["VLLM_NIXL_SIDE_CHANNEL_PORT"]
        for own in answer.commands
        if "VLLM_NIXL_SIDE_CHANNEL_PORT" in own.env
    ]
    assert len(ports) >= 6
    assert len(set(ports)) == len(ports)


def test_sglang_has_modes_timeouts_and_a_router() -> None:
    answer = export(pair(runtime="sglang"), "sglang")
    router = answer.commands[-1]
    assert value(router, "--decode") == "http://mac:30000"
    prefill = [router.argv[i + 1] for i, word in enumerate(router.argv) if word == "--prefill"]
    assert prefill == ["http://tower:30000", "http://p:30000"]
    assert has(router, "--pd-disaggregation")
    modes = {
        own.device: value(own, "--disaggregation-mode")
        for own in answer.commands
        if has(own, "--disaggregation-mode")
    }
    assert modes == {"tower": "prefill", "laptop": "prefill", "p": "prefill", "mac": "decode"}
    assert answer.commands[0].env["UCX_NET_DEVICES"] == "all"
    assert answer.commands[0].env["SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"] == "300"
    mixed = plan(replica("a", "MIXED", [("x", 8)]), replica("b", "MIXED", [("y", 8)]))
    router = export(mixed, "sglang").commands[-1]
    assert values(router, "--worker-urls") == ["http://x:30000", "http://y:30000"]


def test_unequal_shares_that_a_router_cannot_keep_are_warned_of() -> None:
    one = pair()
    busy = tuple(
        replace(own, arrival_rate_per_s=0.9) if own.id == "p0" else own for own in one.replicas
    )
    for engine in ("vllm", "sglang"):
        warnings = export(replace(one, replicas=busy), engine).warnings
        assert any("p0 75 %, p1 25 %" in text for text in warnings)
        assert not any("p0 50 %" in text for text in export(one, engine).warnings)


def cards() -> Problem:
    """Return two cards, 12 GiB with 1 reserved and 24 GiB with 2, that hold a small model."""
    from e2llm_opt.loading.load import problem_from_mapping

    return problem_from_mapping(
        {
            "devices": [
                {"name": "small", "type": "rtx-3060-12gb", "memory_gib": 12, "reserved_gib": 1},
                {"name": "large", "type": "rtx-4090", "memory_gib": 24, "reserved_gib": 2},
            ],
            "links": [{"between": "all", "bandwidth_mbit_s": 940, "latency_ms": 0.2}],
            "model": "llama-3.1-8b",
            "weights": "fp8",
            "runtime": "vllm",
            "workload": {"prompt_tokens": 100, "output_tokens": 50, "context_tokens": 1024},
        }
    )


def test_vllm_may_use_the_memory_that_the_plan_counts_on() -> None:
    """Its own 0.9 would be less than 11 of 12 GiB: the context might not fit."""
    cut = [{"device": "small", "layers": [0, 12]}, {"device": "large", "layers": [12, 32]}]
    by_hand = {"replicas": [{"role": "MIXED", "slots": 2, "stages": cut}]}
    first, second = export(by_hand, "vllm", problem=cards()).commands
    assert value(first, "--gpu-memory-utilization") == "0.91"
    assert value(second, "--gpu-memory-utilization") == "0.91"
    for own in export(by_hand, "sglang", problem=cards()).commands:
        assert 0.5 < float(value(own, "--mem-fraction-static")) < 0.91
    assert "0.91" in export(by_hand, "ray-serve", problem=cards()).files["serve.yaml"]
    assert not has(server(export(pair(), "vllm"), "vllm"), "--gpu-memory-utilization")


def test_the_readme_says_which_links_the_plan_counts_on() -> None:
    hop = NextHop(device="laptop", link="lan/eth0", prefill_time_s=0.1, decode_time_s=0.1)
    own = replica("r0", "MIXED", TWO)
    own = replace(own, stages=(replace(own.stages[0], next_hop=hop), own.stages[1]))
    text = export(plan(own), "vllm").files["README.md"]
    assert "* r0: `tower` to `laptop` over `lan/eth0`" in text


# ---------------------------------------------------------------- prima.cpp, Petals, exo


def test_prima_cpp_turns_the_ring() -> None:
    """The stages [10, 20, 34] are -lw 34,10,20: rank 0 is the last stage."""
    cut = [("x", 10), ("y", 20), ("z", 34)]
    answer = export(
        plan(replica("r0", "MIXED", cut, 2), weights="q4_k_m", context=100), "prima.cpp"
    )
    x, y, z = answer.commands
    assert value(z, "-lw") == "34,10,20"
    assert [value(own, "--rank") for own in (x, y, z)] == ["1", "2", "0"]
    assert [value(own, "--next") for own in (x, y, z)] == ["y", "z", "x"]
    assert {value(own, "--master") for own in (x, y, z)} == {"z"}
    assert (value(z, "-c"), value(z, "-np")) == ("200", "2")
    assert not has(x, "-lw")


def test_petals_keeps_tokens_for_every_slot_in_a_swarm_a_replica() -> None:
    answer = export(plan(replica("r0", "MIXED", TWO, 3), weights="nf4", context=1000), "petals")
    first, second = answer.commands
    assert value(first, "--block_indices") == "0:12"
    assert value(first, "--attn_cache_tokens") == "3000"
    assert value(first, "--quant_type") == "nf4"
    assert has(first, "--new_swarm")
    assert value(second, "--initial_peers") == "/dns/tower/tcp/31337/p2p/PEER"
    assert "${INITIAL_PEERS:?" in answer.files["laptop/start.sh"]


def test_exo_is_given_half_open_layers_by_device() -> None:
    answer = export(plan(replica("r0", "MIXED", TWO), weights="mlx_4bit"), "exo")
    body = json.loads(answer.files["instance-r0.json"])["instance"]["shard_assignments"]
    shard = body["runner_to_shard"][body["node_to_runner"]["laptop"]]
    assert shard == {
        "device_rank": 1,
        "world_size": 2,
        "start_layer": 12,
        "end_layer": 32,
        "n_layers": 32,
    }
    assert "instance-links.json" not in answer.files
    roles = export(pair("mlx_4bit", "exo"), "exo")
    assert json.loads(roles.files["instance-links.json"]) == {
        "prefill_instances": ["p0", "p1"],
        "decode_instances": ["d0"],
    }
    assert all(own.env["ENABLE_DISAGGREGATION"] == "true" for own in roles.commands)


# ---------------------------------------------------------------- the front door


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([0.3, 0.1], (75, 25)), ([1, 1, 1], (33, 33, 33)), ([0, 0], (50, 50)), ([1e-9, 1], (1, 100))],
)
def test_weights_are_whole_and_in_proportion(shares: list[float], expected: object) -> None:
    assert weights(shares) == expected


def with_rates(*rates: float) -> tuple[Replica, ...]:
    return tuple(
        replace(replica(f"r{i}", "MIXED", [(f"d{i}", 32)], 2 + i), arrival_rate_per_s=rate)
        for i, rate in enumerate(rates)
    )


def test_the_front_door_has_the_plans_weights_and_slots() -> None:
    answer = export(plan(*with_rates(0.6, 0.2, 0.2), weights="q4_k_m"), "llama.cpp")
    assert "server d0:8080 weight=60;" in answer.files["front-door/nginx.conf"]
    assert "server d2:8080 weight=20;" in answer.files["front-door/nginx.conf"]
    haproxy = answer.files["front-door/haproxy.cfg"]
    assert "server r0 d0:8080 weight 60 maxconn 2 check" in haproxy
    assert "server r2 d2:8080 weight 20 maxconn 4 check" in haproxy
    one = export(plan(*with_rates(0.6), weights="q4_k_m"), "llama.cpp")
    assert not any(name.startswith("front-door") for name in one.files)


def test_the_front_door_asks_for_health_where_all_replicas_answer_alike() -> None:
    """vLLM's servers have /health, its proxy has /healthcheck: only an open port is common."""
    unlike = export(pair(), "vllm").files["front-door/haproxy.cfg"]
    assert "httpchk" not in unlike
    assert unlike.count(" check\n") == 2
    alike = export(plan(*with_rates(0.5, 0.5)), "vllm").files["front-door/haproxy.cfg"]
    assert "option httpchk GET /health\n" in alike
    small = export(plan(*with_rates(0.5, 0.5), weights="q4_0"), "distributed-llama").files
    assert "option httpchk GET /v1/models\n" in small["front-door/haproxy.cfg"]


def test_roles_are_those_of_the_plan() -> None:
    assert {str(role) for role in Role} == {own.role for own in pair().replicas}


def test_a_problem_is_what_the_plan_is_checked_against() -> None:
    problem = Problem.load("examples/two-macs.yaml", weights="mlx_4bit")
    by_hand = {
        "replicas": [
            {
                "role": "MIXED",
                "stages": [
                    {"device": "studio", "layers": [0, 48]},
                    {"device": "macbook", "layers": [48, 80]},
                ],
            }
        ]
    }
    answer = export(by_hand, "exo", problem=problem)
    assert [own.device for own in answer.commands] == ["studio", "macbook"]
    body = json.loads(answer.files["instance-r0.json"])["instance"]["shard_assignments"]
    assert body["model_id"] == "meta-llama/Llama-3.3-70B-Instruct"
