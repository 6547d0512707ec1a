"""Objects of Kubernetes as mappings: Deployment, Service, NetworkPolicy, ConfigMap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.export.engines.llama_cpp import RPC_SERVER

if TYPE_CHECKING:
    from e2llm_opt.export.process import Process

POD_IP: Final = "$(POD_IP)"
"""Kubernetes puts the pod's address here."""
_MANAGED: Final = {"app.kubernetes.io/managed-by": "e2llm-opt"}
_SECONDS_TO_LOAD: Final = 3600
_HOST_OPTIONS: Final = ("-H", "--host")
_BINARIES: Final = {RPC_SERVER: f"/app/{RPC_SERVER}", "llama-server": "/app/llama-server"}
"""Where llama.cpp's own images have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One process in a pod of its own.

    Parameters
    ----------
    name
        Of its Deployment and its Service.
    node
        Host that it must run on.
    model
        Folder of that host which it must see; empty for none.
    """

    name: str
    process: Process
    node: str
    image: str
    has_own_image: bool
    model: str

    @property
    def labels(self) -> dict[str, str]:
        """What tells its pods from all others."""
        own = self.process
        found = {**_MANAGED, "e2llm/pod": self.name}
        if own.replica is None or own.stage is None:
            return {**found, "e2llm/role": "router"}
        return {
            **found,
            "e2llm/replica": own.replica.label,
            "e2llm/stage": str(own.stage.index),
            "e2llm/role": str(own.replica.role),
            "e2llm/layers": f"{own.stage.start}-{own.stage.stop}",
        }


def escaped(word: str) -> str:
    """Return a word that Kubernetes leaves as it is: it would replace ``$(NAME)``."""
    return word.replace("$", "$$")


def deployment(pod: Pod) -> dict[str, Any]:
    """Return the Deployment of one pod."""
    annotations = {"e2llm/device": pod.process.device}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": pod.name, "labels": pod.labels, "annotations": annotations},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # two would not fit the device
            "selector": {"matchLabels": {"e2llm/pod": pod.name}},
            "template": {
                "metadata": {"labels": pod.labels, "annotations": annotations},
                "spec": pod_spec(pod),
            },
        },
    }


def pod_spec(pod: Pod) -> dict[str, Any]:
    """Return what runs in the pod, and where."""
    own = pod.process
    words = list(own.argv)
    if not pod.has_own_image:
        words[0] = _BINARIES.get(words[0], words[0])
    command = [
        POD_IP if i and own.argv[i - 1] in _HOST_OPTIONS else escaped(word)
        for i, word in enumerate(words)
    ]
    container: dict[str, Any] = {
        "name": "engine",
        "image": pod.image,
        "command": command,
        "env": environment(own),
    }
    if own.port and own.health.kind != "process":
        container["ports"] = [{"containerPort": own.port}]
        container["readinessProbe"] = _probe(own)
    if own.stage is not None and not own.stage.is_cpu:
        container["resources"] = {"limits": {gpu_resource(own.stage.type): own.stage.degree}}
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - in the pod
    if pod.model:
        volumes.append({"name": "models", "hostPath": {"path": pod.model, "type": "Directory"}})
        mounts.append({"name": "models", "mountPath": pod.model, "readOnly": True})
    container["volumeMounts"] = mounts
    return {
        "nodeSelector": {"kubernetes.io/hostname": pod.node},
        "containers": [container],
        "volumes": volumes,
    }


def environment(process: Process) -> list[dict[str, Any]]:
    """Return the variables of a process; the pod's address for those that name its host."""
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    rest = [
        {"name": name, "value": POD_IP if value == process.host else escaped(value)}
        for name, value in process.env.items()
        if name not in {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}  # the device plugin chooses
    ]
    return [address, *rest]


def gpu_resource(kind: str) -> str:
    """Return the name that a device plugin gives to a GPU of this type."""
    return "amd.com/gpu" if kind.startswith(("rx-", "mi")) else "nvidia.com/gpu"


def headless_service(pod: Pod) -> dict[str, Any]:
    """Return the Service that gives the pod a name, also before it is ready."""
    port = pod.process.port or 1
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": pod.name, "labels": pod.labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # stages look for each other while they start
            "selector": {"e2llm/pod": pod.name},
            "ports": [{"name": "main", "port": port, "targetPort": port}],
        },
    }


def service(name: str, pod: Pod) -> dict[str, Any]:
    """Return the Service that users, or the front door, ask."""
    port = pod.process.port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": _MANAGED},
        "spec": {
            "selector": {"e2llm/pod": pod.name},
            "ports": [{"name": "http", "port": port, "targetPort": port}],
        },
    }


def network_policy(pod: Pod) -> dict[str, Any]:
    """Return the rule that only pods of the same replica reach a worker without authentication."""
    peers = {"podSelector": {"matchLabels": {"e2llm/replica": pod.labels["e2llm/replica"]}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": pod.name, "labels": pod.labels},
        "spec": {
            "podSelector": {"matchLabels": {"e2llm/pod": pod.name}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [peers], "ports": [{"port": pod.process.port}]}],
        },
    }


def door_objects(configuration: str, port: int) -> list[dict[str, Any]]:
    """Return an nginx with this configuration, as three objects."""
    labels = {**_MANAGED, "e2llm/pod": "front-door", "e2llm/role": "front-door"}
    metadata = {"name": "front-door", "labels": labels}
    container = {
        "name": "nginx",
        "image": "nginx:stable",
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}},
        "volumeMounts": [
            {"name": "conf", "mountPath": "/etc/nginx/nginx.conf", "subPath": "nginx.conf"}
        ],
    }
    volume = {"name": "conf", "configMap": {"name": "front-door"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"nginx.conf": configuration},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"e2llm/pod": "front-door"}},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "volumes": [volume]},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": {"e2llm/pod": "front-door"},
                "ports": [{"name": "http", "port": port, "targetPort": port}],
            },
        },
    ]


def _probe(process: Process) -> dict[str, Any]:
    asked: dict[str, Any]
    if process.health.kind == "http":
        asked = {"httpGet": {"path": process.health.path, "port": process.port}}
    else:
        asked = {"tcpSocket": {"port": process.port}}
    return {**asked, "periodSeconds": 5, "failureThreshold": _SECONDS_TO_LOAD // 5}
