"""llama.cpp: a ``ggml-rpc-server`` on each remote device, a ``llama-server`` beside the last stage.

The server cuts the model into one unit a layer and one for the output head. A unit goes to the
first device whose cumulative share of ``-ts`` is strictly greater than its own place, so that whole
numbers are exact if the last device gets one more (``src/llama-model.cpp`` of llama.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.export.addresses import Ports, is_ipv6
from e2llm_opt.export.differences import head_warnings, roles_dropped
from e2llm_opt.export.formats import is_quantised_cache, refuse_formats
from e2llm_opt.export.front_door import endpoint
from e2llm_opt.export.process import Endpoint, Health, Launch, Process
from e2llm_opt.export.refusal import NotExpressibleError, refuse_shared
from e2llm_opt.export.scripts import command_script, numeric
from e2llm_opt.problem import Role
from e2llm_opt.units import GIB, MBIT_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_RPC_PORT: Final = 50052
_PORT: Final = 8080
_LEAST_NGL: Final = 99
_LOADING_MBIT_S: Final = 110
"""Weights reach a worker no faster on any network.

Measured by users: github.com/ggml-org/llama.cpp/issues/27653 [Mbit/s].
"""
RPC_SERVER: Final = "ggml-rpc-server"
"""The worker's program; builds before June 2026 call it ``rpc-server``."""
_NEEDS: Final = (
    f"`{RPC_SERVER}`, `llama-server` and `llama-bench` of one llama.cpp build with "
    "`-DGGML_RPC=ON`, on PATH. (Builds before June 2026 call the first `rpc-server`.)"
)
_OPEN: Final = (
    f"{RPC_SERVER} has neither authentication nor encryption: it listens on a private address "
    "only, and must never be reachable from an open network"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A stage as the server sees it: its own device, or a worker's."""

    stage: StageSetup
    name: str
    endpoint: str = ""
    port: int = 0


def launch(setup: Setup) -> Launch:
    """Return workers and servers of every replica; roles are dropped with a warning."""
    refuse_formats("llama.cpp", setup)
    refuse_shared(setup, "llama.cpp")
    _refuse_ipv6(setup)
    warnings = [_OPEN] if any(len(own.stages) > 1 for own in setup.replicas) else []
    warnings += head_warnings(setup, "llama.cpp")
    ports = Ports()
    processes: list[Process] = []
    endpoints: list[Endpoint] = []
    files: dict[str, str] = {}
    has_roles = any(own.role is not Role.MIXED for own in setup.replicas)
    for replica in setup.replicas:
        places = _places(replica, ports)
        _refuse_remote_spill(replica, places)
        workers = [_worker(replica, place) for place in places if place.endpoint]
        processes += workers
        server = _server(setup, replica, places, ports)
        processes.append(server)
        files[f"{replica.last.folder}/bench.sh"] = _bench(setup, replica, places, workers)
        endpoints.append(endpoint(setup, replica, server, drops_roles=has_roles))
        warnings += _guessed_devices(places)
    if has_roles:
        warnings.append(roles_dropped("llama.cpp"))
    return Launch(
        processes=tuple(processes),
        endpoints=tuple(endpoints),
        files=files,
        needs=_NEEDS,
        notes=tuple(_notes(setup)),
        warnings=tuple(warnings),
    )


def _refuse_ipv6(setup: Setup) -> None:
    faults = [
        Fault(
            path=f"address of {stage.device}",
            wrong="llama.cpp's RPC knows IPv4 only",
            right="give an IPv4 address or a host name",
        )
        for replica in setup.replicas
        for stage in replica.stages
        if is_ipv6(stage.host) and len(replica.stages) > 1
    ]
    if faults:
        raise InputError(faults)


def _places(replica: ReplicaSetup, ports: Ports) -> list[_Place]:
    """Return how the server, on the last stage's host, names each device.

    Remote devices are RPC0, RPC1 … in the order of ``--rpc``; a CPU next to the server is reached
    over loopback, since ``-dev`` cannot name it.
    """
    home = replica.last.host
    num_workers = 0
    found = []
    for stage in replica.stages:
        is_home = stage.host == home
        if is_home and not (stage.is_cpu and len(replica.stages) > 1):
            found.append(_Place(stage=stage, name=_engine_name(stage)))
            continue
        wanted = 0 if stage is replica.last else stage.port  # that of the last is the server's
        port = ports.take(stage.host, wanted or _RPC_PORT)
        reached = f"{'127.0.0.1' if is_home else stage.host}:{port}"
        found.append(_Place(stage=stage, name=f"RPC{num_workers}", endpoint=reached, port=port))
        num_workers += 1
    return found


def _engine_name(stage: StageSetup) -> str:
    """Return llama.cpp's name of a device on its own host."""
    if stage.engine_device:
        return stage.engine_device
    if stage.is_cpu:
        return "CPU"
    return f"{_backend(stage.type)}{stage.gpu_number}"


def _backend(kind: str) -> str:
    for beginning, backend in (("apple", "MTL"), ("rx-", "ROCm"), ("mi", "ROCm"), ("arc", "SYCL")):
        if kind.startswith(beginning):
            return backend
    return "CUDA"


def _worker(replica: ReplicaSetup, place: _Place) -> Process:
    stage = place.stage
    host = place.endpoint.rpartition(":")[0]
    argv = [RPC_SERVER, "-H", host, "-p", str(place.port), "-c"]
    if stage.engine_device or stage.type or stage.is_cpu:
        argv += ["--device", _engine_name(stage)]
    return Process(
        title=f"RPC worker of {replica.id}",
        device=stage.device,
        folder=stage.folder,
        stage=stage,
        replica=replica,
        argv=tuple(argv),
        host=host,
        port=place.port,
        health=Health(kind="tcp"),
        is_awaited=True,  # a server that does not reach its worker ends
        shell=numeric(argv, "-H"),
        caution=_OPEN,
    )


def _server(setup: Setup, replica: ReplicaSetup, places: list[_Place], ports: Ports) -> Process:
    last = replica.last
    port = ports.take(last.host, last.port or _PORT)
    argv = ["llama-server", "-m", setup.gguf, *_split(setup, places, ",")]
    argv += ["-c", str(setup.context_tokens * replica.slots), "-np", str(replica.slots)]
    argv += ["-ctk", setup.kv_cache, "-ctv", setup.kv_cache]
    if is_quantised_cache(setup):
        argv += ["-fa", "on"]  # llama.cpp keeps a quantised V only with flash attention
    argv += _overrides(setup, replica)
    argv += ["--host", last.host, "--port", str(port)]
    return Process(
        title=f"server of {replica.id}",
        device=last.device,
        folder=last.folder,
        stage=last,
        replica=replica,
        argv=tuple(argv),
        host=last.host,
        port=port,
        health=Health(kind="http", path="/health"),
        shell=numeric(argv, "--host"),
    )


def _split(setup: Setup, places: list[_Place], separator: str) -> list[str]:
    """Return which layers go where; *separator* is that of the program (llama-bench: ``/``)."""
    if [place.name for place in places] == ["CPU"]:
        return ["-ngl", "0", "-dev", "none"]
    counts = [place.stage.num_layers for place in places]
    counts[-1] += 1
    workers = [place.endpoint for place in places if place.endpoint]
    argv = ["-ngl", str(max(_LEAST_NGL, setup.num_layers + 1))]
    if workers:
        argv += ["--rpc", ",".join(workers)]
    argv += ["-dev", separator.join(place.name for place in places)]
    return [*argv, "-ts", separator.join(map(str, counts))]


def _bench(
    setup: Setup, replica: ReplicaSetup, places: list[_Place], workers: list[Process]
) -> str:
    """Return a script that measures the cut; a worker that starts with the server is its own."""
    argv = ["llama-bench", "-m", setup.gguf, *_split(setup, places, "/")]
    argv += ["-ctk", setup.kv_cache, "-ctv", setup.kv_cache]
    if is_quantised_cache(setup):
        argv += ["-fa", "1"]
    argv += [*_overrides(setup, replica), "-o", "json"]
    return command_script(
        f"Measures {replica.id} with the same cut; the workers of other folders must run, "
        "start.sh beside it must not. Feed the output to: e2llm-opt calibrate --measured",
        argv,
        [worker for worker in workers if worker.folder == replica.last.folder],
    )


def _overrides(setup: Setup, replica: ReplicaSetup) -> list[str]:
    """Return the options that keep spilled weights in the server's own RAM."""
    routed = setup.plan.problem.model.get("layer_routed_bytes") or ()
    words = []
    for stage in replica.stages:
        layers = stage.stage.spilled_layers
        experts = [layer for layer in layers if layer < len(routed) and routed[layer] > 0]
        dense = [layer for layer in layers if layer not in experts]
        for chosen, tensors in ((experts, r"ffn_.*_exps\."), (dense, r"ffn_.*\.")):
            if chosen:
                numbers = "|".join(map(str, chosen))
                words += ["-ot", rf"blk\.({numbers})\.{tensors}=CPU"]
    return words


def _refuse_remote_spill(replica: ReplicaSetup, places: list[_Place]) -> None:
    remote = [p.stage.device for p in places if p.endpoint and p.stage.stage.spilled_layers]
    if remote:
        raise NotExpressibleError(
            "spilled layers on an RPC worker",
            f"{replica.id}: {', '.join(remote)} keep weights in host RAM, but an RPC worker has "
            "only its own device, and -ot would bring them to the server's RAM; plan again "
            "without their host_memory_gib, or put them last",
        )


def _guessed_devices(places: list[_Place]) -> Iterator[str]:
    for place in places:
        stage = place.stage
        if place.endpoint and not (stage.engine_device or stage.type or stage.is_cpu):
            yield (
                f"{stage.device}: {RPC_SERVER} offers every GPU of its host, and the plan has one; "
                "where there are more, name it with --engine-device"
            )
        elif not place.endpoint and not stage.engine_device and place.name != "CPU":
            yield (
                f"{stage.device}: taken to be {place.name}; llama-server --list-devices says what "
                f"it is, --engine-device {stage.device}=NAME changes it"
            )


def _notes(setup: Setup) -> Iterator[str]:
    yield (
        "llama-server checks no memory once -ts is given: the plan has done so. Whole numbers in "
        "-ts are layers, one more on the last device for the output head; -dev fixes the order."
    )
    for replica in setup.replicas:
        sent = sum(stage.stage.memory_bytes.weights for stage in replica.stages[:-1])
        minutes = sent / (_LOADING_MBIT_S * MBIT_PER_S) / 60
        if sent:
            yield (
                f"Loading {replica.id}: the server sends {sent / GIB:.1f} GiB to its workers, "
                f"about {minutes:.0f} min the first time at {_LOADING_MBIT_S} Mbit/s, which was "
                f"seen on faster networks too. `{RPC_SERVER} -c` keeps them in ~/.cache/llama.cpp, "
                "so that later starts send little."
            )
