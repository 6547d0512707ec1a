"""llm-d: values for its ``llm-d-modelservice`` chart, one release a replica.

The chart has one ``prefill`` and one ``decode`` block, whose pods are all alike, so unlike replicas
are releases of their own with the same labels: one InferencePool finds them all. The pods of one
replica across hosts are alike too (one template of a LeaderWorkerSet), so that only equal cuts can
be said.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.export.addresses import Ports
from e2llm_opt.export.engines.kubernetes_objects import escaped, gpu_resource
from e2llm_opt.export.engines.vllm import (
    PARTITION,
    flags,
    memory_flags,
    partition,
    transfer_config,
    vllm_warnings,
)
from e2llm_opt.export.formats import refuse_formats
from e2llm_opt.export.names import label
from e2llm_opt.export.process import Launch, Process
from e2llm_opt.export.refusal import (
    Cut,
    NotExpressibleError,
    cuts_of,
    equal_cuts,
    equal_share_fits,
    plan_text,
    refuse_spilled,
    refuse_unlike_degrees,
)
from e2llm_opt.export.scripts import command_script
from e2llm_opt.export.yaml_text import yaml_text
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup

_IMAGE: Final = "ghcr.io/llm-d/llm-d-cuda:latest"
_PORT: Final = 8000
_TARGET_PORT: Final = 8200
_CHART: Final = "llm-d-modelservice/llm-d-modelservice"
_NEEDS: Final = "`helm`, `kubectl`, llm-d's infrastructure (gateway, InferencePool) and its chart."


def launch(setup: Setup) -> Launch:
    """Return values for one release a replica; unequal stages across hosts are refused."""
    refuse_formats("llm-d", setup)
    refuse_spilled(setup, "--cpu-offload-gb knows bytes a GPU, not layers")
    refuse_unlike_degrees(setup, "--tensor-parallel-size")
    _refuse_templates(setup)
    _refuse_unequal_stages(setup)
    ports = Ports()
    processes = [_process(setup, own, ports) for own in setup.replicas]
    files = {
        f"values-{own.label}.yaml": yaml_text([_values(setup, own, process)], _install(own))
        for own, process in zip(setup.replicas, processes, strict=True)
    }
    warnings = vllm_warnings(setup, "llm-d")
    if len(setup.replicas) > 1:
        warnings.append("llm-d's scheduler routes by load and cached prefixes, not by weights")
    return Launch(
        processes=tuple(processes),
        files={**files, **_scripts(setup)},
        needs=_NEEDS,
        notes=(
            (
                "`./apply.sh`, `./health.sh` and `./stop.sh` do it with `helm` and `kubectl`; "
                "`helm repo add llm-d-modelservice "
                "https://llm-d-incubation.github.io/llm-d-modelservice/` first. Each replica is a "
                "release, pinned to its nodes by `kubernetes.io/hostname`: the addresses above "
                "must be node names. All have the label `llm-d.ai/model`, by which an "
                "InferencePool finds them."
            ),
        ),
        warnings=tuple(warnings),
        has_scripts=False,
    )


def _refuse_templates(setup: Setup) -> None:
    """Refuse texts that the chart would run as a template."""
    for text in (setup.model, setup.options.image):
        if "{{" in text:
            raise NotExpressibleError(
                "template braces", f"Helm would run {text!r} as a template; give --model-path"
            )


def _refuse_unequal_stages(setup: Setup) -> None:
    bad = [r for r in setup.replicas if not r.is_on_one_host and len(set(r.layer_counts)) > 1]
    if not bad:
        return
    counts = "; ".join(f"{own.id} has {list(own.layer_counts)}" for own in bad)
    nearest = ""
    if all(_has_equal(setup, own) for own in bad):
        nearest = plan_text(
            [(r, _equal(setup, r) if r in bad else cuts_of(r)) for r in setup.replicas]
        )
    raise NotExpressibleError(
        "equal stages across hosts only",
        f"the pods of one llm-d replica are alike, so that no stage can be bound to a device, and "
        f"{counts} layers; kubernetes and dynamo can"
        + ("; the nearest has equal stages" if nearest else ""),
        nearest,
    )


def _has_equal(setup: Setup, replica: ReplicaSetup) -> bool:
    """Whether equal stages exist and fit the devices."""
    number = len(replica.stages)
    fits = all(equal_share_fits(replica, stage, number) for stage in replica.stages)
    return setup.num_layers % number == 0 and fits


def _equal(setup: Setup, replica: ReplicaSetup) -> list[Cut]:
    parts = equal_cuts([stage.device for stage in replica.stages], setup.num_layers)
    whole = {stage.device: stage.stage.devices for stage in replica.stages}
    return [(whole[name], start, stop) for name, start, stop in parts]


def _process(setup: Setup, replica: ReplicaSetup, ports: Ports) -> Process:
    first = replica.first
    argv = ["vllm", "serve", setup.model, "--port", str(_port(replica)), *flags(setup, replica)]
    argv += memory_flags(replica.stages)
    if replica.role is not Role.MIXED:
        argv += ["--kv-transfer-config", transfer_config(replica.role)]
    env = {PARTITION: partition(replica)}
    if replica.role is not Role.MIXED:
        env |= {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600", "UCX_NET_DEVICES": "all"}
    return Process(
        title=f"{replica.role} pods of {replica.id}",
        device=first.device,
        folder=first.folder,
        stage=first,
        replica=replica,
        argv=tuple(argv),
        env=env,
        host=first.host,
        port=ports.take(first.host, _port(replica)),
    )


def _port(replica: ReplicaSetup) -> int:
    """Return vLLM's port: behind the routing sidecar of a DECODE pod it is another one."""
    return _TARGET_PORT if replica.role is Role.DECODE else _PORT


def _values(setup: Setup, replica: ReplicaSetup, process: Process) -> dict[str, Any]:
    is_prefill = replica.role is Role.PREFILL
    multinode = not replica.is_on_one_host
    used, other = ("prefill", "decode") if is_prefill else ("decode", "prefill")
    path = setup.options.model_path
    return {
        "fullnameOverride": f"e2llm-{replica.label}",
        "multinode": multinode,
        "modelArtifacts": {
            "name": setup.model,
            "uri": f"hf://{setup.model}" if not path.startswith("/") else f"pvc://models{path}",
            "size": "100Gi",
            "labels": {
                "llm-d.ai/inferenceServing": "true",
                "llm-d.ai/model": label(setup.model_name),
                "e2llm/replica": replica.label,
            },
        },
        "routing": {
            "servicePort": _PORT,
            "proxy": {
                "enabled": replica.role is Role.DECODE,
                "targetPort": _TARGET_PORT,
                "connector": "nixlv2",
            },
        },
        used: {
            "create": True,
            "replicas": 1,
            "parallelism": {
                "tensor": replica.degree,
                "workers": len(replica.stages) if multinode else 1,
            },
            "acceleratorTypes": {
                "labelKey": "kubernetes.io/hostname",
                "labelValues": list(dict.fromkeys(stage.host for stage in replica.stages)),
            },
            "containers": [_container(setup, replica, process, multinode=multinode)],
        },
        other: {"create": False},
    }


def _container(
    setup: Setup, replica: ReplicaSetup, process: Process, *, multinode: bool
) -> dict[str, Any]:
    num_gpus = replica.degree if multinode else len(replica.devices)
    gpus = {gpu_resource(replica.first.type): str(num_gpus)}
    container: dict[str, Any] = {
        "name": "vllm",
        "image": setup.options.image or _IMAGE,
        "modelCommand": "custom" if multinode else "vllmServe",
    }
    if multinode:
        container["command"] = ["/bin/bash", "-c"]
        container["args"] = [escaped(_rank_script(replica, process))]
    else:
        # The chart itself writes: vllm serve MODEL --port PORT
        container["args"] = [escaped(word) for word in process.argv[5:]]
    container["env"] = [
        {"name": name, "value": escaped(value)} for name, value in process.env.items()
    ]
    if replica.role is not Role.MIXED:
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        container["env"].append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
    container["ports"] = [{"containerPort": _port(replica), "name": "http", "protocol": "TCP"}]
    container["resources"] = {"limits": gpus, "requests": gpus}
    container["mountModelVolume"] = True
    return container


def _rank_script(replica: ReplicaSetup, process: Process) -> str:
    """Return what a pod of a LeaderWorkerSet runs: the leader is rank 0, the others headless."""
    return (
        f"exec {shlex.join(process.argv)} --distributed-executor-backend mp "
        f'--nnodes {len(replica.stages)} --node-rank "${{LWS_WORKER_INDEX}}" '
        '--master-addr "${LWS_LEADER_ADDRESS}" --master-port 29501 '
        '$([ "${LWS_WORKER_INDEX}" = 0 ] || echo --headless)'
    )


def _install(replica: ReplicaSetup) -> str:
    return f"helm upgrade --install e2llm-{replica.label} {_CHART} -f values-{replica.label}.yaml"


def _scripts(setup: Setup) -> dict[str, str]:
    releases = [f"e2llm-{own.label}" for own in setup.replicas]
    install = " && ".join(_install(own) for own in setup.replicas)
    wait = ["kubectl", "wait", "--for=condition=Ready", "pod", "--timeout=30m"]
    wait += ["-l", f"llm-d.ai/model={label(setup.model_name)}"]
    return {
        "apply.sh": command_script("Installs every replica.", ["bash", "-ec", install]),
        "health.sh": command_script("Ends with 0 once every pod serves.", wait),
        "stop.sh": command_script("Removes every replica.", ["helm", "uninstall", *releases]),
    }
