"""vLLM: one process a stage across hosts, or one for all GPUs of a host; NIXL between roles.

``VLLM_PP_LAYER_PARTITION`` gives the layers of each pipeline rank, and must be set for every rank;
its length is the pipeline size, its sum the number of layers (docs.vllm.ai, environment variables).
Ranks are in the order of ``--node-rank``, on one host in that of ``CUDA_VISIBLE_DEVICES``.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from e2llm_opt.export.addresses import Ports, is_numeric
from e2llm_opt.export.differences import head_warnings, uneven_shares
from e2llm_opt.export.formats import KV_CACHE, dtype, refuse_formats
from e2llm_opt.export.front_door import endpoint, pool_endpoint
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import refuse_spilled, refuse_unlike_degrees
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_PORT: Final = 8000
_MASTER_PORT: Final = 29501
_SIDE_CHANNEL_PORT: Final = 5600
_PROXY_PORT: Final = 8192
PARTITION: Final = "VLLM_PP_LAYER_PARTITION"
_KV_ROLES: Final = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}
_NEEDS: Final = (
    "vLLM (one version everywhere, with `nixl` for PREFILL and DECODE replicas) and CUDA or ROCm. "
    "`toy_proxy_server.py` is in vLLM's sources, under tests/v1/kv_connector/nixl_integration."
)


def launch(setup: Setup) -> Launch:
    """Return the servers of every replica, and the proxy between PREFILL and DECODE ones."""
    refuse_formats("vllm", setup)
    refuse_spilled(setup, "--cpu-offload-gb knows bytes a GPU, not layers")
    refuse_unlike_degrees(setup, "--tensor-parallel-size")
    ports = Ports()
    processes: list[Process] = []
    servers: dict[str, Process] = {}
    for replica in setup.replicas:
        own = _servers(setup, replica, ports)
        processes += own
        servers[replica.id] = own[0]
    mixed = setup.of_role(Role.MIXED)
    endpoints = [endpoint(setup, r, servers[r.id], drops_roles=False) for r in mixed]
    if len(mixed) < len(setup.replicas):
        proxy = _proxy(setup, servers, ports)
        processes.append(proxy)
        endpoints.append(pool_endpoint(setup, proxy))
    return Launch(
        processes=tuple(processes),
        endpoints=tuple(endpoints),
        needs=_NEEDS,
        notes=(
            (
                f"{PARTITION} gives the layers of each stage, in the order of the ranks. The stage "
                "with the least free memory a layer decides how many tokens the KV cache holds."
            ),
        ),
        warnings=tuple(vllm_warnings(setup)),
    )


def vllm_warnings(setup: Setup, engine: str = "vllm") -> list[str]:
    """Return what vLLM, or an engine that runs it, does otherwise than the plan says."""
    found = head_warnings(setup, engine)
    parted = setup.of_role(Role.PREFILL, Role.DECODE)
    if any(len(replica.stages) > 1 for replica in parted):
        found.append(
            "a KV transfer between replicas of several stages is not in vLLM's compatibility "
            "matrix: try it before you rely on it"
        )
    if parted:
        found.append(
            "PREFILL and DECODE replicas must agree in vLLM version, model, dtype, KV cache dtype "
            "and attention backend"
        )
    found += uneven_shares(setup, "the proxy sends requests in turn")
    found += [
        f"{stage.device} is {stage.type}: vLLM's pipelines are for CUDA and ROCm GPUs"
        for replica in setup.replicas
        for stage in replica.stages
        if stage.is_cpu or stage.type.startswith("apple")
    ]
    return found


def partition(replica: ReplicaSetup) -> str:
    """Return the layers of each stage, as vLLM and SGLang take them."""
    return ",".join(map(str, replica.layer_counts))


def flags(setup: Setup, replica: ReplicaSetup) -> list[str]:
    """Return the flags that say what one replica holds, the same on all its stages."""
    argv = ["--pipeline-parallel-size", str(len(replica.stages))]
    argv += ["--tensor-parallel-size", str(replica.degree)]
    argv += ["--max-model-len", str(setup.context_tokens), "--max-num-seqs", str(replica.slots)]
    if dtype(setup):
        argv += ["--dtype", dtype(setup)]
    return [*argv, "--kv-cache-dtype", KV_CACHE["vllm"][setup.kv_cache]]


def memory_flags(stages: Sequence[StageSetup]) -> list[str]:
    """Return the share of a GPU that the plan may use; nothing where an inventory does not say.

    Unless told, vLLM takes 0.9, which may be less than the plan counts on, or more than is free.
    """
    shares = [s.stage.memory_bytes.capacity / s.memory_bytes for s in stages if s.memory_bytes > 0]
    if not shares:
        return []
    return ["--gpu-memory-utilization", f"{math.floor(100 * min(shares)) / 100:.2f}"]


def rank_flags(replica: ReplicaSetup, stage: StageSetup, port: int = _MASTER_PORT) -> list[str]:
    """Return the flags that make one process a stage of a replica that spans hosts."""
    argv = ["--distributed-executor-backend", "mp", "--nnodes", str(len(replica.stages))]
    argv += ["--node-rank", str(stage.index), "--master-addr", replica.first.host]
    argv += ["--master-port", str(port)]
    return argv if stage.index == 0 else [*argv, "--headless"]


def transfer_config(role: Role) -> str:
    """Return the configuration of the KV transfer of one role, as JSON."""
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": _KV_ROLES[role],
        "kv_load_failure_policy": "fail",
    }
    return json.dumps(config, separators=(",", ":"))


def visible_devices(stages: Sequence[StageSetup]) -> dict[str, str]:
    """Return the variables that choose GPUs of a host, stage by stage in pipeline order."""
    numbers = [
        "".join(c for c in own.engine_device if c.isdecimal()) or str(own.gpu_number)
        for stage in stages
        for own in stage.members
    ]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(numbers)}


def _servers(setup: Setup, replica: ReplicaSetup, ports: Ports) -> list[Process]:
    """Return one process for a replica on one host, else one for each stage."""
    first = replica.first
    port = ports.take(first.host, first.port or _PORT)
    apart = not replica.is_on_one_host
    master_port = ports.take(first.host, _MASTER_PORT) if apart else 0
    found = []
    for stage in replica.stages if apart else (first,):
        argv = ["vllm", "serve", setup.model]
        if stage is first:
            argv += ["--host", stage.host, "--port", str(port)]
        argv += [*flags(setup, replica), *memory_flags((stage,) if apart else replica.stages)]
        env = {PARTITION: partition(replica)}
        env |= visible_devices((stage,) if apart else replica.stages)
        if apart:
            argv += rank_flags(replica, stage, master_port)
            env |= {"VLLM_HOST_IP": stage.host} if is_numeric(stage.host) else {}
        if replica.role is not Role.MIXED:
            argv += ["--kv-transfer-config", transfer_config(replica.role)]
            env |= _side_channel(stage, ports)
        found.append(
            Process(
                title=f"{replica.role} server of {replica.id}, rank {stage.index}",
                device=stage.device,
                folder=stage.folder,
                stage=stage,
                replica=replica,
                argv=tuple(argv),
                env=env,
                host=stage.host,
                port=port,
                health=Health(kind="http", path="/health") if stage is first else Health(),
            )
        )
    return found


def _side_channel(stage: StageSetup, ports: Ports) -> dict[str, str]:
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": stage.host,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(ports.take(stage.host, _SIDE_CHANNEL_PORT)),
        "UCX_NET_DEVICES": "all",
    }


def _proxy(setup: Setup, servers: Mapping[str, Process], ports: Ports) -> Process:
    """Return the proxy whose host lists decide who is prefill and who decode."""
    lists: dict[Role, list[Process]] = {
        role: [servers[replica.id] for replica in setup.of_role(role)]
        for role in (Role.PREFILL, Role.DECODE)
    }
    home = lists[Role.DECODE][0]
    port = ports.take(home.host, _PROXY_PORT)
    argv = ["python", "toy_proxy_server.py", "--host", home.host, "--port", str(port)]
    for word, role in (("prefiller", Role.PREFILL), ("decoder", Role.DECODE)):
        argv += [f"--{word}-hosts", *(own.host for own in lists[role])]
        argv += [f"--{word}-ports", *(str(own.port) for own in lists[role])]
    return Process(
        title="proxy between PREFILL and DECODE replicas",
        device=home.device,
        folder="router",
        argv=tuple(argv),
        host=home.host,
        port=port,
        health=Health(kind="http", path="/healthcheck"),
    )
