"""Ray Serve LLM: a Ray node on every device, one application a replica or a pair of roles.

Bundles of a placement group ask for a resource that only the stage's device offers. vLLM orders
the workers of a replica by itself: that of the first bundle, then by the number of workers on a
host, then by address (``sort_by_driver_then_worker_ip`` in vLLM's Ray executor).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.export import front_door
from e2llm_opt.export.addresses import in_url, is_numeric
from e2llm_opt.export.engines.vllm import (
    PARTITION,
    memory_flags,
    partition,
    visible_devices,
    vllm_warnings,
)
from e2llm_opt.export.formats import KV_CACHE, dtype, refuse_formats
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import (
    NotExpressibleError,
    mixed_text,
    refuse_spilled,
    refuse_unlike_degrees,
)
from e2llm_opt.export.scripts import command_script, numeric
from e2llm_opt.export.yaml_text import yaml_text
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_GCS_PORT: Final = 6379
_HTTP_PORT: Final = 8000
_NEEDS: Final = "`ray[serve,llm]` (one version everywhere, with `nixl` for roles) and CUDA or ROCm."
_PD: Final = "disaggregated"
_KV: Final = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def launch(setup: Setup) -> Launch:
    """Return Ray nodes, and the applications as a file for ``serve deploy``."""
    refuse_formats("ray-serve", setup)
    refuse_spilled(setup, "--cpu-offload-gb knows bytes a GPU, not layers")
    refuse_unlike_degrees(setup, "tensor_parallel_size")
    _refuse_unlike_roles(setup)
    _refuse_other_order(setup)
    head = setup.replicas[0].first
    hosts: dict[str, list[tuple[ReplicaSetup, StageSetup]]] = {}
    for own in setup.replicas:
        for stage in own.stages:
            hosts.setdefault(stage.host, []).append((own, stage))
    processes = [_node(members, head) for members in hosts.values()]
    applications = _applications(setup)
    document = {
        "http_options": {"host": "0.0.0.0", "port": _HTTP_PORT},  # noqa: S104 - every proxy's own
        "applications": [application for application, _ in applications],
    }
    return Launch(
        processes=tuple(processes),
        files={
            "serve.yaml": yaml_text([document], "serve deploy serve.yaml"),
            **_scripts(head),
            **_door(applications, head),
        },
        needs=_NEEDS,
        notes=(
            (
                f"When every Ray node runs: `./deploy.sh` on a machine with Ray. Users ask "
                f"http://{in_url(head.host)}:{_HTTP_PORT} below the route of an application; with "
                "several, front-door/nginx.conf shares requests between them. `./health.sh` and "
                "`./stop.sh` beside it are for the applications."
            ),
            "Every Ray node must be reachable by the others on all ports, and by nobody else.",
        ),
        warnings=tuple(_warnings(setup)),
    )


def _refuse_unlike_roles(setup: Setup) -> None:
    for role in (Role.PREFILL, Role.DECODE):
        shapes = {(own.layer_counts, own.degree, own.slots) for own in setup.of_role(role)}
        if len(shapes) > 1:
            raise NotExpressibleError(
                "unlike replicas of one role",
                f"build_pd_openai_app has one configuration for all {role} replicas, and they "
                f"have {len(shapes)} different cuts or slots; vllm and dynamo can; the nearest has "
                "the same cuts and only MIXED replicas",
                mixed_text(setup),
            )


def _refuse_other_order(setup: Setup) -> None:
    """Refuse replicas whose stages vLLM would surely order otherwise."""
    for replica in setup.replicas:
        rest = [s.host for s in replica.stages[1:] if s.host != replica.first.host]
        if all(map(is_numeric, rest)) and sorted(rest) != rest:
            raise NotExpressibleError(
                "order of stages",
                f"{replica.id}: on Ray, vLLM orders the stages after the first by address, "
                f"{', '.join(sorted(rest))}, and the plan has {', '.join(rest)}; vllm can",
            )


def _resource(role: Role, replica: ReplicaSetup, stage: StageSetup) -> str:
    """Return the resource that only this stage's device has; alike replicas of a role share it."""
    whose = replica.label if role is Role.MIXED else role.lower()
    return f"e2llm-{whose}-{stage.index}"


def _node(members: list[tuple[ReplicaSetup, StageSetup]], head: StageSetup) -> Process:
    """Return the Ray node of one host, which offers a resource for each of its stages."""
    replica, first = members[0]
    is_head = first.host == head.host
    num_gpus = sum(stage.degree for _, stage in members)
    argv = ["ray", "start", "--block", "--num-gpus", str(num_gpus)]
    if is_head:
        argv += ["--head", "--port", str(_GCS_PORT)]
    else:
        argv += ["--address", f"{in_url(head.host)}:{_GCS_PORT}"]
    offered = {_resource(own.role, own, stage): stage.degree for own, stage in members}
    argv += ["--node-ip-address", first.host, "--resources", json.dumps(offered)]
    places = ", ".join(f"{own.id} stage {stage.index}" for own, stage in members)
    return Process(
        title=f"Ray node of {places}",
        device=first.device,
        folder=first.folder,
        stage=first,
        replica=replica,
        argv=tuple(argv),
        env=visible_devices([stage for _, stage in members]),
        host=first.host,
        port=_GCS_PORT,
        health=Health(kind="tcp") if is_head else Health(),
        shell=numeric(argv, "--node-ip-address"),
    )


def _applications(setup: Setup) -> list[tuple[dict[str, Any], front_door.Share]]:
    """Return every application with its share: MIXED replicas one by one, all roles together."""
    found = []
    for replica in setup.of_role(Role.MIXED):
        application = _application(
            replica.label,
            "build_openai_app",
            {"llm_configs": [_config(setup, (replica,))]},
        )
        found.append((application, front_door.Share(replica.label, front_door.share(replica))))
    decode = setup.of_role(Role.DECODE)
    if decode:
        configs = {
            "prefill_config": _config(setup, setup.of_role(Role.PREFILL)),
            "decode_config": _config(setup, decode),
        }
        share = sum(front_door.share(own) for own in decode)
        application = _application(_PD, "build_pd_openai_app", configs)
        found.append((application, front_door.Share(_PD, share)))
    if len(found) == 1:
        found[0][0]["route_prefix"] = "/"
    return found


def _application(name: str, builder: str, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": f"ray.serve.llm:{builder}",
        "args": args,
    }


def _config(setup: Setup, replicas: tuple[ReplicaSetup, ...]) -> dict[str, Any]:
    """Return the LLMConfig of replicas that are all alike."""
    one = replicas[0]
    engine: dict[str, Any] = {
        "pipeline_parallel_size": len(one.stages),
        "tensor_parallel_size": one.degree,
        "max_model_len": setup.context_tokens,
        "max_num_seqs": one.slots,
        "kv_cache_dtype": KV_CACHE["ray-serve"][setup.kv_cache],
        "distributed_executor_backend": "ray",
    }
    share = memory_flags([stage for own in replicas for stage in own.stages])
    if share:
        engine["gpu_memory_utilization"] = float(share[1])
    if dtype(setup):
        engine["dtype"] = dtype(setup)
    if one.role is not Role.MIXED:
        engine["kv_transfer_config"] = dict(_KV)
    bundles = [{"GPU": 1, _resource(one.role, one, device): 1} for device in one.devices]
    return {
        "model_loading_config": {"model_id": setup.model_name, "model_source": setup.model},
        "engine_kwargs": engine,
        "deployment_config": {"num_replicas": len(replicas)},
        "placement_group_config": {"bundles": bundles, "strategy": "PACK"},
        "runtime_env": {"env_vars": {PARTITION: partition(one)}},
    }


def _scripts(head: StageSetup) -> dict[str, str]:
    dashboard = f"http://{in_url(head.host)}:8265"
    argv = ["serve", "deploy", "serve.yaml", "--address", dashboard]
    return {
        "deploy.sh": command_script("Starts the applications.", argv),
        "health.sh": command_script(
            "Shows whether the applications run.", ["serve", "status", "--address", dashboard]
        ),
        "stop.sh": command_script(
            "Stops the applications.", ["serve", "shutdown", "--yes", "--address", dashboard]
        ),
    }


def _door(
    applications: list[tuple[dict[str, Any], front_door.Share]], head: StageSetup
) -> dict[str, str]:
    if len(applications) < 2:  # noqa: PLR2004 - one needs no door
        return {}
    shares = [share for _, share in applications]
    where = f"{in_url(head.host)}:{_HTTP_PORT}"
    return {"front-door/nginx.conf": front_door.nginx_by_route(shares, where)}


def _warnings(setup: Setup) -> list[str]:
    found = vllm_warnings(setup, "ray-serve")
    unknown = [
        own.id
        for own in setup.replicas
        if len({stage.host for stage in own.stages[1:] if stage.host != own.first.host}) > 1
        and not all(is_numeric(stage.host) for stage in own.stages)
    ]
    if unknown:
        found.append(
            f"{', '.join(unknown)}: on Ray, vLLM orders the stages after the first by IP address; "
            "give addresses with --address, so that it can be checked"
        )
    hosts = [stage.host for own in setup.replicas for stage in own.stages]
    if len(set(hosts)) < len(hosts):
        found.append("Ray chooses which GPU of a host takes which of its stages")
    if any(len(setup.of_role(role)) > 1 for role in (Role.PREFILL, Role.DECODE)):
        found.append("alike replicas of a role may exchange stages of the same place")
    return found
