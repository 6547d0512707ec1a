"""YAML as people write it: words stay words, and nothing can blow up."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.loading.yaml_file import MAX_DEPTH, parse, resolved


def refusal(text: str) -> str:
    """Return everything that is wrong with *text*."""

    def read() -> None:
        _, faults = parse(text, file="f.yaml")
        faults.raise_if_any()

    with pytest.raises(InputError) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("010", 10),
        ("1e9", 1e9),
        ("1.5E-3", 0.0015),
        (".5", 0.5),
        ("0x10", 16),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("-.inf", -math.inf),
        ("2026-01-02", "2026-01-02"),
        ("1.2.3", "1.2.3"),
        ("9" * 5000, math.inf),
    ],
)
def test_an_unquoted_word_means_what_it_looks_like(word: str, value: Any) -> None:
    assert resolved(word) == value
    assert type(resolved(word)) is type(value)


def test_a_quoted_word_is_text() -> None:
    document, _ = parse("a: '12'\nb: \"true\"\nc: |\n  5\n")
    assert document.value == {"a": "12", "b": "true", "c": "5\n"}


def test_every_key_path_knows_its_line() -> None:
    document, _ = parse("a:\n  b: 1\n  c:\n    - x\n    -\n      d: 2\n", file="f.yaml")
    lines = {path: place.line for path, place in document.places.items()}
    assert lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
    }
    assert document.place(("a", "c", 1, "missing", 4)).line == 6
    assert document.place(("nowhere",)).line == 0


def test_a_merge_key_fills_in_and_never_overrides() -> None:
    document, faults = parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4}], x: 0}\n")
    faults.raise_if_any()
    assert document.value["b"] == {"x": 1, "y": 3}
    assert document.value["c"] == {"x": 0, "y": 2, "z": 4}


def test_an_aliased_fault_is_placed_where_it_is_written() -> None:
    document, _ = parse("a: &a\n  x: 1\nb: *a\n")
    assert document.places["b", "x"].line == 2
    assert document.places["b",].line == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: the file is empty; list devices, a model and a workload"),
        ("# nothing\n", "f.yaml: the file is empty; list devices, a model and a workload"),
        ("---\n", "f.yaml: the file is empty; list devices, a model and a workload"),
        (
            "\n- a\n",
            "f.yaml:2: the file is not a mapping; start with 'devices:' and a list of them",
        ),
        ("text", "f.yaml:1: the file is not a mapping; start with 'devices:' and a list of them"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document starts here; keep one"),
        ("? [a]\n: 1\n", "f.yaml:1: a key must be a word; write key: value"),
        (
            "a: 1\nb:\n  c: 1\n  c: 2\n",
            "f.yaml:4: b.c: the key is given twice; it is on line 3 already, keep one of them",
        ),
        (
            "a: 1\nb: !!python/object:os.system x\n",
            "f.yaml:2: b: YAML tags are not allowed, got !!python/object:os.system; remove the tag",
        ),
        (
            "b: !mine {c: 1}\n",
            "f.yaml:1: b: YAML tags are not allowed, got !mine; remove the tag",
        ),
        (
            "!!map {c: 1}\n",
            "f.yaml:1: YAML tags are not allowed, got !!map; remove the tag",
        ),
        ("a: *b\n", "f.yaml:1: a: the alias *b is defined nowhere above; write it out"),
        ("a: &b [1, *b]\n", "f.yaml:1: a[1]: the alias *b contains itself; write it out"),
        ("a:\n  <<: 5\n", "f.yaml:1: a: << must name a mapping; use <<: *anchor"),
        (
            "a: [1,\nb: 2\n",
            (
                "f.yaml:2: not valid YAML: while parsing a flow sequence, did not find expected "
                "',' or ']'"
            ),
        ),
        ("a: b: c\n", "f.yaml:1: not valid YAML: mapping values are not allowed in this context"),
        ("a:\n\t- b\n", "f.yaml:2: not valid YAML: while scanning for the next token, "),
        ("a: 1\nb: \x01\n", "f.yaml:2: not valid YAML: control characters are not allowed"),
        ("a: \ud800\n", "f.yaml: not valid text: a lone surrogate"),
        ("a: " + "[" * 90, f"f.yaml:1: nested more than {MAX_DEPTH} deep"),
        ("[" * 100_000, "f.yaml:1: not valid YAML: while increasing flow level, exceeded"),
    ],
)
def test_what_is_not_a_plain_mapping_is_refused_with_its_line(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_an_anchor_bomb_is_refused() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert "values, aliases followed" in refusal("\n".join(lines))


def test_nesting_by_aliases_is_refused() -> None:
    lines = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2000)]
    assert f"nested more than {MAX_DEPTH} deep, aliases followed" in refusal("\n".join(lines))


def test_several_faults_come_at_once_in_the_order_of_lines() -> None:
    text = "a: 1\nb: !x 1\nc: *y\na: 2\n"
    lines = refusal(text).splitlines()
    assert [re.match(r"f.yaml:(\d)", line)[1] for line in lines] == ["2", "3", "4"]  # type: ignore[index]
