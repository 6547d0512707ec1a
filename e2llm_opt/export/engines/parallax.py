"""Parallax: one process a stage with explicit layers, and no scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from e2llm_opt.export.addresses import Ports
from e2llm_opt.export.differences import head_warnings, roles_dropped
from e2llm_opt.export.formats import dtype, refuse_formats
from e2llm_opt.export.front_door import endpoint
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import refuse_shared, refuse_spilled
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_PORT: Final = 3000
_NEEDS: Final = "`parallax`, on PATH (with SGLang or vLLM on CUDA, with MLX on Apple silicon)."


def launch(setup: Setup) -> Launch:
    """Return one process a stage; roles are dropped with a warning."""
    refuse_formats("parallax", setup)
    refuse_shared(setup, "parallax")
    refuse_spilled(setup, "parallax keeps every layer where it runs")
    has_roles = any(own.role is not Role.MIXED for own in setup.replicas)
    warnings = head_warnings(setup, "parallax")
    if has_roles:
        warnings.append(roles_dropped("parallax"))
    warnings += [
        f"{stage.device} has no GPU, and Parallax runs on CUDA and Apple silicon"
        for replica in setup.replicas
        for stage in replica.stages
        if stage.is_cpu
    ]
    ports = Ports()
    processes: list[Process] = []
    endpoints = []
    for replica in setup.replicas:
        own = [_node(setup, replica, stage, ports) for stage in replica.stages]
        processes += own
        endpoints.append(endpoint(setup, replica, own[0], drops_roles=has_roles))
    return Launch(
        processes=tuple(processes),
        endpoints=tuple(endpoints),
        needs=_NEEDS,
        notes=(
            (
                "Devices of one replica find each other on the local network by --dht-prefix, "
                "which also keeps replicas apart; elsewhere add --initial-peers with the address "
                "that the first one prints. The first stage answers users."
            ),
        ),
        warnings=tuple(warnings),
    )


def _node(setup: Setup, replica: ReplicaSetup, stage: StageSetup, ports: Ports) -> Process:
    port = ports.take(stage.host, stage.port or _PORT)
    argv = ["parallax", "serve", "--model-path", setup.model]
    argv += ["--host", stage.host, "--port", str(port)]
    argv += ["--start-layer", str(stage.start), "--end-layer", str(stage.stop)]
    argv += ["--max-sequence-length", str(setup.context_tokens)]
    argv += ["--max-concurrent-requests", str(replica.slots)]
    argv += ["--dht-prefix", f"e2llm-{replica.label}"]
    if dtype(setup):
        argv += ["--dtype", dtype(setup)]
    is_first = stage.index == 0
    return Process(
        title=f"stage {stage.index} of {replica.id}",
        device=stage.device,
        folder=stage.folder,
        stage=stage,
        replica=replica,
        argv=tuple(argv),
        host=stage.host,
        port=port,
        health=Health(kind="http", path="/openapi.json") if is_first else Health(kind="tcp"),
    )
