"""exo: the same program on every device, and one instance a replica, posted with our layers.

exo's own placement cannot be steered, but ``POST /instance`` takes explicit layers. The script asks
for a placement, puts the plan's layers into it and posts it, so that keys are spelled as the server
spells them (``docs/api.md`` of exo, and the shards in its sources).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.export.addresses import Ports
from e2llm_opt.export.engines.exo_script import PLACE
from e2llm_opt.export.formats import refuse_formats
from e2llm_opt.export.process import Endpoint, Health, Launch, Process
from e2llm_opt.export.refusal import refuse_shared, refuse_spilled
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup

_PORT: Final = 52415
_NEEDS: Final = "`exo` (the code base of 2026), on PATH; `python3` where `place.py` is run."


def launch(setup: Setup) -> Launch:
    """Return exo on every device, the instances as JSON, and the script that posts them."""
    refuse_formats("exo", setup)
    refuse_spilled(setup, "exo keeps every layer where it runs")
    _refuse_partly_shared(setup)
    ports = Ports()
    has_roles = any(own.role is not Role.MIXED for own in setup.replicas)
    env = {"EXO_LIBP2P_NAMESPACE": "e2llm-opt"}
    if has_roles:
        env["ENABLE_DISAGGREGATION"] = "true"
    processes = []
    for replica in setup.replicas:
        for stage in replica.devices:
            port = ports.take(stage.host, stage.port or _PORT)
            processes.append(
                Process(
                    title=f"exo for {replica.id}",
                    device=stage.device,
                    folder=stage.folder,
                    stage=stage,
                    replica=replica,
                    argv=("exo", "--api-port", str(port)),
                    env=env,
                    host=stage.host,
                    port=port,
                    health=Health(kind="http", path="/node_id"),
                )
            )
    files = {
        f"instance-{own.label}.json": json.dumps(_instance(setup, own), indent=2) + "\n"
        for own in setup.replicas
    }
    files["place.py"] = PLACE
    if has_roles:
        files["instance-links.json"] = json.dumps(_links(setup), indent=2) + "\n"
    return Launch(
        processes=tuple(processes),
        endpoints=(_door(setup, processes[0]),),
        files=files,
        needs=_NEEDS,
        notes=tuple(_notes(processes[0])),
        warnings=tuple(_warnings(setup, has_roles=has_roles)),
    )


def _refuse_partly_shared(setup: Setup) -> None:
    """Refuse replicas of several stages, some of them of several devices."""
    if any(len(own.stages) > 1 and len(own.devices) > len(own.stages) for own in setup.replicas):
        refuse_shared(setup, "exo, but for one that has all devices of a replica,")


def _instance(setup: Setup, replica: ReplicaSetup) -> dict[str, Any]:
    """Return the body of ``POST /instance``, devices standing for the node ids of a running exo."""
    runners = {f"{replica.label}-{rank}": own for rank, own in enumerate(replica.devices)}
    shared = {"sharding": "Tensor"} if replica.degree > 1 else {}
    return {
        "instance": {
            "instance_id": replica.label,
            **shared,
            "shard_assignments": {
                "model_id": setup.model,
                "runner_to_shard": {
                    name: {
                        "device_rank": rank,
                        "world_size": len(runners),
                        "start_layer": stage.start,
                        "end_layer": stage.stop,
                        "n_layers": setup.num_layers,
                    }
                    for rank, (name, stage) in enumerate(runners.items())
                },
                "node_to_runner": {stage.device: name for name, stage in runners.items()},
            },
        }
    }


def _links(setup: Setup) -> dict[str, list[str]]:
    return {
        "prefill_instances": [own.label for own in setup.of_role(Role.PREFILL)],
        "decode_instances": [own.label for own in setup.of_role(Role.DECODE)],
    }


def _door(setup: Setup, process: Process) -> Endpoint:
    """Return the first exo: each of them sends requests to any instance of the model."""
    slots = sum(replica.slots for replica in setup.replicas)
    return Endpoint(
        name="exo",
        host=process.host,
        port=process.port,
        share=1.0,
        slots=slots,
        health=process.health.path,
    )


def _notes(first: Process) -> list[str]:
    return [
        (
            f"When every exo is healthy: `python3 place.py {first.url} instance-*.json`. It asks "
            "exo for a placement, puts the plan's layers into it, and posts it. It finds a device "
            "by its name in exo; `--node DEVICE=NODE_ID` says it where exo calls it otherwise. "
            "`python3 place.py --dry-run …` only prints what would be posted."
        ),
        "exo shares requests between the instances of a model itself.",
    ]


def _warnings(setup: Setup, *, has_roles: bool) -> list[str]:
    found = [
        (
            "exo has no option for context and slots: nothing keeps it from taking more requests "
            "than the plan's memory is for"
        )
    ]
    if setup.hf_name == setup.model and not setup.model.startswith("mlx-community/"):
        found.append(
            f"exo loads models in MLX's format: give one with --model-path, such as "
            f"mlx-community/{setup.hf_name.rsplit('/', 1)[-1]}-4bit"
        )
    if has_roles:
        found.append(
            "roles are experimental in exo: place.py posts instance-links.json after the "
            "instances, and exo must run with ENABLE_DISAGGREGATION=true"
        )
    return found
