"""Whatever the text, loading gives a Problem or an InputError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.load import load_problem, problem_from_mapping
from e2llm_opt.problem import Problem

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.yaml"))]
SMALL = [text for text in TEXTS if "count: 8" not in text]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["all", "tower", "pi", "no", "q4_k_m", "phi-4", "1e999", "x.json", "~a/b"])
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
pieces = st.text(max_size=4) | st.sampled_from(
    ["&a ", "*a", "<<: *a", "!!x ", "- ", ": ", "{", "}", "[", "]", "\n", "'", "|", "%", "? ", "\t"]
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "f.yaml"


def outcome(path: Path, data: bytes) -> None:
    """Load *data*; anything but a Problem or faults with their file fails the test."""
    path.write_bytes(data)
    faults: tuple[Fault, ...] = ()
    problem = None
    try:
        problem = load_problem(path)
    except InputError as error:
        faults = error.faults
    assert isinstance(problem, Problem) != bool(faults)
    assert all(fault.file and fault.wrong for fault in faults)


@given(data=st.binary(max_size=60))
def test_random_bytes_are_refused_clearly(data: bytes, path: Path) -> None:
    outcome(path, data)


@given(text=st.lists(pieces, max_size=25).map("".join))
def test_random_text_is_refused_clearly(text: str, path: Path) -> None:
    outcome(path, text.encode("utf-8", errors="surrogatepass"))


@given(data=st.data())
def test_a_mutated_file_is_loaded_or_refused_clearly(data: st.DataObject, path: Path) -> None:
    text = data.draw(st.sampled_from(SMALL))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 6)))
        text = text[:start] + data.draw(pieces) + text[stop:]
    outcome(path, text.encode("utf-8", errors="surrogatepass"))


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside *value*."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(below for key, item in items for below in paths_of(item, (*path, key)))]


@given(data=st.data())
def test_a_mapping_with_any_value_anywhere_is_loaded_or_refused_clearly(
    data: st.DataObject,
) -> None:
    mapping = yaml.safe_load(data.draw(st.sampled_from(SMALL)))
    *parents, key = data.draw(st.sampled_from([path for path in paths_of(mapping) if path]))
    place = mapping
    for parent in parents:
        place = place[parent]
    place[key] = data.draw(values)
    faults: tuple[Fault, ...] = ()
    problem = None
    try:
        problem = problem_from_mapping(mapping)
    except InputError as error:
        faults = error.faults
    assert isinstance(problem, Problem) != bool(faults)
