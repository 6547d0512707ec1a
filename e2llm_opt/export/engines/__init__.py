"""Every engine that a plan can be exported to, by the name that users give."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, Protocol

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.validate import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.export.process import Launch
    from e2llm_opt.export.setup import Setup

ENGINES: Final[Mapping[str, str]] = {
    "llama.cpp": "llama_cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "prima.cpp": "prima_cpp",
    "exo": "exo",
    "parallax": "parallax",
    "petals": "petals",
    "distributed-llama": "distributed_llama",
    "kubernetes": "kubernetes",
    "dynamo": "dynamo",
    "llm-d": "llm_d",
    "ray-serve": "ray_serve",
}
"""Engine: its module in this folder."""
_ALIASES: Final = {
    "llamacpp": "llama.cpp",
    "llama-server": "llama.cpp",
    "prima": "prima.cpp",
    "primacpp": "prima.cpp",
    "dllama": "distributed-llama",
    "k8s": "kubernetes",
    "nvidia-dynamo": "dynamo",
    "llmd": "llm-d",
    "ray": "ray-serve",
    "ray-serve-llm": "ray-serve",
    "ray-llm": "ray-serve",
}


class Exporter(Protocol):
    """Puts a plan into the words of one engine."""

    def __call__(self, setup: Setup) -> Launch:
        """Return processes and files, or raise NotExpressibleError."""
        ...


def engine_named(name: str) -> str:
    """Return the key in :data:`ENGINES` that *name* means.

    Raises
    ------
    InputError
        When there is none, with the nearest names or all of them.
    """
    word = name.strip().lower().replace("_", "-").replace(" ", "-")
    word = _ALIASES.get(word, word)
    if word not in ENGINES:
        right = nearest(word, (*ENGINES, *_ALIASES)) or f"known: {', '.join(ENGINES)}"
        raise InputError([Fault(wrong=f"unknown engine '{name[:80]}'", right=right)])
    return word


def exporter(engine: str) -> Exporter:
    """Return the exporter of an engine, by its key in :data:`ENGINES`."""
    module = importlib.import_module(f"{__name__}.{ENGINES[engine]}")
    found: Exporter = module.launch
    return found
