"""A ``.gguf`` file → model facts with exact bytes; the only module that imports ``gguf``.

Only the header is read (:mod:`e2llm_opt.model.gguf_header` says why not by ``gguf``'s own
reader), so that the first megabytes of a download are enough. What numbers mean - block sizes of
storage types, names of file types - is the package's knowledge.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gguf.constants import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    LlamaFileType,
)

from e2llm_opt.catalogue.catalogue import weight_format_row
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.model.fact_reader import FactReader
from e2llm_opt.model.gguf_facts import facts_of
from e2llm_opt.model.gguf_header import Header, read_header
from e2llm_opt.model.gguf_tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.model.gguf_header import TensorRecord, Value

UNNAMED_WEIGHTS: Final = "gguf"
"""Weight format of a file that does not name it."""
MAX_PARTS: Final = 1024
_PART: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
_MAX_NAME: Final = 200


def load_gguf(path: str | os.PathLike[str]) -> ModelFacts:
    """Read the model of a ``.gguf`` file, or of the first of its parts, from the header.

    Parameters
    ----------
    path
        The file; what follows its header may be missing. Of a model in parts
        (``…-00001-of-00003.gguf``) the first; the others must lie beside it.

    Returns
    -------
    ModelFacts
        With ``weights`` and the bytes of every layer, table and class as in the file.

    Raises
    ------
    InputError
        When a file cannot be read, is damaged, or is no language model; it names the file.
    """
    file = os.fspath(path)
    first = read_header(file)
    try:
        headers = [first, *_further_parts(first)]
        return facts_of(
            first.metadata,
            _sized([record for header in headers for record in header.tensors]),
            name=_name_of(first),
            weights=_weights_of(first.metadata.get("general.file_type")),
        )
    except InputError as error:
        raise InputError(
            fault if fault.file else replace(fault, file=file) for fault in error.faults
        ) from None


def _sized(records: Iterable[TensorRecord]) -> list[Tensor]:
    """Return the tensors with their bytes.

    Raises
    ------
    InputError
        When a storage type is unknown, a row is no multiple of its blocks, or a name is doubled.
    """
    tensors: dict[str, Tensor] = {}
    for record in records:
        if record.name in tensors:
            raise InputError([Fault(path=record.name, wrong="the tensor is in two parts")])
        try:
            kind = GGMLQuantizationType(record.type_id)
        except ValueError:
            wrong = f"storage type {record.type_id} is not known"
            right = "damaged, or newer than the installed package gguf: pip install -U gguf"
            raise InputError([Fault(path=record.name, wrong=wrong, right=right)]) from None
        block_values, block_bytes = GGML_QUANT_SIZES[kind]
        row, rows = record.shape[0] if record.shape else 1, 1
        for size in record.shape[1:]:
            rows *= size
        if row % block_values:
            wrong = f"damaged: a row of {row} values in {kind.name} blocks of {block_values}"
            raise InputError([Fault(path=record.name, wrong=wrong)])
        num_bytes = row // block_values * block_bytes * rows
        tensors[record.name] = Tensor(name=record.name, shape=record.shape, num_bytes=num_bytes)
    return list(tensors.values())


def _further_parts(first: Header) -> list[Header]:
    """Return the headers of the parts after the *first*."""
    reader = FactReader(first.metadata)
    count = reader.whole("split.count") or 0
    number = reader.whole("split.no") or 0
    if reader.faults:
        raise InputError(reader.faults)
    if count <= 1:
        return []
    match = _PART.fullmatch(first.file)
    if number or count > MAX_PARTS or not match or int(match[3]) != count:
        wrong = f"part {number + 1} of {count}"
        right = "give the first part, under its own name (…-00001-of-0000n.gguf)"
        raise InputError([Fault(path="split.count", wrong=wrong, right=right)])
    headers = []
    for index in range(1, count):
        name = f"{match[1]}-{index + 1:05d}-of-{match[3]}{match[4]}"
        if not Path(name).exists():
            wrong = f"part {index + 1} of {count} is missing: {Path(name).name}"
            raise InputError([Fault(wrong=wrong, right="put all parts into one folder")])
        headers.append(read_header(name))
        stated = headers[-1].metadata.get("split.no"), headers[-1].metadata.get("split.count")
        if stated != (index, count):
            raise InputError([Fault(file=name, wrong=f"is not part {index + 1} of {count}")])
    _check_total(reader, [first, *headers])
    return headers


def _check_total(reader: FactReader, headers: list[Header]) -> None:
    stated = reader.whole("split.tensors.count")
    found = sum(len(header.tensors) for header in headers)
    if stated is not None and stated != found:
        wrong = f"is {stated}, but the parts have {found} tensors"
        raise InputError([Fault(path="split.tensors.count", wrong=wrong)])


def _name_of(header: Header) -> str:
    stated = header.metadata.get("general.name")
    if isinstance(stated, str) and 0 < len(stated) <= _MAX_NAME and stated.isprintable():
        return stated
    match = _PART.fullmatch(header.file)
    return Path(match[1]).name if match else Path(header.file).stem


def _weights_of(file_type: Value | None) -> str:
    """Return the weight format that a file says it is in, as the catalogue spells it."""
    if isinstance(file_type, bool) or not isinstance(file_type, int):
        return UNNAMED_WEIGHTS
    try:
        name = LlamaFileType(file_type).name
    except ValueError:
        return UNNAMED_WEIGHTS
    if name == LlamaFileType.GUESSED.name:
        return UNNAMED_WEIGHTS
    name = name.removeprefix("MOSTLY_").removeprefix("ALL_").lower()
    try:
        return weight_format_row(name).key
    except UnknownNameError:
        return name
