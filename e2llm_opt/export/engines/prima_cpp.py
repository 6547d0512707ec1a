"""prima.cpp: a ring of ranks, of which rank 0 is the last stage.

The ring begins at rank 1, and rank 0 takes the last layers and the head (``this_layer_is_mine`` in
``src/llama.cpp`` of prima.cpp), so that stage j of k is rank (j + 1) mod k. ``-lw`` takes at most
32 values, each positive (``common/arg.cpp``), in the order of the ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from e2llm_opt.export.addresses import Ports
from e2llm_opt.export.differences import head_warnings, roles_dropped
from e2llm_opt.export.formats import is_quantised_cache, refuse_formats
from e2llm_opt.export.front_door import endpoint
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import NotExpressibleError, refuse_shared, refuse_spilled
from e2llm_opt.export.scripts import numeric
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_PORT: Final = 8080
_DATA_PORT: Final = 9000
_SIGNAL_PORT: Final = 10000
_MOST_RANKS: Final = 32
_TESTED: Final = ("q4_k_m", "q4_k_s", "q6_k", "q8_0")
_NEEDS: Final = "`llama-server` and `llama-cli` of prima.cpp (not of llama.cpp), on PATH."


def launch(setup: Setup) -> Launch:
    """Return one process a stage; roles are dropped with a warning."""
    refuse_formats("prima.cpp", setup)
    refuse_shared(setup, "prima.cpp")
    refuse_spilled(setup, "-ngl moves whole layers, not their feed-forward part")
    _refuse_long_rings(setup)
    warnings = head_warnings(setup, "prima.cpp")
    if setup.weights and setup.weights not in _TESTED:
        warnings.append(f"prima.cpp names {', '.join(_TESTED)} as tested, not {setup.weights}")
    has_roles = any(own.role is not Role.MIXED for own in setup.replicas)
    if has_roles:
        warnings.append(roles_dropped("prima.cpp"))
    ports = Ports()
    processes: list[Process] = []
    endpoints = []
    for ring, replica in enumerate(setup.replicas):
        own = [_rank(setup, replica, stage, ring, ports) for stage in replica.stages]
        processes += own
        endpoints.append(endpoint(setup, replica, own[-1], drops_roles=has_roles))
    return Launch(
        processes=tuple(processes),
        endpoints=tuple(endpoints),
        needs=_NEEDS,
        notes=(
            (
                "-lw gives the layers of each rank. Rank 0 comes first in it, but takes the last "
                "layers and the head: the order of the layers is rank 1, 2, … and then 0. Ports "
                "9000 and 10000 upwards must be open between the devices, and to nobody else: what "
                "passes there is neither encrypted nor authenticated."
            ),
        ),
        warnings=tuple(warnings),
    )


def _refuse_long_rings(setup: Setup) -> None:
    for replica in setup.replicas:
        if len(replica.stages) > _MOST_RANKS:
            raise NotExpressibleError(
                "number of stages",
                f"{replica.id} has {len(replica.stages)}, and -lw takes at most {_MOST_RANKS}",
            )


def _rank(
    setup: Setup, replica: ReplicaSetup, stage: StageSetup, ring: int, ports: Ports
) -> Process:
    world = len(replica.stages)
    rank = (stage.index + 1) % world
    is_head = rank == 0
    follower = replica.stages[(stage.index + 1) % world]
    argv = ["llama-server" if is_head else "llama-cli", "-m", setup.gguf]
    argv += ["-c", str(setup.context_tokens * replica.slots), "--world", str(world)]
    argv += ["--rank", str(rank), "--master", replica.last.host, "--next", follower.host]
    argv += ["--prefetch"]
    if ring:  # rings may share hosts, and a ring takes one port a rank from these on
        ahead = ring * _MOST_RANKS
        argv += ["--data-port", str(_DATA_PORT + ahead)]
        argv += ["--signal-port", str(_SIGNAL_PORT + ahead)]
    if not stage.is_cpu:
        argv += ["-ngl", str(stage.num_layers)]
    argv += ["-ctk", setup.kv_cache, "-ctv", setup.kv_cache]
    if is_quantised_cache(setup):
        argv += ["-fa"]
    port = 0
    if is_head:
        port = ports.take(stage.host, stage.port or _PORT)
        counts = (replica.last, *replica.stages[:-1])
        argv += ["-lw", ",".join(str(own.num_layers) for own in counts), "-np", str(replica.slots)]
        argv += ["--host", stage.host, "--port", str(port)]
    return Process(
        title=f"rank {rank} of {replica.id}",
        device=stage.device,
        folder=stage.folder,
        stage=stage,
        replica=replica,
        argv=tuple(argv),
        host=stage.host,
        port=port,
        health=Health(kind="http", path="/health") if is_head else Health(),
        shell=numeric(argv, "--master", "--next", "--host"),
    )
