"""The neutral format of public problem reports, as problems of this package.

Memory, weights and KV cache are GiB, bandwidths of devices GB/s, of links Mbit/s. They are
measured or usable figures: nothing is reserved, and no layer or hop costs anything on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts, PerLayer
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import Runtime, runtime
from e2llm_opt.units import GB_PER_S, GIB, MBIT_PER_S, MS, TFLOP_PER_S
from e2llm_opt.workload.workload import Lengths, Workload

FOLDER = Path(__file__).parent
_ENGINES = {"llama.cpp-rpc": "llama.cpp"}
"""Engines that the reports call otherwise than the catalogue."""
_FORMATS = {"iq3m": "iq3_m", "q4km": "q4_k_m", "bf16": "bf16"}
"""Endings of model names that tell the weight format; it decides the FLOPs a byte of weights."""
_DISAGGREGATED = {"13-pd-roles-ratio-and-single-replica:d-long-prompts"}
"""Cases that say what disaggregated serving looks like, whether or not MIXED would win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One report, or one variant of it.

    Parameters
    ----------
    id
        File name without its ending, then the variant's id after a colon.
    given
        Devices, links, model, runtime and workload with the variant's changes made.
    expect
        ``feasible``, ``assert`` (for machines) and ``checks`` (for people).
    """

    id: str
    given: dict[str, Any]
    expect: dict[str, Any]

    def problem(self) -> Problem:
        """Build the problem; what is wrong with it raises InputError."""
        model, workload = self.given["model"], self.given["workload"]
        is_disaggregated = self.id in _DISAGGREGATED
        return Problem(
            inventory=_inventory(self.given["devices"], self.given["links"]),
            facts=_facts(model),
            runtime=_runtime(self.given["runtime"]),
            workload=Workload(
                prompt=Lengths(mean=workload["prompt_tokens"]),
                output=Lengths(mean=workload["output_tokens"]),
                rate_per_s=workload.get("arrival_rate_rps", 0.0),
                context_tokens=workload["context_tokens"],
                slots=workload["slots"],
            ),
            weights=_FORMATS.get(model["name"].split("-")[-1], "f16"),
            constraints=Constraints(roles="disaggregated" if is_disaggregated else "auto"),
        )


def cases_of(path: Path) -> list[Case]:
    """Return the report of one file and its variants."""
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    sections = ("devices", "links", "model", "runtime", "workload")
    given = {name: text[name] for name in sections}
    given["devices"] = [device for entry in given["devices"] for device in _counted(entry)]
    return [
        Case(id=path.stem, given=given, expect=text["expect"]),
        *(
            Case(
                id=f"{path.stem}:{variant['id']}",
                given=_changed(given, variant),
                expect=variant["expect"],
            )
            for variant in text.get("variants", ())
        ),
    ]


def _counted(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """``g1..g8`` with a count stands for so many alike devices."""
    count = entry.get("count", 1)
    if count == 1:
        return [entry]
    stem = entry["name"].split("..")[0].rstrip("0123456789")
    return [{**entry, "name": f"{stem}{i}", "count": 1} for i in range(1, count + 1)]


def _changed(given: dict[str, Any], variant: dict[str, Any]) -> dict[str, Any]:
    override = dict(variant.get("override", {}))
    count = override.pop("devices_count", len(given["devices"]))
    gone = set(variant.get("remove_devices", ()))
    devices = [device for device in given["devices"][:count] if device["name"] not in gone]
    links = [
        link
        for link in given["links"]
        if link.get("name") not in variant.get("remove_links", ())
        and not gone & set(link["between"] if link["between"] != "all" else ())
    ]
    return {
        **given,
        **{section: given[section] | keys for section, keys in override.items()},
        "devices": [*devices, *variant.get("add_devices", ())],
        "links": links,
    }


def _inventory(devices: list[dict[str, Any]], links: list[dict[str, Any]]) -> Inventory:
    hosts = dict.fromkeys(device.get("host", device["name"]) for device in devices)
    return Inventory(
        devices=tuple(
            Device(
                name=device["name"],
                memory_bytes=device["memory_gb"] * GIB,
                memory_bandwidth_bytes_per_s=device["mem_bw_gbs"] * GB_PER_S,
                fp16_flop_per_s=device["tflops"] * TFLOP_PER_S,
                prefill_efficiency=0.5,
                decode_efficiency=1.0,
                layer_overhead_s=0.0,
                host=device.get("host", ""),
                uuid=device.get("physical_id", ""),
            )
            for device in devices
        ),
        links=tuple(
            Link(
                ends=(one, other),
                forward_bytes_per_s=link["mbps"] * MBIT_PER_S,
                backward_bytes_per_s=link["mbps"] * MBIT_PER_S,
                latency_s=link["latency_ms"] * MS,
                interface=link.get("name", ""),
            )
            for link in links
            for one, other in (
                combinations(hosts, 2) if link["between"] == "all" else [link["between"]]
            )
        ),
    )


def _facts(model: dict[str, Any]) -> ModelFacts:
    active = model.get("active_layer_weight_gb")
    return ModelFacts(
        name=model["name"],
        num_hidden_layers=model["layers"],
        hidden_size=model["hidden"],
        vocab_size=model["vocab"],
        num_attention_heads=model["heads"],
        num_key_value_heads=model["kv_heads"],
        head_dim=model.get("head_dim", 0),
        kv_lora_rank=model.get("kv_lora_rank", 0),
        qk_rope_head_dim=model.get("rope_head_dim", 0),
        tie_word_embeddings=model["tied"],
        layer_weight_bytes=_layer_weights(model["layer_weight_gb"], model["layers"]),
        layer_active_weight_bytes=None if active is None else active * GIB,
        kv_bytes_per_token=model["kv_bytes_per_token_layer"],
        embedding_bytes=model["embedding_gb"] * GIB,
        head_bytes=model["head_gb"] * GIB,
        allowed_stage_starts=_stage_starts(model.get("allowed_stage_starts"), model["layers"]),
    )


def _layer_weights(given: float | list[dict[str, Any]], num_layers: int) -> PerLayer:
    """One number of GiB, or runs of layers ``{from, to, gb}`` with both ends included."""
    if not isinstance(given, list):
        return given * GIB
    weights = [0.0] * num_layers
    for run in given:
        weights[run["from"] : run["to"] + 1] = [run["gb"] * GIB] * (run["to"] + 1 - run["from"])
    return tuple(weights)


def _stage_starts(given: dict[str, Any] | None, num_layers: int) -> tuple[int, ...] | None:
    if given is None:
        return None
    if "only" in given:
        return tuple(given["only"])
    step, rest = given["modulo"], given["remainder"]
    return (given["first"], *(i for i in range(1, num_layers) if i % step == rest))


def _runtime(given: dict[str, Any]) -> Runtime:
    """The engine's rules, with buffers as the report has them and free hops."""
    name = given["name"]
    return runtime(
        _ENGINES.get(name, name),
        overhead_bytes=given["overhead_gb"] * GIB,
        logits_buffer=False,
        hop_overhead_s=0.0,
        bus_hop_overhead_s=0.0,
        head="last" if given["head_on_last_stage"] else "first",
        embedding="host" if given.get("embedding_on_host") else "first",
    )
