"""What measurements need of an inventory file: its devices by item, its engine, its model."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.catalogue import device_entry
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.loading.inventory_part import read_inventory
from e2llm_opt.loading.model_part import read_formats, read_model, read_runtime
from e2llm_opt.loading.yaml_file import read_document
from e2llm_opt.runtime import runtime

if TYPE_CHECKING:
    import os

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.problem import Problem
    from e2llm_opt.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The machines that were measured, and what holds where a measurement does not say.

    Parameters
    ----------
    inventory
        All devices.
    items
        Names under ``devices``, each with the alike devices it stands for (those of a ``count``).
    engine
        The runtime: how prompts are cut into chunks, what latent attention keeps.
    facts, weights, kv_cache
        The inventory's own model and formats; None or empty where it names none.
    """

    inventory: Inventory
    items: dict[str, tuple[str, ...]]
    engine: Runtime = field(default_factory=lambda: runtime("generic"))
    facts: ModelFacts | None = None
    weights: str = ""
    kv_cache: str = "f16"

    @staticmethod
    def of(problem: Problem) -> Setup:
        """Return what *problem* says; every device is an item of its own."""
        return Setup(
            inventory=problem.inventory,
            items={device.name: (device.name,) for device in problem.devices},
            engine=problem.runtime,
            facts=problem.facts,
            weights=problem.weights,
            kv_cache=problem.kv_cache,
        )

    def item_of(self, name: str) -> str:
        """Return the item called *name*, or of which *name* is one device; else empty."""
        if name in self.items:
            return name
        return next((item for item, names in self.items.items() if name in names), "")

    def device(self, item: str) -> Device:
        """Return the first device of *item*; the others are like it."""
        first = self.items[item][0]
        return next(device for device in self.inventory.devices if device.name == first)

    def items_of_type(self, hardware: str) -> tuple[str, ...]:
        """Return the items of the catalogue device that *hardware* names, as drivers spell it."""
        key = catalogue_key(hardware)
        return tuple(item for item in self.items if key and _is_kind(self.device(item).type, key))


def load_setup(path: str | os.PathLike[str]) -> Setup:
    """Read devices, links, runtime, model and formats of an inventory file; a workload may lack.

    Raises
    ------
    InputError
        With every fault of those sections.
    """
    document, faults = read_document(path)
    inventory, names = read_inventory(faults)
    engine = read_runtime(faults)
    facts = read_model(faults) if "model" in document.value else None
    formats = read_formats(facts, engine, faults)
    faults.raise_if_any()
    if inventory is None or engine is None:
        msg = "a file without a fault was not read"
        raise RuntimeError(msg)
    grouped = {name for group in names.groups.values() for name in group}
    items = {name: (name,) for name in names.hosts if name not in grouped} | names.groups
    own = facts.weights or "f16" if facts is not None else ""
    return Setup(
        inventory=inventory,
        items=items,
        engine=engine,
        facts=facts,
        weights=formats.get("weights", own),
        kv_cache=formats.get("kv_cache", "f16"),
    )


_DECORATION = re.compile(r"\((?:R|TM|C)\)|\b(?:GPU|Graphics|Processor)\b.*$", re.IGNORECASE)


def catalogue_key(hardware: str) -> str:
    """Return the catalogue's key for a name as drivers spell it, or an empty text.

    Examples
    --------
    >>> catalogue_key("NVIDIA GeForce RTX 3060 Laptop GPU")
    'rtx-3060m'
    """
    try:
        return device_entry(" ".join(_DECORATION.sub(" ", hardware).split())).key
    except UnknownNameError:
        return ""


def _is_kind(own: str, key: str) -> bool:
    """Whether two catalogue keys differ at most in the memory or the cores behind the name."""
    short, long = sorted((own, key), key=len)
    return bool(short) and re.fullmatch(re.escape(short) + r"(-\d+(gb)?)?", long) is not None
