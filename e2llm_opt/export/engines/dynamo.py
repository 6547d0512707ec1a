"""NVIDIA Dynamo: one component a stage in a DynamoGraphDeployment, pinned to its host.

A component's pods are all alike, so unlike stages and replicas are components of their own. Two
forms of the resource: v1alpha1 (``services``, flags for roles) and v1beta1 (``components``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.export.addresses import Ports
from e2llm_opt.export.engines.kubernetes_objects import escaped, gpu_resource
from e2llm_opt.export.engines.vllm import (
    PARTITION,
    flags,
    memory_flags,
    partition,
    rank_flags,
    vllm_warnings,
)
from e2llm_opt.export.formats import refuse_formats
from e2llm_opt.export.names import label
from e2llm_opt.export.process import Launch, Process
from e2llm_opt.export.refusal import refuse_spilled, refuse_unlike_degrees
from e2llm_opt.export.scripts import command_script
from e2llm_opt.export.yaml_text import yaml_text
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_IMAGE: Final = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0"
_PORT: Final = 8000
_NAME: Final = "e2llm-opt"
_NEEDS: Final = "`kubectl`, the Dynamo operator, and a device plugin for the GPUs."


def launch(setup: Setup) -> Launch:
    """Return the custom resource, and a Service for each replica that spans hosts."""
    refuse_formats("dynamo", setup)
    refuse_spilled(setup, "--cpu-offload-gb knows bytes a GPU, not layers")
    refuse_unlike_degrees(setup, "--tensor-parallel-size")
    inside = setup.with_hosts(
        lambda own, stage: stage.host if own.is_on_one_host else f"{own.label}-0"
    )
    ports = Ports()
    workers = [
        _worker(inside, own, stage, node.host, ports)
        for own, before in zip(inside.replicas, setup.replicas, strict=True)
        for stage, node in zip(own.stages, before.stages, strict=True)
        if stage.index == 0 or not before.is_on_one_host
    ]
    is_new = setup.options.dynamo_api == "v1beta1"
    image = setup.options.image or _IMAGE
    graph = _graph_of_components(workers, image) if is_new else _graph_of_services(workers, image)
    masters = [_master_service(own) for own in setup.replicas if not own.is_on_one_host]
    warnings = vllm_warnings(setup, "dynamo")
    if len(setup.replicas) > 1:
        warnings.append("Dynamo's frontend routes by load and cached prefixes, not by weights")
    if 0 < len(setup.of_role(Role.MIXED)) < len(setup.replicas):
        warnings.append("MIXED workers beside PREFILL and DECODE ones are untried in Dynamo")
    apply = ["kubectl", "apply", "-f", "dynamo.yaml"]
    return Launch(
        processes=tuple(workers),
        files={
            "dynamo.yaml": yaml_text([graph, *masters], "kubectl apply -f dynamo.yaml"),
            "apply.sh": command_script("Starts everything.", apply),
            "health.sh": command_script(
                "Ends with 0 once the graph is ready.",
                [
                    "kubectl",
                    "wait",
                    "--for=condition=Ready",
                    f"dynamographdeployment/{_NAME}",
                    "--timeout=30m",
                ],
            ),
            "stop.sh": command_script(
                "Removes everything.",
                ["kubectl", "delete", "-f", "dynamo.yaml", "--ignore-not-found"],
            ),
        },
        needs=_NEEDS,
        notes=(
            (
                "`./apply.sh`, `./health.sh` and `./stop.sh` do it with `kubectl`. Each component "
                "is pinned to a node by `kubernetes.io/hostname`: the addresses above must be node "
                "names. `--dynamo-api v1beta1` writes the newer form, `--image` another image."
            ),
        ),
        warnings=tuple(warnings),
        has_scripts=False,
    )


def _worker(
    setup: Setup, replica: ReplicaSetup, stage: StageSetup, node: str, ports: Ports
) -> Process:
    num_apart = len({own.host for own in replica.stages})
    is_apart = num_apart == 1 and replica.first.host == f"{replica.label}-0"
    argv = ["python3", "-m", "dynamo.vllm", "--model", setup.model, *flags(setup, replica)]
    argv += memory_flags((stage,) if is_apart else replica.stages)
    argv += _role_flags(setup, replica.role)
    if is_apart and len(replica.stages) > 1:
        argv += rank_flags(replica, stage)
    return Process(
        title=f"{replica.role} worker of {replica.id}, rank {stage.index}",
        device=stage.device,
        folder=stage.folder,
        stage=stage,
        replica=replica,
        argv=tuple(argv),
        env={PARTITION: partition(replica)},
        host=node,
        port=ports.take(node, _PORT),
    )


def _role_flags(setup: Setup, role: Role) -> list[str]:
    if role is Role.MIXED:
        return []
    if setup.options.dynamo_api == "v1alpha1":
        return [f"--is-{role.lower()}-worker"]
    found = ["--disaggregation-mode", role.lower()]
    if role is Role.PREFILL:
        found += ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']
    return found


def _graph_of_services(workers: list[Process], image: str) -> dict[str, Any]:
    services: dict[str, Any] = {
        "Frontend": {
            "componentType": "frontend",
            "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": image}},
        }
    }
    for own in workers:
        replica, stage = _owners(own)
        service: dict[str, Any] = {"replicas": 1}
        if stage.index == 0:
            service["componentType"] = "worker"
            if replica.role is not Role.MIXED:
                service["subComponentType"] = replica.role.lower()
        service |= {
            "resources": {"limits": {"gpu": str(_num_gpus(own))}},
            "extraPodMetadata": {"labels": _labels(own)},
            "envs": _environment(own),
            "extraPodSpec": {
                "nodeSelector": {"kubernetes.io/hostname": own.host},
                "mainContainer": {
                    "image": image,
                    "command": list(own.argv[:3]),
                    "args": [escaped(word) for word in own.argv[3:]],
                },
            },
        }
        services[_component(own)] = service
    return _resource("v1alpha1", {"services": services})


def _graph_of_components(workers: list[Process], image: str) -> dict[str, Any]:
    front = {"containers": [{"name": "main", "image": image}]}
    components: list[dict[str, Any]] = [
        {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": front}}
    ]
    for own in workers:
        replica, stage = _owners(own)
        component: dict[str, Any] = {"name": _component(own), "replicas": 1}
        if stage.index == 0:
            is_mixed = replica.role is Role.MIXED
            component["type"] = "worker" if is_mixed else replica.role.lower()
        container = {
            "name": "main",
            "image": image,
            "command": list(own.argv[:3]),
            "args": [escaped(word) for word in own.argv[3:]],
            "env": _environment(own),
            "resources": {"limits": {gpu_resource(stage.type): str(_num_gpus(own))}},
        }
        component["podTemplate"] = {
            "metadata": {"labels": _labels(own)},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": own.host},
                "containers": [container],
            },
        }
        components.append(component)
    return _resource("v1beta1", {"components": components})


def _resource(version: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"nvidia.com/{version}",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": _NAME},
        "spec": spec,
    }


def _owners(own: Process) -> tuple[ReplicaSetup, StageSetup]:
    if own.replica is None or own.stage is None:
        raise TypeError("every worker belongs to a stage")
    return own.replica, own.stage


def _num_gpus(own: Process) -> int:
    """Return those of a stage, or all of a replica whose stages share a host and so one pod."""
    replica, stage = _owners(own)
    return stage.degree if "--nnodes" in own.argv else len(replica.devices)


def _component(own: Process) -> str:
    replica, stage = _owners(own)
    words = label(f"{replica.role} {replica.label}").split("-")
    return "Vllm" + "".join(word.capitalize() for word in words) + f"Stage{stage.index}"


def _labels(own: Process) -> dict[str, str]:
    replica, stage = _owners(own)
    return {
        "e2llm/replica": replica.label,
        "e2llm/stage": str(stage.index),
        "e2llm/role": str(replica.role),
    }


def _environment(own: Process) -> list[dict[str, str]]:
    return [{"name": name, "value": escaped(value)} for name, value in own.env.items()]


def _master_service(replica: ReplicaSetup) -> dict[str, Any]:
    """Return the Service under whose name the other stages find the first one."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{replica.label}-0"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"e2llm/replica": replica.label, "e2llm/stage": "0"},
            "ports": [{"name": "master", "port": 29501, "targetPort": 29501}],
        },
    }
