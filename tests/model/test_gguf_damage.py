"""A damaged or hostile ``.gguf`` is an error that names the file: no crash, hang or allocation."""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gguf import GGUFEndian, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import InputError
from e2llm_opt.model.build import build_model
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.model.gguf_file import load_gguf
from e2llm_opt.model.gguf_header import MAX_HEADER_BYTES, Unread, read_header
from tests.model.gguf_samples import dense, key, mixture, opening, tensor, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

U32, TEXT, LIST = 4, 8, 9
HUGE = 2**60
TOKENS = 150_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture(scope="module")
def good(folder: Path) -> bytes:
    sample = dense()
    keys = {**sample.keys, "block_count": 1, "attention.head_count_kv": [2]}
    other_layers = [name for name in sample.tensors if name.startswith(("blk.1.", "blk.2."))]
    small = replace(sample.without(*other_layers), keys=keys)
    return small.write(folder / "good.gguf").read_bytes()


def outcome(path: Path) -> ModelFacts | str:
    """Return the facts, or what is wrong with the file; nothing else may happen."""
    try:
        facts = load_gguf(path)
        build_model(facts, weights=facts.weights)
    except InputError as caught:
        error = caught
    else:
        return facts
    assert all(fault.file == str(path) for fault in error.faults)
    return str(error).replace(f"{path}: ", "")


def tried(path: Path, content: bytes) -> ModelFacts | str:
    path.write_bytes(content)
    return outcome(path)


def test_a_header_cut_off_anywhere_is_an_error(folder: Path, good: bytes) -> None:
    path = folder / "cut.gguf"
    assert isinstance(tried(path, good), ModelFacts)
    for length in reversed(range(len(good))):
        os.truncate(path, length)
        said = outcome(path)
        assert isinstance(said, str)
        assert said.startswith(f"cut off: ends after {length:,} bytes, inside its header")


@pytest.mark.parametrize("change", [0xFF, 0x80, 0x01])
def test_a_wrong_byte_anywhere_is_an_error_or_another_model(
    change: int, folder: Path, good: bytes
) -> None:
    path = folder / "flipped.gguf"
    path.write_bytes(good)
    outcomes = set()
    with path.open("r+b", buffering=0) as file:
        for position, byte in enumerate(good):
            os.pwrite(file.fileno(), bytes([byte ^ change]), position)
            outcomes.add(type(outcome(path)))
            os.pwrite(file.fileno(), bytes([byte]), position)
    assert outcomes == {str, ModelFacts}


def test_many_wrong_bytes_are_no_worse(folder: Path) -> None:
    good = mixture().write(folder / "mixture.gguf").read_bytes()
    dice = random.Random(1)  # noqa: S311 - no secret
    outcomes = set()
    for _ in range(1000):
        content = bytearray(good)
        for _ in range(dice.randint(1, 20)):
            content[dice.randrange(len(content))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        outcomes.add(type(tried(folder / "noisy.gguf", bytes(content))))
    assert str in outcomes


@given(st.binary(max_size=400))
def test_any_bytes_are_an_error(folder: Path, content: bytes) -> None:
    said = tried(folder / "any.gguf", b"GGUF" + struct.pack("<I", 3) + content)
    assert isinstance(said, str)


@given(st.integers(8, 300), st.sampled_from([HUGE, 2**64 - 1, 2**63, 2**32, 2**31, 0]))
def test_an_impossible_number_anywhere_is_no_worse(
    folder: Path, good: bytes, position: int, number: int
) -> None:
    """Counts and lengths have eight bytes."""
    content = good[:position] + struct.pack("<Q", number) + good[position + 8 :]
    tried(folder / "number.gguf", content)


BAD = {
    "empty": (b"", "cut off: ends after 0 bytes"),
    "text": (b"hello, world", "not a GGUF file: it starts with b'hell'"),
    "pointer": (b"version https://git-lfs", "not a GGUF file: a Git LFS pointer; git lfs pull"),
    "old": (b"GGUF\x01\x00\x00\x00", "GGUF version 1 is not known; versions 2 and 3 are"),
    "new": (b"GGUF\x04\x00\x00\x00", "GGUF version 4 is not known"),
    "big-endian": (b"GGUF\x00\x00\x00\x03", "a big-endian GGUF file; convert it"),
    "tensors": (opening(HUGE, 0), "damaged: 1,152,921,504,606,846,976 tensors; at most 262,144"),
    "keys": (opening(0, HUGE), "damaged: 1,152,921,504,606,846,976 keys; at most 65,536"),
    "long key": (
        opening(0, 1) + struct.pack("<Q", HUGE),
        "damaged: a key of 1,152,921,504,606,846,976 bytes",
    ),
    "empty key": (opening(0, 1) + text(""), "damaged: a key of 0 bytes"),
    "binary key": (opening(0, 1) + text("a\x1b[0m"), "damaged: a key that is no plain text"),
    "long text": (
        opening(0, 1) + key("k", TEXT, struct.pack("<Q", HUGE)),
        "damaged: k: a text of 1,152,921,504,606,846,976 bytes",
    ),
    "long list": (
        opening(0, 1) + key("k", LIST, struct.pack("<IQ", U32, HUGE)),
        "damaged: k: a list of 4,611,686,018,427,387,904 bytes",
    ),
    "long list of texts": (
        opening(0, 1) + key("k", LIST, struct.pack("<IQ", TEXT, HUGE)),
        "damaged: k: a list of 9,223,372,036,854,775,808 bytes",
    ),
    "long text in a list": (
        opening(0, 1) + key("k", LIST, struct.pack("<IQQ", TEXT, 1, HUGE)),
        "damaged: a text of 1,152,921,504,606,846,976 bytes",
    ),
    "long list of lists": (
        opening(0, 1) + key("k", LIST, struct.pack("<IQ", LIST, HUGE)),
        "damaged: k: 1,152,921,504,606,846,976 lists, 2 deep",
    ),
    "deep lists": (
        opening(0, 1) + key("k", LIST, struct.pack("<IQ", LIST, 1) * 100_000),
        "damaged: k: 1 lists, 5 deep",
    ),
    "value type": (opening(0, 1) + key("k", 77, b""), "damaged: k: value type 77 is not known"),
    "item type": (
        opening(0, 1) + key("k", LIST, struct.pack("<IQ", 13, 1)),
        "damaged: k: value type 13 is not known",
    ),
    "key twice": (
        opening(0, 2) + 2 * key("k", U32, bytes(4)),
        "damaged: the key k stands twice",
    ),
    "tensor twice": (opening(2, 0) + 2 * tensor("t", (4,)), "damaged: the tensor t stands twice"),
    "many dimensions": (
        opening(1, 0) + text("t") + struct.pack("<I", 1000),
        "damaged: tensor t has 1,000 dimensions",
    ),
    "huge dimensions": (
        opening(1, 0) + tensor("t", (2**40, 2**40, 2**40)),
        "damaged: tensor t of 1,099,511,627,776 x 1,099,511,627,776 x",
    ),
    "no dimension": (opening(1, 0) + tensor("t", (0, 5)), "damaged: tensor t of 0 x 5 elements"),
    "no architecture": (opening(1, 0) + tensor("t", (4,)), "general.architecture: missing"),
    "strange architecture": (
        opening(0, 1) + key("general.architecture", TEXT, text("../../x")),
        "general.architecture: is no name; such as llama",
    ),
    "unread architecture": (
        opening(0, 1) + key("general.architecture", TEXT, text("x" * 100_000)),
        "general.architecture: is no name",
    ),
    "nothing": (opening(0, 1) + key("general.architecture", TEXT, text("llama")), "llama.block_co"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    said = tried(tmp_path / "bad.gguf", content)
    assert isinstance(said, str)
    assert message in said
    assert said.isprintable() or "\n" in said


def test_a_storage_type_newer_than_the_package_is_named(folder: Path, good: bytes) -> None:
    at = good.index(b"output.weight") + len(b"output.weight") + 4 + 2 * 8
    content = good[:at] + struct.pack("<I", 200) + good[at + 4 :]
    said = tried(folder / "type.gguf", content)
    assert str(said).startswith("output.weight: storage type 200 is not known; damaged, or newer")


def test_a_row_that_is_no_multiple_of_its_blocks_is_named(folder: Path, good: bytes) -> None:
    at = good.index(b"output.weight") + len(b"output.weight") + 4
    content = good[:at] + struct.pack("<Q", 500) + good[at + 8 :]
    said = tried(folder / "row.gguf", content)
    assert str(said).startswith("output.weight: damaged: a row of 500 values in Q6_K blocks of 256")


def test_a_big_endian_file_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    writer = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(InputError, match="a big-endian GGUF file"):
        load_gguf(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d.gguf").mkdir()
    for name, reason in (("d.gguf", "is a directory"), ("none.gguf", "no such file or directory")):
        with pytest.raises(InputError, match=f"{name}: cannot be read: {reason}"):
            load_gguf(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = dense().write(tmp_path / "m.gguf")
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read: permission denied"):
        load_gguf(path)


# --- time and memory


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [name for name in BAD if "long" in name or "huge" in name])
def test_a_claim_allocates_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(BAD[name][0])

    def refuse() -> None:
        with pytest.raises(InputError):
            read_header(path)

    refuse()  # the messages' own imports
    assert peak_bytes(refuse) < 2**19


def test_a_claim_that_the_file_does_not_keep_allocates_no_more_than_the_file(
    tmp_path: Path,
) -> None:
    """Just below the limit the file is read, in blocks, until it ends."""
    path = tmp_path / "cut.gguf"
    claim = struct.pack("<Q", MAX_HEADER_BYTES - 1000)
    path.write_bytes(opening(0, 1) + key("k", TEXT, claim) + bytes(1000))

    def refuse() -> None:
        with pytest.raises(InputError, match="cut off"):
            read_header(path)

    assert peak_bytes(refuse) < 2**20


def vocabulary(path: Path) -> Path:
    """Write a header with 150,000 tokens, as many merges, scores and types."""
    words = b"".join(text(f"token-{number}") for number in range(TOKENS))
    listed = struct.pack("<IQ", TEXT, TOKENS)
    keys = [
        key("tokenizer.ggml.tokens", LIST, listed + words),
        key("tokenizer.ggml.merges", LIST, listed + words),
        key("tokenizer.ggml.scores", LIST, struct.pack("<IQ", 6, TOKENS) + bytes(4 * TOKENS)),
        key("tokenizer.ggml.token_type", LIST, struct.pack("<IQ", 5, TOKENS) + bytes(4 * TOKENS)),
        key("tokenizer.chat_template", TEXT, text("x" * 200_000)),
    ]
    path.write_bytes(opening(0, len(keys)) + b"".join(keys))
    return path


def test_a_large_vocabulary_is_passed_over_quickly(tmp_path: Path) -> None:
    path = vocabulary(tmp_path / "m.gguf")
    started = time.perf_counter()
    header = read_header(path)
    assert time.perf_counter() - started < 1.5
    assert header.metadata["tokenizer.ggml.tokens"] == Unread(TOKENS)
    assert header.metadata["tokenizer.chat_template"] == Unread(200_000)


def test_a_large_vocabulary_is_not_kept_in_memory(tmp_path: Path) -> None:
    path = vocabulary(tmp_path / "m.gguf")
    assert peak_bytes(lambda: read_header(path)) < 2**20 < path.stat().st_size


def test_many_small_lists_take_no_more_memory_than_the_file(tmp_path: Path) -> None:
    """A byte of a list becomes an object."""
    listed = struct.pack("<IQ", 0, 2**16) + bytes(range(256)) * 2**8
    path = tmp_path / "m.gguf"
    path.write_bytes(opening(0, 300) + b"".join(key(f"k{n}", LIST, listed) for n in range(300)))
    assert peak_bytes(lambda: read_header(path)) < path.stat().st_size


def test_more_texts_than_any_vocabulary_has_are_refused(tmp_path: Path) -> None:
    """Empty texts are the cheapest way to keep a reader busy."""
    listed = struct.pack("<IQ", TEXT, 2**22) + bytes(8 * 2**22)
    path = tmp_path / "m.gguf"
    path.write_bytes(opening(0, 2) + key("a", LIST, listed) + key("b", LIST, listed))
    started = time.perf_counter()
    with pytest.raises(InputError, match="b: more than 4,194,304 texts in all"):
        read_header(path)
    assert time.perf_counter() - started < 10


def test_nested_lists_are_passed_over(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", U32, 2) + bytes(8)
    nested = key("k", LIST, struct.pack("<IQ", LIST, 2) + 2 * inner)
    path = tmp_path / "m.gguf"
    path.write_bytes(opening(0, 2) + nested + key("after", U32, struct.pack("<I", 7)))
    assert read_header(path).metadata == {"k": Unread(2), "after": 7}


def test_a_value_that_spans_two_blocks_is_read_whole(tmp_path: Path) -> None:
    """Blocks are 64 KiB: lists of texts and single values cross their ends at every offset."""
    path = tmp_path / "m.gguf"
    for shift in range(90):
        filler = key("filler", TEXT, text("x" * (2**16 - 130 + shift)))
        words = key("words", LIST, struct.pack("<IQ", TEXT, 5) + 5 * text("four"))
        path.write_bytes(opening(0, 3) + filler + words + key("k", U32, struct.pack("<I", shift)))
        metadata = read_header(path).metadata
        assert (metadata["words"], metadata["k"]) == (Unread(5), shift)
