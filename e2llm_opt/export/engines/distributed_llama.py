"""distributed-llama: equal tensor slices over 2^n devices, and nothing else.

Every node holds the same share of every layer; a plan's layers can only be imitated where they are
equal shares too (README and ``src/app.cpp`` of distributed-llama). Its KV cache is f32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from e2llm_opt.export.addresses import Ports
from e2llm_opt.export.differences import roles_dropped
from e2llm_opt.export.formats import refuse_formats
from e2llm_opt.export.front_door import endpoint
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import (
    NotExpressibleError,
    equal_cuts,
    equal_share_fits,
    plan_text,
    refuse_shared,
    refuse_spilled,
)
from e2llm_opt.export.scripts import numeric
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_ROOT_PORT: Final = 9990
_WORKER_PORT: Final = 9999
_THREADS: Final = "4"
_CACHE_FACTOR: Final = {"f16": 2, "f32": 1}
_NEEDS: Final = "`dllama` and `dllama-api` of distributed-llama, on PATH."


def launch(setup: Setup) -> Launch:
    """Return a root and workers for replicas that are equal shares; refuse all others."""
    refuse_formats("distributed-llama", setup)
    refuse_shared(setup, "distributed-llama")
    refuse_spilled(setup, "distributed-llama keeps all weights in memory")
    if not all(_is_expressible(setup, replica) for replica in setup.replicas):
        raise _refusal(setup)
    ports = Ports()
    processes: list[Process] = []
    endpoints = []
    has_roles = any(own.role is not Role.MIXED for own in setup.replicas)
    for replica in setup.replicas:
        workers = [_worker(setup, replica, stage, ports) for stage in replica.stages[1:]]
        root = _root(setup, replica, workers, ports)
        processes += [*workers, root]
        endpoints.append(endpoint(setup, replica, root, drops_roles=has_roles))
    warnings = list(_warnings(setup))
    if has_roles:
        warnings.append(roles_dropped("distributed-llama"))
    return Launch(
        processes=tuple(processes),
        endpoints=tuple(endpoints),
        needs=_NEEDS,
        notes=(
            (
                "The model and its tokenizer (--tokenizer-path) must be in distributed-llama's own "
                "formats (.m and .t), on the root only; the root sends the slices to the workers."
            ),
        ),
        warnings=tuple(warnings),
    )


def _is_expressible(setup: Setup, replica: ReplicaSetup) -> bool:
    counts = replica.layer_counts
    return (
        max(counts) - min(counts) <= 1
        and _is_legal(setup, len(counts))
        and all(_fits(setup, replica, stage, len(counts)) for stage in replica.stages)
    )


def _is_legal(setup: Setup, num_nodes: int) -> bool:
    """Whether so many nodes are a power of two, and no more than the KV heads."""
    is_power = num_nodes & (num_nodes - 1) == 0
    return is_power and (not setup.num_kv_heads or num_nodes <= setup.num_kv_heads)


def _fits(setup: Setup, replica: ReplicaSetup, stage: StageSetup, num_nodes: int) -> bool:
    """Whether an equal share fits a device, with the f32 KV cache of one request."""
    factor = _CACHE_FACTOR.get(setup.kv_cache, 1) / replica.slots
    return equal_share_fits(replica, stage, num_nodes, cache_factor=factor)


def _refusal(setup: Setup) -> NotExpressibleError:
    """Return the reason, with equal shares over the most devices that are legal and fit."""
    found: list[tuple[ReplicaSetup, list[tuple[str, int, int]]]] = []
    words = []
    for replica in setup.replicas:
        cuts = _nearest(setup, replica)
        if cuts:
            found.append((replica, cuts))
            names = ", ".join(name for name, _, _ in cuts)
            words.append(f"{replica.id} in {len(cuts)} equal shares on {names}")
    bad = [own for own in setup.replicas if not _is_expressible(setup, own)]
    counts = "; ".join(f"{own.id} has {list(own.layer_counts)}" for own in bad)
    heads = f", at most {setup.num_kv_heads} (KV heads)" if setup.num_kv_heads else ""
    fits = " that fit every device with an f32 KV cache"
    nearest = f"the nearest: {'; '.join(words)}" if words else "no such share fits"
    return NotExpressibleError(
        "equal tensor slices only",
        f"2^n devices{heads} with equal shares{fits}, and {counts} layers; {nearest}",
        plan_text(found) if found else "",
    )


def _nearest(setup: Setup, replica: ReplicaSetup) -> list[tuple[str, int, int]]:
    if _is_expressible(setup, replica):
        return [(stage.device, stage.start, stage.stop) for stage in replica.stages]
    by_memory = sorted(replica.stages, key=lambda own: -own.stage.memory_bytes.capacity)
    for number in range(len(by_memory), 0, -1):
        chosen = sorted(by_memory[:number], key=lambda own: own.index)
        fits = all(_fits(setup, replica, stage, number) for stage in chosen)
        if _is_legal(setup, number) and fits:
            return equal_cuts([stage.device for stage in chosen], setup.num_layers)
    return []


def _worker(setup: Setup, replica: ReplicaSetup, stage: StageSetup, ports: Ports) -> Process:
    del setup
    port = ports.take(stage.host, stage.port or _WORKER_PORT)
    argv = ("dllama", "worker", "--port", str(port), "--nthreads", _THREADS)
    return Process(
        title=f"worker of {replica.id}",
        device=stage.device,
        folder=stage.folder,
        stage=stage,
        replica=replica,
        argv=argv,
        host=stage.host,
        port=port,
        health=Health(),  # a worker takes the first connection for its root
    )


def _root(setup: Setup, replica: ReplicaSetup, workers: list[Process], ports: Ports) -> Process:
    first = replica.first
    port = ports.take(first.host, first.port or _ROOT_PORT)
    name = setup.model_name.rsplit("/", 1)[-1]
    argv = ["dllama-api", "--host", first.host, "--port", str(port)]
    argv += ["--model", setup.options.model_path or f"dllama_model_{name}.m"]
    argv += ["--tokenizer", setup.options.tokenizer_path or f"dllama_tokenizer_{name}.t"]
    argv += ["--buffer-float-type", "f32" if setup.weights == "f32" else "q80"]
    argv += ["--nthreads", _THREADS, "--max-seq-len", str(setup.context_tokens)]
    if workers:
        argv += ["--workers", *(f"{own.host}:{own.port}" for own in workers)]
    return Process(
        title=f"root of {replica.id}",
        device=first.device,
        folder=first.folder,
        stage=first,
        replica=replica,
        argv=tuple(argv),
        host=first.host,
        port=port,
        health=Health(kind="http", path="/v1/models"),
        shell=numeric(argv, "--host"),
    )


def _warnings(setup: Setup) -> list[str]:
    found = []
    if any(len(own.stages) > 1 for own in setup.replicas):
        found.append(
            "distributed-llama cuts tensors, not layers: each device holds an equal share of every "
            "layer, so memory is as planned and times are not"
        )
    if any(own.slots > 1 for own in setup.replicas):
        found.append("dllama-api serves one request at a time, whatever the plan's slots")
    found.append("the root needs a little more memory than the others, for the embedding")
    return found
