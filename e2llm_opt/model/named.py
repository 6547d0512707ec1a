"""A model by its name: a catalogue entry, a ``config.json``, or a ``.gguf`` file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from e2llm_opt.model.hf_config import facts, load_config

if TYPE_CHECKING:
    from e2llm_opt.model.facts import ModelFacts


def model_facts(name: str | os.PathLike[str]) -> ModelFacts:
    """Return the facts of the model called *name*.

    Parameters
    ----------
    name
        A catalogue name, or a path: to a ``config.json``, to a folder that has one (``./mine``),
        or to a ``.gguf`` file, whose weights then have the sizes of the file.

    Raises
    ------
    InputError
        When there is no such model, or with every fault of the file.
    """
    text = os.fspath(name)
    return facts_at(text, Path(text).expanduser())


def facts_at(name: str, path: Path) -> ModelFacts:
    """Return the facts of the model called *name*, which is *path* if it is a file's name."""
    if name.lower().endswith(".gguf"):
        from e2llm_opt.model.gguf_file import load_gguf  # noqa: PLC0415 - gguf is slow to import

        return load_gguf(path)
    if name.lower().endswith(".json"):
        return load_config(path)
    is_folder = name.startswith((".", "/", "~")) and path.is_dir()
    return load_config(path / "config.json") if is_folder else facts(name)
