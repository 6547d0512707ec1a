"""SGLang: one process a stage, disaggregation modes, and its own router.

``SGLANG_PP_LAYER_PARTITION`` gives the layers of each pipeline rank; length and sum are checked
(``python/sglang/srt/distributed/utils.py``). Its default cut is another one than vLLM's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from e2llm_opt.export import front_door
from e2llm_opt.export.addresses import Ports, in_url
from e2llm_opt.export.differences import head_warnings, uneven_shares
from e2llm_opt.export.engines.vllm import partition, visible_devices
from e2llm_opt.export.formats import KV_CACHE, dtype, refuse_formats
from e2llm_opt.export.front_door import endpoint, pool_endpoint
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import (
    NotExpressibleError,
    mixed_text,
    refuse_spilled,
    refuse_unlike_degrees,
)
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_PORT: Final = 30000
_ROUTER_PORT: Final = 8000
_DIST_PORT: Final = 20000
_BOOTSTRAP_PORT: Final = 8998
_TIMEOUT_S: Final = 300
"""What SGLang waits for a KV transfer unless told otherwise [s]."""
PARTITION: Final = "SGLANG_PP_LAYER_PARTITION"
_NEEDS: Final = (
    "`sglang` (one version everywhere, with `nixl` for PREFILL and DECODE replicas), "
    "`sglang_router` where the router runs, and CUDA or ROCm."
)


def launch(setup: Setup) -> Launch:
    """Return the servers of every replica, and the router in front of them."""
    refuse_formats("sglang", setup)
    refuse_spilled(setup, "--cpu-offload-gb knows bytes a GPU, not layers")
    refuse_unlike_degrees(setup, "--tp-size")
    _refuse_slow_transfers(setup)
    ports = Ports()
    processes: list[Process] = []
    servers: dict[str, Process] = {}
    bootstraps: dict[str, int] = {}
    for replica in setup.replicas:
        if replica.role is Role.PREFILL:
            bootstraps[replica.id] = ports.take(replica.first.host, _BOOTSTRAP_PORT)
        own = _servers(setup, replica, ports, bootstraps.get(replica.id, 0))
        processes += own
        servers[replica.id] = own[0]
    mixed = setup.of_role(Role.MIXED)
    endpoints = [endpoint(setup, r, servers[r.id], drops_roles=False) for r in mixed]
    warnings = [*head_warnings(setup, "sglang"), *uneven_shares(setup, "the router balances load")]
    if len(mixed) < len(setup.replicas):
        router = _disaggregating_router(setup, servers, bootstraps, ports)
        processes.append(router)
        endpoints.append(pool_endpoint(setup, router))
    elif len(mixed) > 1:
        processes.append(_router(setup, servers, ports))
        weights = front_door.weights([own.share for own in endpoints])
        if len(set(weights)) > 1:
            warnings.append(
                "SGLang's router balances load and knows no weights; front-door/ has the plan's"
            )
    return Launch(
        processes=tuple(processes),
        endpoints=tuple(endpoints),
        needs=_NEEDS,
        notes=(f"{PARTITION} gives the layers of each stage, in the order of the ranks.",),
        warnings=tuple(warnings),
    )


def _refuse_slow_transfers(setup: Setup) -> None:
    for route in setup.plan.routes:
        if route.kv_transfer_s > _TIMEOUT_S:
            raise NotExpressibleError(
                "KV transfer slower than the time-out",
                f"{route.prefill} to {route.decode} takes {route.kv_transfer_s:.0f} s, and SGLang "
                f"waits {_TIMEOUT_S} s; the nearest has the same cuts and only MIXED replicas",
                mixed_text(setup),
            )


def _servers(
    setup: Setup, replica: ReplicaSetup, ports: Ports, bootstrap_port: int
) -> list[Process]:
    first = replica.first
    port = ports.take(first.host, first.port or _PORT)
    apart = not replica.is_on_one_host
    dist_port = ports.take(first.host, _DIST_PORT) if apart else 0
    found = []
    for stage in replica.stages if apart else (first,):
        argv = ["python", "-m", "sglang.launch_server", "--model-path", setup.model]
        argv += ["--host", stage.host, "--port", str(port), *_flags(setup, replica)]
        argv += _memory_flags((stage,) if apart else replica.stages)
        if apart:
            argv += ["--nnodes", str(len(replica.stages)), "--node-rank", str(stage.index)]
            argv += ["--dist-init-addr", f"{in_url(first.host)}:{dist_port}"]
        if replica.role is not Role.MIXED:
            argv += ["--disaggregation-mode", replica.role.lower()]
            argv += ["--disaggregation-transfer-backend", "nixl"]
        if bootstrap_port:
            argv += ["--disaggregation-bootstrap-port", str(bootstrap_port)]
        found.append(
            Process(
                title=f"{replica.role} server of {replica.id}, rank {stage.index}",
                device=stage.device,
                folder=stage.folder,
                stage=stage,
                replica=replica,
                argv=tuple(argv),
                env=_environment(replica, (stage,) if apart else replica.stages),
                host=stage.host,
                port=port,
                health=Health(kind="http", path="/health") if stage is first else Health(),
            )
        )
    return found


def _flags(setup: Setup, replica: ReplicaSetup) -> list[str]:
    argv = ["--pp-size", str(len(replica.stages)), "--tp-size", str(replica.degree)]
    argv += ["--context-length", str(setup.context_tokens)]
    argv += ["--max-running-requests", str(replica.slots)]
    if dtype(setup):
        argv += ["--dtype", dtype(setup)]
    return [*argv, "--kv-cache-dtype", KV_CACHE["sglang"][setup.kv_cache]]


def _memory_flags(stages: tuple[StageSetup, ...]) -> list[str]:
    """Return the share of a GPU for weights and KV cache; nothing where an inventory does not say.

    SGLang puts its buffers beside it.
    """
    shares = [
        (own.capacity - own.overhead) / stage.memory_bytes
        for stage in stages
        for own in (stage.stage.memory_bytes,)
        if stage.memory_bytes > 0
    ]
    if not shares:
        return []
    return ["--mem-fraction-static", f"{math.floor(100 * min(shares)) / 100:.2f}"]


def _environment(replica: ReplicaSetup, stages: tuple[StageSetup, ...]) -> dict[str, str]:
    env = {PARTITION: partition(replica), **visible_devices(stages)}
    if replica.role is not Role.MIXED:
        env |= {
            "UCX_NET_DEVICES": "all",  # NIXL ignores --disaggregation-ib-device
            "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": str(_TIMEOUT_S),
            "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": str(_TIMEOUT_S),
        }
    return env


def _disaggregating_router(
    setup: Setup, servers: Mapping[str, Process], bootstraps: Mapping[str, int], ports: Ports
) -> Process:
    argv = ["--pd-disaggregation"]
    for replica in setup.of_role(Role.PREFILL):
        argv += ["--prefill", servers[replica.id].url]
        if bootstraps[replica.id] != _BOOTSTRAP_PORT:
            argv.append(str(bootstraps[replica.id]))
    for replica in setup.of_role(Role.DECODE):
        argv += ["--decode", servers[replica.id].url]
    return _router_process(argv, servers[setup.of_role(Role.DECODE)[0].id], ports)


def _router(setup: Setup, servers: Mapping[str, Process], ports: Ports) -> Process:
    urls = [servers[replica.id].url for replica in setup.replicas]
    return _router_process(["--worker-urls", *urls], servers[setup.replicas[0].id], ports)


def _router_process(argv: list[str], home: Process, ports: Ports) -> Process:
    port = ports.take(home.host, _ROUTER_PORT)
    where = ["--host", home.host, "--port", str(port)]
    return Process(
        title="router",
        device=home.device,
        folder="router",
        argv=("python", "-m", "sglang_router.launch_router", *argv, *where),
        host=home.host,
        port=port,
        health=Health(kind="http", path="/health"),
    )
