"""Each engine's own rules, read the other way: from what was exported back to layers.

Written from the engines' documentation and sources, not from the exporters: what a command line
means to the program that gets it. Each function returns (device, start, stop) of every stage, a
tuple a replica, sorted. What the engine would refuse fails an assertion.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.export.exported import Export, ExportCommand

Cuts = list[tuple[tuple[str, int, int], ...]]


def value(command: ExportCommand, *options: str) -> str:
    """Return the word after an option that must be there once."""
    places = [i for i, word in enumerate(command.argv) if word in options and i]
    # A value may look like an option: only every other word is one, which holds for these.
    assert len(places) >= 1, f"{command.argv} has no {options}"
    return command.argv[places[0] + 1]


def has(command: ExportCommand, option: str) -> bool:
    return option in command.argv


def values(command: ExportCommand, option: str) -> list[str]:
    """Return all words after an option, up to the next option."""
    start = command.argv.index(option) + 1
    found = []
    for word in command.argv[start:]:
        if word.startswith("--"):
            break
        found.append(word)
    return found


# ---------------------------------------------------------------- llama.cpp


def llama_devices(split: str, ngl: int, num_layers: int) -> list[int]:
    """Return the device of each layer and of the head; -1 is the CPU.

    ``load_tensors`` in ``src/llama-model.cpp``: cumulative shares in fp32, normalised; unit i goes
    to the first share that is strictly greater than i / act (``std::upper_bound``).
    """
    shares = np.array([float(x) for x in split.split(",")], dtype=np.float32)
    sums = np.cumsum(shares, dtype=np.float32)
    sums = (sums / sums[-1]).astype(np.float32)
    units = num_layers + 1
    first = max(units - ngl, 0)
    act = min(ngl, units)
    found = []
    for unit in range(units):
        if unit < first:
            found.append(-1)
            continue
        place = np.float32(np.float32(unit - first) / np.float32(act))
        found.append(int(np.searchsorted(sums, place, side="right")))
    return found


def llama_cpp(export: Export, num_layers: int) -> Cuts:
    workers = {
        f"{value(own, '-H')}:{value(own, '-p')}": own.device
        for own in export.commands
        if own.argv[0] == "ggml-rpc-server"
    }
    found = []
    for own in export.commands:
        if own.argv[0] != "llama-server":
            continue
        endpoints = value(own, "--rpc").split(",") if has(own, "--rpc") else []
        names = value(own, "-dev").split(",")
        devices = [
            workers[endpoints[int(name[3:])]] if name.startswith("RPC") else own.device
            for name in names
        ]
        assert len(set(devices)) == len(devices)
        places = llama_devices(value(own, "-ts"), int(value(own, "-ngl")), num_layers)
        assert places[-1] == len(devices) - 1, "the head is on the last device"
        assert -1 not in places
        layers = places[:-1]
        found.append(
            tuple(
                (device, layers.index(d), layers.index(d) + layers.count(d))
                for d, device in enumerate(devices)
            )
        )
    return sorted(found)


# ---------------------------------------------------------------- vLLM, SGLang


def _partitioned(
    export: Export,
    num_layers: int,
    *,
    variable: str,
    size: str,
    is_server: str,
    master: str,
) -> Cuts:
    """Read pipelines whose ranks are ``--node-rank``; the list must fit size and layers."""
    groups: dict[str, list[ExportCommand]] = defaultdict(list)
    for own in export.commands:
        if is_server in own.argv:
            key = value(own, master) if has(own, master) else f"alone {own.device}"
            if has(own, "--master-port"):
                key += value(own, "--master-port")
            groups[key].append(own)
    found = []
    for members in groups.values():
        lists = {own.env[variable] for own in members}
        assert len(lists) == 1, "every rank must see the same list"
        counts = [int(x) for x in lists.pop().split(",")]
        num = {int(value(own, size)) for own in members}
        assert num == {len(counts)}, "the length of the list is the pipeline size"
        assert sum(counts) == num_layers, "the sum of the list is the number of layers"
        ranked = {int(value(o, "--node-rank")) if len(counts) > 1 else 0: o for o in members}
        assert sorted(ranked) == list(range(len(counts)))
        if len(counts) > 1:
            assert {int(value(own, "--nnodes")) for own in members} == {len(counts)}
        starts = np.cumsum([0, *counts])
        found.append(
            tuple(
                (ranked[r].device, int(starts[r]), int(starts[r + 1])) for r in range(len(counts))
            )
        )
    return sorted(found)


def vllm(export: Export, num_layers: int) -> Cuts:
    for own in export.commands:
        if own.argv[:2] == ("vllm", "serve") and has(own, "--node-rank"):
            assert has(own, "--headless") == (value(own, "--node-rank") != "0")
    return _partitioned(
        export,
        num_layers,
        variable="VLLM_PP_LAYER_PARTITION",
        size="--pipeline-parallel-size",
        is_server="serve",
        master="--master-addr",
    )


def sglang(export: Export, num_layers: int) -> Cuts:
    return _partitioned(
        export,
        num_layers,
        variable="SGLANG_PP_LAYER_PARTITION",
        size="--pp-size",
        is_server="sglang.launch_server",
        master="--dist-init-addr",
    )


# ---------------------------------------------------------------- prima.cpp


def prima_cpp(export: Export, num_layers: int) -> Cuts:
    """Walk the ring as ``this_layer_is_mine``: from rank 1 on, rank 0 last, over all layers."""
    heads = [own for own in export.commands if own.argv[0] == "llama-server"]
    found = []
    for head in heads:
        world = int(value(head, "--world"))
        master = value(head, "--master")
        assert value(head, "--rank") == "0"
        others = [
            own
            for own in export.commands
            if own.argv[0] == "llama-cli"
            and value(own, "--master") == master
            and _port(own) == _port(head)
        ]
        ring = [head, *sorted(others, key=lambda own: int(value(own, "--rank")))]
        assert [int(value(own, "--rank")) for own in ring] == list(range(world))
        windows = [int(x) for x in value(head, "-lw").split(",")]
        assert len(windows) == world <= 32
        assert all(window > 0 for window in windows)
        owner: list[int] = []
        while len(owner) < num_layers:
            for rank in (*range(1, world), 0):
                owner += [rank] * windows[rank]
        assert len(owner) == num_layers, "one round"
        cuts = []
        for rank in (*range(1, world), 0):
            start = owner.index(rank)
            cuts.append((ring[rank].device, start, start + owner.count(rank)))
            assert int(value(ring[rank], "-ngl")) == owner.count(rank)
        found.append(tuple(cuts))
    return sorted(found)


def _port(command: ExportCommand) -> str:
    return value(command, "--data-port") if has(command, "--data-port") else "9000"


# ---------------------------------------------------------------- Parallax, Petals


def parallax(export: Export, num_layers: int) -> Cuts:
    groups: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for own in export.commands:
        assert own.argv[:2] == ("parallax", "serve")
        start, stop = int(value(own, "--start-layer")), int(value(own, "--end-layer"))
        assert 0 <= start < stop
        groups[value(own, "--dht-prefix")].append((start, stop, own.device))
    return _joined(groups, num_layers)


def petals(export: Export, num_layers: int) -> Cuts:
    groups: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    last = ""
    for own in export.commands:
        if has(own, "--new_swarm"):
            last = f"{own.device}"
        start, stop = (int(x) for x in value(own, "--block_indices").split(":"))
        groups[last].append((start, stop, own.device))
    return _joined(groups, num_layers)


def _joined(groups: dict[str, list[tuple[int, int, str]]], num_layers: int) -> Cuts:
    found = []
    for members in groups.values():
        members.sort()
        assert members[0][0] == 0
        assert members[-1][1] == num_layers
        assert all(a[1] == b[0] for a, b in pairwise(members))
        found.append(tuple((device, start, stop) for start, stop, device in members))
    return sorted(found)


# ---------------------------------------------------------------- exo


def exo(export: Export, num_layers: int) -> Cuts:
    found = []
    for name, text in export.files.items():
        if name.startswith("instance-") and name != "instance-links.json":
            shards = json.loads(text)["instance"]["shard_assignments"]
            runners = {runner: node for node, runner in shards["node_to_runner"].items()}
            rows = []
            for runner, shard in shards["runner_to_shard"].items():
                assert shard["n_layers"] == num_layers
                assert shard["world_size"] == len(runners)
                place = shard["device_rank"], runners[runner]
                rows.append((*place, shard["start_layer"], shard["end_layer"]))
            rows.sort()
            found.append(tuple((node, start, stop) for _, node, start, stop in rows))
    return sorted(found)


# ---------------------------------------------------------------- distributed-llama


def distributed_llama(export: Export, num_layers: int) -> Cuts:
    """Return equal shares; the program has tensor slices, which weigh the same."""
    workers = {
        (own.device, value(own, "--port")): own.device
        for own in export.commands
        if own.argv[:2] == ("dllama", "worker")
    }
    found = []
    rest = list(workers.values())
    for own in export.commands:
        if own.argv[0] == "dllama-api":
            named = values(own, "--workers") if has(own, "--workers") else []
            devices = [own.device, *rest[: len(named)]]
            rest = rest[len(named) :]
            k = len(devices)
            assert k & (k - 1) == 0
            bounds = [num_layers * i // k for i in range(k + 1)]
            found.append(tuple((d, bounds[i], bounds[i + 1]) for i, d in enumerate(devices)))
    return sorted(found)


# ---------------------------------------------------------------- containers


def _load(text: str) -> Any:
    return yaml.load(text, yaml.CSafeLoader)


def manifests(export: Export, name: str = "manifests.yaml") -> list[dict[str, Any]]:
    return [one for one in yaml.load_all(export.files[name], yaml.CSafeLoader) if one is not None]


def kubernetes(export: Export, num_layers: int) -> Cuts:
    """Read labels and annotations of the Deployments, and the layers in the labels."""
    groups: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for one in manifests(export):
        labels = one["metadata"].get("labels", {})
        if one["kind"] == "Deployment" and "e2llm/replica" in labels:
            start, stop = labels["e2llm/layers"].split("-")
            device = one["metadata"]["annotations"]["e2llm/device"]
            groups[labels["e2llm/replica"]].append((int(start), int(stop), device))
    return _joined(groups, num_layers)


def dynamo(export: Export, num_layers: int) -> Cuts:
    """Read the partition and the rank of every component; its node stands for the device."""
    graph = manifests(export, "dynamo.yaml")[0]
    rows: dict[str, list[tuple[int, str, list[int]]]] = defaultdict(list)
    for labels, env, args, node in _dynamo_parts(graph):
        counts = [int(x) for x in env["VLLM_PP_LAYER_PARTITION"].split(",")]
        assert sum(counts) == num_layers
        assert len(counts) == int(args[args.index("--pipeline-parallel-size") + 1])
        rank = int(args[args.index("--node-rank") + 1]) if "--node-rank" in args else 0
        assert labels["e2llm/stage"] == str(rank)
        rows[labels["e2llm/replica"]].append((rank, node, counts))
    found = []
    for members in rows.values():
        members.sort()
        counts = members[0][2]
        starts = np.cumsum([0, *counts])
        assert [rank for rank, _, _ in members] == list(range(len(counts)))
        found.append(tuple((node, int(starts[r]), int(starts[r + 1])) for r, node, _ in members))
    return sorted(found)


def _dynamo_parts(
    graph: dict[str, Any],
) -> list[tuple[dict[str, str], dict[str, str], list[str], str]]:
    found = []
    if graph["apiVersion"].endswith("v1alpha1"):
        for name, own in graph["spec"]["services"].items():
            if name == "Frontend":
                continue
            container = own["extraPodSpec"]["mainContainer"]
            env = {one["name"]: one["value"] for one in own["envs"]}
            node = own["extraPodSpec"]["nodeSelector"]["kubernetes.io/hostname"]
            found.append((own["extraPodMetadata"]["labels"], env, container["args"], node))
        return found
    for own in graph["spec"]["components"]:
        if own["name"] == "Frontend":
            continue
        template = own["podTemplate"]
        container = template["spec"]["containers"][0]
        env = {one["name"]: one["value"] for one in container["env"]}
        node = template["spec"]["nodeSelector"]["kubernetes.io/hostname"]
        found.append((template["metadata"]["labels"], env, container["args"], node))
    return found


def llm_d(export: Export, num_layers: int) -> Cuts:
    """Read hosts and partition of each release; pods are alike, so equal cuts fit in any order."""
    found = []
    for name, text in export.files.items():
        if not name.startswith("values-"):
            continue
        values_ = _load(text)
        own = next(values_[role] for role in ("prefill", "decode") if values_[role]["create"])
        container = own["containers"][0]
        env = {one["name"]: one.get("value") for one in container["env"]}
        counts = [int(x) for x in env["VLLM_PP_LAYER_PARTITION"].split(",")]
        assert sum(counts) == num_layers
        hosts = own["acceleratorTypes"]["labelValues"]
        if values_["multinode"]:
            assert own["parallelism"]["workers"] == len(counts) == len(hosts)
            assert len(set(counts)) == 1
        starts = np.cumsum([0, *counts])
        found.append(tuple((h, int(starts[i]), int(starts[i + 1])) for i, h in enumerate(hosts)))
    return sorted(found)


def ray_serve(export: Export, num_layers: int) -> Cuts:
    """Read partitions; bundle i asks for the resource that the device of stage i offers."""
    offers: dict[str, list[str]] = defaultdict(list)
    for own in export.commands:
        for resource in json.loads(value(own, "--resources")):
            offers[resource].append(own.device)
    found = []
    for application in _load(export.files["serve.yaml"])["applications"]:
        args = application["args"]
        configs = args.get("llm_configs") or [args["prefill_config"], args["decode_config"]]
        for config in configs:
            env = config["runtime_env"]["env_vars"]
            counts = [int(x) for x in env["VLLM_PP_LAYER_PARTITION"].split(",")]
            assert sum(counts) == num_layers
            assert config["engine_kwargs"]["pipeline_parallel_size"] == len(counts)
            bundles = config["placement_group_config"]["bundles"]
            named = [next(k for k in bundle if k != "GPU") for bundle in bundles]
            resources = list(dict.fromkeys(named))  # one bundle a device
            assert len(resources) == len(counts)
            starts = np.cumsum([0, *counts])
            for r in range(config["deployment_config"]["num_replicas"]):
                rows = enumerate(resources)
                cut = [(offers[name][r], int(starts[i]), int(starts[i + 1])) for i, name in rows]
                found += [tuple(cut)]
    return sorted(found)


# ---------------------------------------------------------------- devices a stage

Degrees = dict[str, int]
"""First device, or its node, of each stage: devices that share its layers."""


def _of_commands(export: Export, server: str, size: str, stages: str) -> Degrees:
    """Read the size of every rank; its GPUs must be as many as its own stages need."""
    found = {}
    for own in export.commands:
        if server not in own.argv:
            continue
        degree, num = int(value(own, size)), int(value(own, stages))
        here = 1 if has(own, "--node-rank") else num
        gpus = own.env["CUDA_VISIBLE_DEVICES"].split(",")
        assert len(gpus) == len(set(gpus)) == degree * here
        found[own.device] = degree
    return found


def _of_pods(export: Export) -> Degrees:
    found = {}
    for own in manifests(export, "manifests.yaml"):
        if own["kind"] != "Deployment" or "e2llm/stage" not in own["metadata"]["labels"]:
            continue
        (container,) = own["spec"]["template"]["spec"]["containers"]
        words = container["command"]
        degree = int(words[words.index("--tensor-parallel-size") + 1])
        assert container["resources"]["limits"]["nvidia.com/gpu"] == degree
        found[own["metadata"]["annotations"]["e2llm/device"]] = degree
    return found


def _of_graph(export: Export) -> Degrees:
    graph = manifests(export, "dynamo.yaml")[0]
    limits = []
    if graph["apiVersion"].endswith("v1alpha1"):
        services = [own for name, own in graph["spec"]["services"].items() if name != "Frontend"]
        limits = [int(own["resources"]["limits"]["gpu"]) for own in services]
    else:
        for own in graph["spec"]["components"][1:]:
            (container,) = own["podTemplate"]["spec"]["containers"]
            limits.append(int(container["resources"]["limits"]["nvidia.com/gpu"]))
    found = {}
    for gpus, (_, _, args, node) in zip(limits, _dynamo_parts(graph), strict=True):
        degree = int(args[args.index("--tensor-parallel-size") + 1])
        num = int(args[args.index("--pipeline-parallel-size") + 1])
        assert gpus == degree * (1 if "--node-rank" in args else num)
        found[node] = degree
    return found


def _of_values(export: Export) -> Degrees:
    found: Degrees = {}
    for name, text in export.files.items():
        if not name.startswith("values-"):
            continue
        own = next(
            part for part in (_load(text)[r] for r in ("prefill", "decode")) if part["create"]
        )
        degree, (container,) = own["parallelism"]["tensor"], own["containers"]
        assert f"--tensor-parallel-size {degree}" in " ".join(container["args"])
        assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == degree
        found |= dict.fromkeys(own["acceleratorTypes"]["labelValues"], degree)
    return found


def _of_bundles(export: Export) -> Degrees:
    """Read sizes; a stage has as many bundles, of a resource that its node offers as often."""
    offers: dict[str, tuple[str, int]] = {}
    for own in export.commands:
        offered = json.loads(value(own, "--resources"))
        assert int(value(own, "--num-gpus")) == sum(offered.values())
        offers |= {name: (own.device, number) for name, number in offered.items()}
    found = {}
    for application in _load(export.files["serve.yaml"])["applications"]:
        for config in application["args"]["llm_configs"]:
            degree = config["engine_kwargs"]["tensor_parallel_size"]
            bundles = config["placement_group_config"]["bundles"]
            names = [next(k for k in bundle if k != "GPU") for bundle in bundles]
            for name in dict.fromkeys(names):
                device, number = offers[name]
                assert names.count(name) == number == degree
                found[device] = degree
    return found


DEGREES: dict[str, Callable[[Export], Degrees]] = {
    "vllm": lambda one: _of_commands(
        one, "serve", "--tensor-parallel-size", "--pipeline-parallel-size"
    ),
    "sglang": lambda one: _of_commands(one, "sglang.launch_server", "--tp-size", "--pp-size"),
    "kubernetes": _of_pods,
    "dynamo": _of_graph,
    "llm-d": _of_values,
    "ray-serve": _of_bundles,
}

PARSERS = {
    "llama.cpp": llama_cpp,
    "vllm": vllm,
    "sglang": sglang,
    "prima.cpp": prima_cpp,
    "exo": exo,
    "parallax": parallax,
    "petals": petals,
    "distributed-llama": distributed_llama,
    "kubernetes": kubernetes,
    "dynamo": dynamo,
    "llm-d": llm_d,
    "ray-serve": ray_serve,
}
