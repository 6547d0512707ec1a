"""The header of a GGUF file, read without trust: metadata and tensor shapes, never the data.

Layout: magic, version, two counts, the metadata, one record a tensor (all little-endian). The
package ``gguf`` has a reader as well, but it maps the file, insists on the tensors' data, believes
every count and makes objects of each token, which takes seconds. This one reads forward in
blocks, checks every count before it is used, and passes over what nobody asks for.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.text_file import open_bytes
from e2llm_opt.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HEADER_BYTES: Final = int(128 * MIB)
"""No header is larger; that of a vocabulary of 260,000 tokens has 15 MiB [bytes]."""
MAX_KEYS: Final = 2**16
MAX_TENSORS: Final = 2**18
MAX_TEXTS: Final = 2**22
"""Most texts in all lists of one header."""
MAX_NAME_BYTES: Final = 1024
"""Longest key or tensor name [bytes]."""
MAX_KEPT_BYTES: Final = 2**16
"""Longer texts (chat templates) and lists (tokens, scores) are passed over [bytes]."""
MAX_KEPT_NUMBERS: Final = 2**20
"""Most numbers of lists that are kept of one header: in Python each takes many bytes."""
MAX_DEPTH: Final = 4
MAX_DIMENSIONS: Final = 4
MAX_ELEMENTS: Final = 2**50
"""No tensor has more elements."""
VERSIONS: Final = (2, 3)
_MAGIC: Final = b"GGUF"
_BLOCK_BYTES: Final = 2**16
_SCALARS: Final = {
    number: struct.Struct(f"<{code}")
    for number, code in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
}
"""Number of a value type → how one is stored."""
_TEXT: Final = 8
_LIST: Final = 9
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_INT_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class Unread:
    """A text or list that was passed over; only its length is known [bytes, items]."""

    length: int

    def __str__(self) -> str:
        """Return what to show in a message."""
        return f"a list or text of {self.length}"


Value = int | float | bool | str | list[int | float | bool] | Unread
"""What a key of the metadata may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRecord:
    """One tensor as the header describes it.

    Parameters
    ----------
    name, shape
        The fastest dimension comes first: inputs, then outputs, then experts.
    type_id
        Number of the storage type (``gguf.GGMLQuantizationType``).
    """

    name: str
    shape: tuple[int, ...]
    type_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What stands before the data of one file."""

    file: str
    metadata: Mapping[str, Value]
    tensors: tuple[TensorRecord, ...]


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a GGUF file, which may end where its header does.

    Raises
    ------
    InputError
        When the file cannot be read, is no GGUF file, or its header is cut off or damaged.

    Notes
    -----
    Time and memory are bounded by the size of the header, which is at most
    :data:`MAX_HEADER_BYTES`; nothing is allocated because a count says so.
    """
    with open_bytes(path) as file:
        source = _Source(file, os.fspath(path))
        num_tensors, num_keys = _read_opening(source)
        metadata = _read_metadata(source, num_keys)
        return Header(
            file=source.name, metadata=metadata, tensors=_read_tensors(source, num_tensors)
        )


class _Source:
    """Reads forward through a file in blocks, never more than a header may have."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        self.num_texts = 0
        self.num_kept = 0
        self._file = file
        self._block = b""
        self._at = 0
        self._before = 0  # bytes of the file before the block

    @property
    def position(self) -> int:
        return self._before + self._at

    def damage(self, wrong: str, right: str = "") -> InputError:
        """Return the error that says what is *wrong* with the file."""
        return InputError([Fault(file=self.name, wrong=wrong, right=right)])

    def claim(self, size: int, what: str) -> None:
        """Refuse *what* before it is read, where it could not be part of a header."""
        if self.position + size > MAX_HEADER_BYTES:
            raise self.damage(
                f"damaged: {what} of {size:,} bytes at byte {self.position:,}",
                f"a header has at most {MAX_HEADER_BYTES / MIB:g} MiB; download the file again",
            )

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes."""
        if self._at + size > len(self._block):
            self._fill(size)
        start = self._at
        self._at += size
        return self._block[start : self._at]

    def number(self, form: struct.Struct) -> int:
        """Return the next number, stored as *form* says."""
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def skip(self, size: int) -> None:
        """Pass over *size* bytes, which :meth:`claim` has accepted."""
        while self._at + size > len(self._block):
            size -= len(self._block) - self._at
            self._at = len(self._block)
            self._fill(1)
        self._at += size

    def skip_texts(self, count: int) -> None:
        """Pass over *count* texts, each behind its length."""
        while count:
            block, at, last = self._block, self._at, len(self._block) - _U64.size
            while count and at <= last:
                end = at + _U64.size + _U64.unpack_from(block, at)[0]
                if end > len(block):
                    break
                at = end
                count -= 1
            self._at = at
            if count:  # the next one reaches beyond the block
                length = self.number(_U64)
                self.claim(length, "a text")
                self.skip(length)
                count -= 1

    def _fill(self, size: int) -> None:
        """Read until the block holds *size* bytes from here on."""
        self.claim(size, "a value")
        pieces = [self._block[self._at :]]
        held = len(pieces[0])
        while held < size:
            piece = self._file.read(_BLOCK_BYTES)
            if not piece:
                raise self.damage(
                    f"cut off: ends after {self.position + held:,} bytes, inside its header",
                    "download it again, or more of it",
                )
            pieces.append(piece)
            held += len(piece)
        self._before += self._at
        self._at = 0
        self._block = b"".join(pieces)


def _read_opening(source: _Source) -> tuple[int, int]:
    """Return the number of tensors and of keys; refuse what is no GGUF file of today."""
    magic = source.take(len(_MAGIC))
    if magic != _MAGIC:
        right = "git lfs pull fetches the file" if magic == b"vers" else ""
        kind = "a Git LFS pointer" if magic == b"vers" else f"it starts with {magic!r}"
        raise source.damage(f"not a GGUF file: {kind}", right)
    version = source.number(_U32)
    if version % 2**_INT_BITS == 0:
        raise source.damage("a big-endian GGUF file", "convert it to little-endian")
    if version not in VERSIONS:
        known = " and ".join(str(number) for number in VERSIONS)
        raise source.damage(f"GGUF version {version} is not known", f"versions {known} are")
    num_tensors, num_keys = source.number(_U64), source.number(_U64)
    for count, most, what in (
        (num_tensors, MAX_TENSORS, "tensors"),
        (num_keys, MAX_KEYS, "keys"),
    ):
        if count > most:
            raise source.damage(f"damaged: {count:,} {what}", f"at most {most:,} can be")
    return num_tensors, num_keys


def _read_metadata(source: _Source, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = _read_name(source, "key")
        if key in metadata:
            raise source.damage(f"damaged: the key {key} stands twice")
        metadata[key] = _read_value(source, source.number(_U32), key)
    return metadata


def _read_name(source: _Source, what: str) -> str:
    length = source.number(_U64)
    if not 0 < length <= MAX_NAME_BYTES:
        raise source.damage(f"damaged: a {what} of {length:,} bytes", f"1 to {MAX_NAME_BYTES} are")
    text = source.take(length)
    if not text.isascii() or not text.decode("ascii").isprintable():
        raise source.damage(f"damaged: a {what} that is no plain text: {text[:20]!r}")
    return text.decode("ascii")


def _read_value(source: _Source, type_id: int, key: str) -> Value:
    if type_id in _SCALARS:
        form = _SCALARS[type_id]
        value: int | float | bool = form.unpack(source.take(form.size))[0]
        return value
    if type_id == _TEXT:
        return _read_text(source, key)
    if type_id == _LIST:
        return _read_list(source, key, depth=1)
    raise source.damage(f"damaged: {key}: value type {type_id} is not known")


def _read_text(source: _Source, key: str) -> str | Unread:
    length = source.number(_U64)
    source.claim(length, f"{key}: a text")
    if length > MAX_KEPT_BYTES:
        source.skip(length)
        return Unread(length)
    return source.take(length).decode("utf-8", errors="replace")


def _read_list(source: _Source, key: str, depth: int) -> list[int | float | bool] | Unread:
    item_type, length = source.number(_U32), source.number(_U64)
    if item_type in _SCALARS:
        form = _SCALARS[item_type]
        size = form.size * length
        source.claim(size, f"{key}: a list")
        if size <= MAX_KEPT_BYTES and source.num_kept + length <= MAX_KEPT_NUMBERS:
            source.num_kept += length
            return list(struct.unpack(f"<{length}{form.format[1:]}", source.take(size)))
        source.skip(size)
    elif item_type == _TEXT:
        source.claim(_U64.size * length, f"{key}: a list")
        source.num_texts += length
        if source.num_texts > MAX_TEXTS:
            raise source.damage(f"damaged: {key}: more than {MAX_TEXTS:,} texts in all")
        source.skip_texts(length)
    elif item_type == _LIST:
        _skip_lists(source, key, length, depth + 1)
    else:
        raise source.damage(f"damaged: {key}: value type {item_type} is not known")
    return Unread(length)


def _skip_lists(source: _Source, key: str, count: int, depth: int) -> None:
    if depth > MAX_DEPTH or count > MAX_KEYS:
        raise source.damage(f"damaged: {key}: {count:,} lists, {depth} deep")
    for _ in range(count):
        source.num_texts += 2**6  # lists are slower to pass over than texts
        if source.num_texts > MAX_TEXTS:
            raise source.damage(f"damaged: {key}: too many lists in lists")
        _read_list(source, key, depth)


def _read_tensors(source: _Source, count: int) -> tuple[TensorRecord, ...]:
    tensors: dict[str, TensorRecord] = {}
    for _ in range(count):
        name = _read_name(source, "tensor name")
        if name in tensors:
            raise source.damage(f"damaged: the tensor {name} stands twice")
        shape = _read_shape(source, name)
        type_id = source.number(_U32)
        source.take(_U64.size)  # where its data are
        tensors[name] = TensorRecord(name=name, shape=shape, type_id=type_id)
    return tuple(tensors.values())


def _read_shape(source: _Source, name: str) -> tuple[int, ...]:
    num_dimensions = source.number(_U32)
    if num_dimensions > MAX_DIMENSIONS:
        raise source.damage(f"damaged: tensor {name} has {num_dimensions:,} dimensions")
    shape = tuple(source.number(_U64) for _ in range(num_dimensions))
    elements = 1
    for size in shape:
        elements *= size
    if not 0 < elements <= MAX_ELEMENTS:
        sizes = " x ".join(f"{size:,}" for size in shape)
        raise source.damage(f"damaged: tensor {name} of {sizes} elements")
    return shape
