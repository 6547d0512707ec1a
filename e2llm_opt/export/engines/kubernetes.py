"""Kubernetes: one Deployment a stage, pinned to its host, around the commands of another engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.export import front_door
from e2llm_opt.export.engines import exporter
from e2llm_opt.export.engines.kubernetes_objects import (
    Pod,
    deployment,
    door_objects,
    headless_service,
    network_policy,
    service,
)
from e2llm_opt.export.engines.llama_cpp import RPC_SERVER
from e2llm_opt.export.formats import WEIGHTS
from e2llm_opt.export.names import label, unlike
from e2llm_opt.export.process import Launch
from e2llm_opt.export.scripts import command_script
from e2llm_opt.export.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2llm_opt.export.process import Endpoint
    from e2llm_opt.export.setup import Setup

_INSIDE: Final = ("llama.cpp", "vllm", "sglang")
"""Engines whose processes can run in pods."""
_IMAGES: Final = {
    "llama.cpp": "ghcr.io/ggml-org/llama.cpp:full-cuda",
    "vllm": "vllm/vllm-openai:latest",
    "sglang": "lmsysorg/sglang:latest",
}
_NO_RPC: Final = (
    "llama.cpp's own images are built without RPC: build one with -DGGML_RPC=ON, its programs on "
    "PATH, and export again with --image"
)
"""As their Dockerfiles say (``.devops`` of build b11434)."""
_MODELS: Final = "/models"
_NEEDS: Final = (
    "`kubectl`; a device plugin for the GPUs; the model on every node (see `--model-path`)."
)


def launch(setup: Setup) -> Launch:
    """Return manifests: Deployments, Services, and a front door before several replicas."""
    inner = _engine_inside(setup)
    hosts = {s.device: s.host for own in setup.replicas for s in own.stages}
    inside = _in_pods(setup, inner)
    started = exporter(inner)(inside)
    pods = _pods(setup, started, inner, hosts)
    objects: list[dict[str, Any]] = []
    for pod in pods:
        objects += [deployment(pod), headless_service(pod)]
        if pod.process.argv[0] == RPC_SERVER:
            objects.append(network_policy(pod))
    entries = list(_entries(started, pods))
    objects += [service(name, pod) for name, pod, _ in entries]
    objects += _door(entries)
    notes = (
        (
            "`./apply.sh`, `./health.sh` and `./stop.sh` do it with `kubectl` in the current "
            "namespace. Each stage is a Deployment of one pod with the labels `e2llm/replica`, "
            "`e2llm/stage` and `e2llm/role`, pinned to its node by `kubernetes.io/hostname`: the "
            "addresses above must be node names. Pods wait for each other by restarting."
        ),
        f"Inside runs {inner}; another image: export again with `--image`.",
        "KubeEdge: nodes must carry `node-role.kubernetes.io/edge`.",
    )
    return Launch(
        processes=tuple(pod.process for pod in pods),
        files={
            "manifests.yaml": yaml_text(objects, "kubectl apply -f manifests.yaml"),
            **_scripts(),
        },
        needs=_NEEDS,
        notes=notes,
        warnings=(*started.warnings, *_image_warnings(pods)),
        has_scripts=False,
    )


def _image_warnings(pods: Sequence[Pod]) -> Iterator[str]:
    if any(pod.process.argv[0] == RPC_SERVER and not pod.has_own_image for pod in pods):
        yield _NO_RPC


def _engine_inside(setup: Setup) -> str:
    """Return the engine that the plan was made for, else one that loads its weights."""
    planned = setup.plan.problem.runtime
    if planned in _INSIDE:
        return planned
    return "vllm" if setup.weights in WEIGHTS["vllm"] and setup.weights != "" else "llama.cpp"


def _in_pods(setup: Setup, inner: str) -> Setup:
    """Return the setup as pods see it: services for hosts, one GPU in each."""
    options = setup.options
    if inner == "llama.cpp" and not options.model_path:
        options = replace(options, model_path=f"{_MODELS}/{setup.gguf}")
    inside = setup.with_hosts(lambda own, stage: f"{own.label}-{stage.index}")
    replicas = tuple(
        replace(
            own,
            stages=tuple(
                replace(
                    s,
                    gpu_number=0,
                    engine_device=s.engine_device or _in_pod_name(s.is_cpu),
                    others=tuple(
                        replace(other, gpu_number=i, engine_device="")
                        for i, other in enumerate(s.others, start=1)
                    ),
                )
                for s in own.stages
            ),
        )
        for own in inside.replicas
    )
    return replace(inside, options=options, replicas=replicas)


def _in_pod_name(is_cpu: bool) -> str:  # noqa: FBT001 - the only argument
    return "CPU" if is_cpu else "CUDA0"


def _pods(setup: Setup, started: Launch, inner: str, hosts: Mapping[str, str]) -> list[Pod]:
    """Return a pod for each process; processes of one device share its host."""
    plain = [
        "router" if own.stage is None or own.replica is None else own.host
        for own in started.processes
    ]
    names = unlike(plain, label)
    return [
        Pod(
            name=name,
            process=own,
            node=hosts[own.device],
            image=setup.options.image or _IMAGES[inner],
            has_own_image=bool(setup.options.image),
            model=_model_folder(setup, inner),
        )
        for name, own in zip(names, started.processes, strict=True)
    ]


def _model_folder(setup: Setup, inner: str) -> str:
    """Return the folder of the node that pods need to see; empty where they download."""
    path = setup.options.model_path
    if path.startswith("/"):
        return path.rsplit("/", 1)[0] or "/"
    return _MODELS if inner == "llama.cpp" else ""


def _entries(started: Launch, pods: list[Pod]) -> Iterator[tuple[str, Pod, Endpoint]]:
    """Yield the name of a service, its pod and its share for whatever users may ask."""
    for one in started.endpoints:
        pod = next(p for p in pods if (p.process.host, p.process.port) == (one.host, one.port))
        yield f"{pod.name}-api", pod, one


def _door(entries: list[tuple[str, Pod, Endpoint]]) -> list[dict[str, Any]]:
    if len(entries) < 2:  # noqa: PLR2004 - one needs no door
        return []
    shares = front_door.weights([one.share for _, _, one in entries])
    rows = [
        (label(one.name), replace(one, host=name), weight)
        for (name, _, one), weight in zip(entries, shares, strict=True)
    ]
    return door_objects(front_door.nginx(rows), front_door.PORT)


def _scripts() -> dict[str, str]:
    here = ["kubectl", "apply", "-f", "manifests.yaml"]
    wait = ["kubectl", "wait", "--for=condition=Available", "deployment"]
    wait += ["-l", "app.kubernetes.io/managed-by=e2llm-opt", "--timeout=30m"]
    stop = ["kubectl", "delete", "-f", "manifests.yaml", "--ignore-not-found"]
    return {
        "apply.sh": command_script("Starts everything.", here),
        "health.sh": command_script("Ends with 0 once every stage serves.", wait),
        "stop.sh": command_script("Removes everything.", stop),
    }
