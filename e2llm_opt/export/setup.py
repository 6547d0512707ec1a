"""The plan as an exporter sees it: stages in order, the address of each, and what they run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.catalogue.catalogue import kv_cache_format_row, model_entry, weight_format_row
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.export.addresses import Address, is_host, parsed
from e2llm_opt.export.names import folder_name, label, unlike
from e2llm_opt.export.rules import num_layers
from e2llm_opt.loading.validate import nearest
from e2llm_opt.model.named import model_facts
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from e2llm_opt.export.options import ExportOptions
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.plan.plan import Plan, Replica, Stage
    from e2llm_opt.problem import Problem

RESERVED_FOLDERS = ("front-door", "router")
"""Folders that belong to no device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSetup:
    """One stage, and how to reach its device.

    Parameters
    ----------
    index
        Its place in the pipeline.
    device
        Name of the device.
    folder
        Where its files go.
    host, port
        Its address; port 0 where the engine's own is meant.
    memory_kind, type
        As in the inventory; empty where it is not known.
    engine_device
        What the engine calls the device, where it was said.
    gpu_number
        Its place among the GPUs of its host: of the inventory, else of the plan.
    memory_bytes
        All memory of the device, the reserved part too; 0 where it is not known [bytes].
    others
        The same of further devices that share every layer of the stage.
    """

    stage: Stage
    index: int
    folder: str
    host: str
    port: int = 0
    memory_kind: str = ""
    type: str = ""
    engine_device: str = ""
    gpu_number: int = 0
    memory_bytes: float = 0.0
    device: str = ""
    others: tuple[StageSetup, ...] = ()

    @property
    def members(self) -> tuple[StageSetup, ...]:
        """All its devices, in order."""
        return (self, *self.others)

    @property
    def degree(self) -> int:
        """Devices that share its layers."""
        return len(self.members)

    @property
    def start(self) -> int:
        """First layer."""
        return self.stage.layers[0]

    @property
    def stop(self) -> int:
        """Layer after the last one."""
        return self.stage.layers[1]

    @property
    def num_layers(self) -> int:
        """Layers it holds."""
        return self.stop - self.start

    @property
    def is_cpu(self) -> bool:
        """Whether the device is known to have no GPU."""
        return self.memory_kind == "cpu" or self.engine_device.upper() == "CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSetup:
    """One replica with its stages in pipeline order."""

    replica: Replica
    label: str
    stages: tuple[StageSetup, ...]

    @property
    def id(self) -> str:
        """Id of the replica."""
        return self.replica.id

    @property
    def role(self) -> Role:
        """What it does."""
        return Role(self.replica.role)

    @property
    def slots(self) -> int:
        """Requests that it decodes at once."""
        return self.replica.slots

    @property
    def first(self) -> StageSetup:
        """First stage."""
        return self.stages[0]

    @property
    def last(self) -> StageSetup:
        """Last stage."""
        return self.stages[-1]

    @property
    def layer_counts(self) -> tuple[int, ...]:
        """Layers of each stage."""
        return tuple(stage.num_layers for stage in self.stages)

    @property
    def degree(self) -> int:
        """Devices that share the layers of the first stage; of each, for engines of one degree."""
        return self.first.degree

    @property
    def devices(self) -> tuple[StageSetup, ...]:
        """All devices, stage by stage."""
        return tuple(member for stage in self.stages for member in stage.members)

    @property
    def is_on_one_host(self) -> bool:
        """Whether all its stages share a host."""
        return len({stage.host for stage in self.stages}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The whole plan, with what it runs.

    Parameters
    ----------
    model_name
        As the plan says.
    hf_name
        Its name on Hugging Face where the catalogue knows it.
    weights, kv_cache
        Catalogue keys of the formats; empty where the plan does not say.
    context_tokens
        Longest request that a slot must hold [tokens].
    num_kv_heads
        0 where it is not known.
    warnings
        What had to be guessed.
    """

    plan: Plan
    options: ExportOptions
    replicas: tuple[ReplicaSetup, ...]
    model_name: str
    hf_name: str
    num_layers: int
    weights: str
    kv_cache: str
    context_tokens: int
    num_kv_heads: int
    warnings: tuple[str, ...]

    @property
    def model(self) -> str:
        """The model as engines that load safetensors name it."""
        return _no_option(self.options.model_path or self.hf_name)

    @property
    def gguf(self) -> str:
        """The model as engines that load GGUF files name it."""
        name = self.model_name.rsplit("/", 1)[-1]
        ending = f"-{self.weights}.gguf" if self.weights else ".gguf"
        return _no_option(self.options.model_path or f"{name}{ending}")

    def of_role(self, *roles: Role) -> tuple[ReplicaSetup, ...]:
        """Return the replicas that have one of *roles*."""
        return tuple(replica for replica in self.replicas if replica.role in roles)

    def with_hosts(self, host: Callable[[ReplicaSetup, StageSetup], str]) -> Setup:
        """Return the same setup with every stage at another host, at the engine's own port."""
        return replace(
            self,
            replicas=tuple(
                replace(
                    own,
                    stages=tuple(replace(s, host=host(own, s), port=0) for s in own.stages),
                )
                for own in self.replicas
            ),
        )


def setup_of(plan: Plan, options: ExportOptions, problem: Problem | None) -> Setup:
    """Return the plan with addresses and names.

    Parameters
    ----------
    plan
        A valid one.
    options
        Win over everything else.
    problem
        Knows hosts, kinds of memory and formats; may be None.

    Raises
    ------
    InputError
        When an option names a device that the plan does not use.
    """
    stages = [stage for replica in plan.replicas for stage in replica.stages]
    names = [name for stage in stages for name in stage.devices]
    _refuse_unknown(options, names)
    devices = {} if problem is None else {own.name: own for own in problem.devices}
    addresses, guessed = _addresses(names, options, devices)
    folders = dict(zip(names, unlike(names, folder_name, RESERVED_FOLDERS), strict=True))
    labels = unlike((replica.id for replica in plan.replicas), label)

    numbers = _gpu_numbers(names, addresses, devices)

    def member(index: int, stage: Stage, name: str) -> StageSetup:
        known, at = devices.get(name), addresses[name]
        return StageSetup(
            stage=stage,
            index=index,
            device=name,
            folder=folders[name],
            host=at.host,
            port=at.port,
            memory_kind="" if known is None else str(known.memory_kind),
            type="" if known is None else known.type,
            engine_device=options.engine_devices.get(name, ""),
            gpu_number=numbers[name],
            memory_bytes=0.0 if known is None else known.memory_bytes,
        )

    def stage_setup(index: int, stage: Stage) -> StageSetup:
        first, *rest = (member(index, stage, name) for name in stage.devices)
        return replace(first, others=tuple(rest))

    what_runs = _what_runs(plan, problem)
    if not what_runs["weights"]:
        guessed += ("the plan does not say its weight format: whether the engine loads it is open",)
    return Setup(
        plan=plan,
        options=options,
        replicas=tuple(
            ReplicaSetup(
                replica=replica,
                label=own,
                stages=tuple(stage_setup(j, stage) for j, stage in enumerate(replica.stages)),
            )
            for replica, own in zip(plan.replicas, labels, strict=True)
        ),
        warnings=guessed,
        **what_runs,
    )


def _no_option(word: str) -> str:
    """Return a file or model so that no program takes it for an option."""
    return f"./{word}" if word.startswith("-") else word


def _what_runs(plan: Plan, problem: Problem | None) -> dict[str, Any]:
    asked = plan.problem
    name = str(asked.model.get("name") or (problem.model.name if problem else "") or "model")
    weights = asked.options.get("weights") or (problem.weights if problem else "")
    kv_cache = asked.options.get("kv_cache") or (problem.kv_cache if problem else "f16")
    context = asked.workload.get("context_tokens")
    if context is None and problem is not None:
        context = problem.workload.context_tokens
    longest = min((own.max_context_tokens for own in plan.replicas), default=0)
    hf_name, num_kv_heads = name, 0
    try:
        entry = model_entry(name)
    except UnknownNameError:
        pass
    else:
        hf_name = entry.name or name
        num_kv_heads = model_facts(name).num_key_value_heads or 0
    if problem is not None and problem.facts.num_key_value_heads:
        num_kv_heads = problem.facts.num_key_value_heads
    return {
        "model_name": name,
        "hf_name": hf_name,
        "num_layers": num_layers(plan),
        "weights": _key(str(weights or ""), weight_format_row),
        "kv_cache": _key(str(kv_cache), kv_cache_format_row),
        "context_tokens": int(context or longest),
        "num_kv_heads": num_kv_heads,
    }


def _key(name: str, row: Callable[[str], Any]) -> str:
    """Return the catalogue's key of a format; the name itself where it has none."""
    try:
        return str(row(name).key) if name else ""
    except UnknownNameError:
        return name


def _addresses(
    names: list[str], options: ExportOptions, devices: Mapping[str, Device]
) -> tuple[dict[str, Address], tuple[str, ...]]:
    """Return where each device is: as said, else its host, else its name as a host name."""
    found: dict[str, Address] = {}
    bad: dict[str, str] = {}
    for name in names:
        given = parsed(options.addresses.get(name, ""))
        host = devices[name].host if name in devices else name
        if given is not None:
            found[name] = given
        elif is_host(host):
            found[name] = Address(host=host)
        else:
            bad[name] = host
    hosts = list(dict.fromkeys(bad.values()))
    taken = {address.host for address in found.values()}
    made = dict(zip(hosts, unlike(hosts, label, taken), strict=True))
    found |= {name: Address(host=made[host]) for name, host in bad.items()}
    warnings = tuple(
        f"'{name}' is no host name: '{made[host]}' stands for it; say where it is with "
        f"--address '{name}=HOST'"
        for name, host in bad.items()
    )
    return found, warnings


def _gpu_numbers(
    names: list[str], addresses: Mapping[str, Address], devices: Mapping[str, Device]
) -> dict[str, int]:
    """Return the place of each device among the GPUs of its host."""
    seen: dict[str, int] = {}
    found = dict.fromkeys(names, 0)
    for name in devices or names:
        if name in devices and devices[name].memory_kind == "cpu":
            continue
        host = addresses[name].host if name in addresses else devices[name].host
        found[name] = seen.get(host, 0)
        seen[host] = found[name] + 1
    return found


def _refuse_unknown(options: ExportOptions, names: list[str]) -> None:
    faults = [
        Fault(
            path=option,
            wrong=f"the plan uses no device '{name}'",
            right=nearest(name, names) or f"it uses {', '.join(names[:12])}",
        )
        for option, given in (
            ("--address", options.addresses),
            ("--engine-device", options.engine_devices),
        )
        for name in given
        if name not in names
    ]
    if faults:
        raise InputError(faults)
