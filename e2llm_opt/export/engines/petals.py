"""Petals: one server a stage with explicit blocks; one private swarm a replica.

``--block_indices`` is half-open (``src/petals/server/server.py``). Embedding and head are the
client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from e2llm_opt.export.addresses import Ports, is_ipv6, is_numeric
from e2llm_opt.export.formats import dtype, refuse_formats
from e2llm_opt.export.process import Health, Launch, Process
from e2llm_opt.export.refusal import refuse_shared, refuse_spilled
from e2llm_opt.problem import Role
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

_PORT: Final = 31337
_PEERS: Final = '"${INITIAL_PEERS:?the address that the first server of the replica prints}"'
_QUANTISED: Final = {"int8": "int8", "nf4": "nf4"}
_NEEDS: Final = "Python with `petals`, on every device and for every client."


def launch(setup: Setup) -> Launch:
    """Return one server a stage; clients choose among replicas by their swarm."""
    refuse_formats("petals", setup)
    refuse_shared(setup, "petals")
    refuse_spilled(setup, "petals keeps every block where it runs")
    ports = Ports()
    processes = [
        _server(setup, replica, stage, ports)
        for replica in setup.replicas
        for stage in replica.stages
    ]
    return Launch(
        processes=tuple(processes),
        needs=_NEEDS,
        notes=(
            (
                "The first server of a replica prints its address, "
                "/ip4/ADDRESS/tcp/PORT/p2p/PEER. Start the others of this replica, and clients, "
                "with it: `INITIAL_PEERS=/ip4/…/p2p/… ./start.sh`. The address stays the same, "
                "since the server keeps its identity in `identity.key`."
            ),
            (
                "A client: `AutoDistributedModelForCausalLM.from_pretrained(MODEL, "
                "initial_peers=[…])` of petals."
            ),
        ),
        warnings=tuple(_warnings(setup)),
    )


def _server(setup: Setup, replica: ReplicaSetup, stage: StageSetup, ports: Ports) -> Process:
    port = ports.take(stage.host, stage.port or _PORT)
    argv = ["python", "-m", "petals.cli.run_server", setup.model]
    argv += ["--block_indices", f"{stage.start}:{stage.stop}", "--port", str(port)]
    if is_numeric(stage.host) and not is_ipv6(stage.host):
        argv += ["--public_ip", stage.host]
    argv += ["--attn_cache_tokens", str(setup.context_tokens * replica.slots)]
    argv += ["--inference_max_length", str(setup.context_tokens), "--throughput", "auto"]
    if setup.weights in _QUANTISED:
        argv += ["--quant_type", _QUANTISED[setup.weights]]
    elif dtype(setup):
        argv += ["--torch_dtype", dtype(setup), "--quant_type", "none"]
    shell = {}
    if stage.index == 0:
        argv += ["--new_swarm", "--identity_path", "identity.key"]
    else:
        argv += ["--initial_peers", _peer(replica)]
        shell = {len(argv) - 1: _PEERS}
    return Process(
        title=f"server of {replica.id}, blocks {stage.start} to {stage.stop - 1}",
        device=stage.device,
        folder=stage.folder,
        stage=stage,
        replica=replica,
        argv=tuple(argv),
        host=stage.host,
        port=port,
        health=Health(kind="tcp"),
        shell=shell,
    )


def _peer(replica: ReplicaSetup) -> str:
    """Return the address of the first server, but for its identity, which only it knows."""
    host = replica.first.host
    kind = "ip6" if is_ipv6(host) else "ip4" if is_numeric(host) else "dns"
    return f"/{kind}/{host}/tcp/{replica.first.port or _PORT}/p2p/PEER"


def _warnings(setup: Setup) -> list[str]:
    model = setup.plan.problem.model
    tables = float(model.get("embedding_bytes") or 0) + float(model.get("head_bytes") or 0)
    found = [
        (
            f"petals keeps embedding and head with the client: each needs {tables / GIB:.1f} GiB "
            "for them, and hops from and to it are not in the plan"
        )
    ]
    if any(own.role is not Role.MIXED for own in setup.replicas):
        found.append(
            "petals knows no roles: every replica reads prompts and writes answers; plan again "
            "with --roles mixed"
        )
    if len(setup.replicas) > 1:
        named = ", ".join(own.id for own in setup.replicas)
        found.append(
            f"petals has no front door: each replica ({named}) is a swarm of its own, and each "
            "client belongs to one; share your clients as the plan shares requests"
        )
    return found
