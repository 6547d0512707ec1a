"""Measured speeds from files and from the command line, with device, model and formats known."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.catalogue import kv_cache_format_row, weight_format_row
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.loading.llama_bench import json_rows, refuse_other_formats, runs_of
from e2llm_opt.loading.measured_csv import csv_rows, has_column, runs_of_table
from e2llm_opt.loading.setup import Setup, catalogue_key
from e2llm_opt.loading.validate import nearest
from e2llm_opt.model.build import build_model
from e2llm_opt.model.named import facts_at
from e2llm_opt.text_file import read_text
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.loading.measured_run import Run
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.model.model import Model
    from e2llm_opt.problem import Problem
    from e2llm_opt.speed import Phase

MAX_FAULTS = 20
_SIZE_TOLERANCE = 1.25
"""A file this many times larger or smaller than the model is not that model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The speed of one phase on one device that held the whole model.

    Parameters
    ----------
    device
        Its name; of an inventory item with a ``count`` the name of the item or of one of them.
    facts, weights, kv_cache
        The model and its formats.
    phase, tokens_per_s
        What was timed, and the speed of all requests together [tokens/s].
    tokens, depth
        Length of the prompt or of the answer, and what was in the KV cache before it [tokens].
    batch
        Requests decoded at once.
    chunk_tokens
        Tokens of a prompt computed at once; 0: as the engine does.
    where
        File and line, for messages.
    """

    device: str
    facts: ModelFacts
    weights: str
    phase: Phase
    tokens_per_s: float
    tokens: int
    depth: int = 0
    batch: int = 1
    kv_cache: str = "f16"
    chunk_tokens: int = 0
    where: str = "measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Measurements in the order of their files, and notes on what was left out or assumed."""

    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What the user says of measurements that do not say it themselves; empty where nothing."""

    device: str = ""
    model: str = ""
    weights: str = ""


def read_runs(path: str | os.PathLike[str]) -> tuple[list[Run], list[str]]:
    """Return the runs of a file of ``llama-bench`` or of a table, and notes on what is left out.

    Raises
    ------
    InputError
        When the file cannot be read, is of no known form, or has cells that are wrong.
    """
    file, text, notes = os.fspath(path), read_text(path), list[str]()
    if not text.strip():
        raise InputError([Fault(file=file, wrong="the file is empty")])
    refuse_other_formats(text, file)
    if has_column(text, "n_prompt"):
        return runs_of(csv_rows(text, file, "n_prompt"), file, notes), notes
    if has_column(text, "device"):
        return runs_of_table(text, file, notes), notes
    return runs_of(json_rows(text, file, notes), file, notes), notes


def read_measurements(
    paths: Iterable[str | os.PathLike[str]],
    machines: Problem | Setup,
    *,
    named: Named | None = None,
    runs: Sequence[Run] = (),
) -> Readings:
    """Return the measurements of files, and of *runs*, on the devices of *machines*.

    Parameters
    ----------
    paths
        Files that ``llama-bench`` wrote (json, jsonl, csv), or tables with a device a row.
    machines
        Whose devices, and whose model where a run names none that is known.
    runs
        Measured by hand.
    named
        The device that files without a device are of, and the one whose rows are taken from those
        with devices; model and weights where a run names none that is known.

    Raises
    ------
    InputError
        With the faults of all files (the first 20 of rows), or when nothing can be used.
    """
    setup = machines if isinstance(machines, Setup) else Setup.of(machines)
    faults: list[Fault] = []
    notes: list[str] = []
    reader = _Reader(setup, named or Named(), notes)
    found: list[Run] = []
    for path in paths:
        try:
            own, own_notes = read_runs(path)
        except InputError as error:
            faults.extend(error.faults)
        else:
            found += own
            notes += own_notes
    if faults:
        raise InputError(faults)
    measurements = [m for m in map(reader.measurement, (*found, *runs)) if m is not None]
    reader.tell_left_out()
    if reader.faults:
        raise InputError([*dict.fromkeys(reader.faults)][:MAX_FAULTS])
    if not measurements:
        reasons = "; ".join(notes) or "there are none"
        raise InputError(f"No measurement can be used: {reasons}.")
    return Readings(measurements=tuple(measurements), notes=tuple(notes))


class _Reader:
    """Looks up device, model and formats of runs; collects faults and notes."""

    def __init__(self, setup: Setup, named: Named, notes: list[str]) -> None:
        self.faults: list[Fault] = []
        self._setup = setup
        self._named = named
        self._notes = notes
        self._asked = setup.item_of(named.device) if named.device else ""
        self._others: dict[str, int] = {}
        self._facts: dict[str, ModelFacts] = {}
        self._models: dict[tuple[ModelFacts, str, str], Model] = {}
        if named.device and not self._asked:
            wrong = f"no device of the inventory is called '{named.device}'"
            raise InputError([Fault(wrong=wrong, right=self._help(named.device))])

    def measurement(self, run: Run) -> Measurement | None:
        """Return *run* with all names looked up; None after a fault or a note."""
        item = self._item(run)
        if not item:
            return None
        try:
            facts, weights, kv_cache, model = self._model(run)
        except InputError as error:
            self.faults += [run.fault(fault.wrong, fault.right) for fault in error.faults]
            return None
        reason = self._unusable(run, item, model)
        if reason:
            self._notes.append(f"{run.where}: left out, {reason}")
            return None
        return Measurement(
            device=item,
            facts=facts,
            weights=weights,
            phase=run.phase,
            tokens_per_s=run.tokens_per_s,
            tokens=run.tokens,
            depth=run.depth,
            batch=run.batch,
            kv_cache=kv_cache,
            chunk_tokens=run.chunk_tokens,
            where=run.where,
        )

    def tell_left_out(self) -> None:
        """Note how many rows of which files are of devices that were not asked for."""
        for file, count in self._others.items():
            self._notes.append(f"{file}: {count} speeds of other devices are left out")

    def _item(self, run: Run) -> str:
        """Return the inventory item that ran; empty after a fault, or if another is asked for."""
        own = self._setup.item_of(run.device) if run.device else ""
        hardware = [name for name in (run.device, run.hardware) if name]
        alike = next(filter(None, map(self._setup.items_of_type, hardware)), ())
        if self._asked:
            is_asked = own == self._asked or (not own and self._asked in alike)
            if run.device and not is_asked:
                self._others[run.file] = self._others.get(run.file, 0) + 1
                return ""
            if not run.device and not is_asked and catalogue_key(run.hardware):
                self._note_once(f"{run.file}: {run.hardware} is taken for {self._asked}, as asked")
            return self._asked
        if own or len(alike) == 1:
            return own or alike[0]
        is_known = any(catalogue_key(name) for name in hardware)
        if len(self._setup.items) == 1 and not run.device and not is_known:
            return next(iter(self._setup.items))
        self.faults.append(self._unknown(run, alike))
        return ""

    def _unknown(self, run: Run, alike: tuple[str, ...]) -> Fault:
        name = run.device or run.hardware
        if len(alike) > 1:
            return run.fault(
                f"'{name}' may be {' or '.join(alike)}", "say which with --device, a file at a time"
            )
        if not name:
            return run.fault("it does not say which device ran", "give --device NAME")
        return run.fault(f"no device of the inventory is '{name}'", self._help(name))

    def _help(self, name: str) -> str:
        guess = nearest(name, self._setup.items)
        some = list(self._setup.items)[:MAX_FAULTS]
        return guess or f"--device says which of {', '.join(some)}"

    def _model(self, run: Run) -> tuple[ModelFacts, str, str, Model]:
        """Return facts, formats and the built model: the run's own, else those that are named.

        Raises
        ------
        InputError
            When none is known, or the run's file has another size.
        """
        kv_cache = kv_cache_format_row(run.kv_cache or self._setup.kv_cache).key
        weights = run.weights or self._named.weights
        for name in run.models:
            try:
                facts = self._facts_of(name, Path(run.file).parent / name)
            except InputError:
                if not run.size_bytes and not self._named.model:  # the table itself names it
                    raise
                continue
            form = self._weights(facts, weights)
            model = self._built(facts, form, kv_cache)
            if _is_of_size(model, run.size_bytes):
                return facts, form, kv_cache, model
        facts = self._fallback(run)
        form = self._weights(facts, weights or self._setup.weights)
        model = self._built(facts, form, kv_cache)
        if not _is_of_size(model, run.size_bytes):
            raise InputError(
                f"the file of the run has {run.size_bytes / GIB:.3g} GiB, and {facts.name} in "
                f"{form} has {_size(model) / GIB:.3g} GiB; give --model and --weights of the run"
            )
        return facts, form, kv_cache, model

    def _fallback(self, run: Run) -> ModelFacts:
        if self._named.model:
            return self._facts_of(self._named.model, Path(self._named.model).expanduser())
        if self._setup.facts is None:
            wrong = "it is not known which model ran"
            raise InputError([run.fault(wrong, "give --model NAME, and --weights")])
        return self._setup.facts

    def _facts_of(self, name: str, path: Path) -> ModelFacts:
        key = f"{name}\n{path}"
        if key not in self._facts:
            self._facts[key] = facts_at(name, path)
        return self._facts[key]

    def _weights(self, facts: ModelFacts, given: str) -> str:
        if facts.weights and not given:
            return facts.weights
        given = given or self._setup.weights
        if not given:
            raise InputError(
                [Fault(wrong="it is not known in which format the weights were", right="--weights")]
            )
        return given if facts.weights else weight_format_row(given).key

    def _built(self, facts: ModelFacts, weights: str, kv_cache: str) -> Model:
        key = facts, weights, kv_cache
        if key not in self._models:
            self._models[key] = build_model(
                facts, weights=weights, kv_cache=kv_cache, kv_layout=self._setup.engine.kv_layout
            )
        return self._models[key]

    def _unusable(self, run: Run, item: str, model: Model) -> str:
        """Return why *run* is not of the device alone with the whole model, or an empty text."""
        device = self._setup.device(item)
        is_cpu = device.memory_kind is MemoryKind.CPU
        if is_cpu and run.is_on_gpu:
            return f"it ran on a GPU ({run.hardware}), and {item} is a CPU"
        if not is_cpu and 0 <= run.gpu_layers < model.num_layers:
            return f"only {run.gpu_layers} of {model.num_layers} layers were on the GPU"
        if _size(model) > device.memory_bytes:
            return (
                f"{model.name} has {_size(model) / GIB:.3g} GiB, {item} only "
                f"{device.memory_bytes / GIB:.3g}: part of it ran elsewhere"
            )
        return ""

    def _note_once(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)


def _size(model: Model) -> float:
    """Return the bytes of a model's file; a table that embedding and head share counts once."""
    embedding, head = model.embedding_bytes, model.head_bytes
    layers = sum(model.layer_dense_bytes) + sum(model.layer_routed_bytes)
    return layers + (max(embedding, head) if model.is_tied else embedding + head)


def _is_of_size(model: Model, size_bytes: float) -> bool:
    """Whether a file of *size_bytes* can be *model*; anything can where the size is unknown."""
    ratio = size_bytes / _size(model) if size_bytes else 1.0
    return 1 / _SIZE_TOLERANCE <= ratio <= _SIZE_TOLERANCE
