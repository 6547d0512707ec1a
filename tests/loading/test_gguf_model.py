"""``model: file.gguf``: found beside the inventory, with the weights that the file has."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import Problem
from e2llm_opt.errors import InputError
from e2llm_opt.model.gguf_file import load_gguf
from tests.model.gguf_samples import dense, tied

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bare(good: str) -> str:
    """Return the text of an inventory without model and weights."""
    return good.replace("model: llama-3.2-1b\n", "").replace("weights: q8_0\n", "")


def test_the_path_is_relative_to_the_inventory(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab" / "models").mkdir(parents=True)
    dense().write(tmp_path / "lab" / "models" / "m.gguf")
    path = tmp_path / "lab" / "lab.yaml"
    path.write_text(f"{bare}model: models/m.gguf\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    problem = Problem.load("lab/lab.yaml")
    assert (problem.model.name, problem.weights) == ("Small Llama", "q4_k_m")


def test_on_the_command_line_it_is_relative_to_the_working_directory(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    tied().write(tmp_path / "here.GGUF")
    path = tmp_path / "lab" / "lab.yaml"
    path.write_text(f"{bare}model: llama-3.1-8b\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    problem = Problem.load(path, model="here.GGUF")
    assert (problem.model.num_layers, problem.weights) == (7, "f16")


@pytest.mark.parametrize("weights", ["q4_k_m", "Q4_K_M", "gguf"])
def test_the_same_weights_may_be_stated(
    weights: str, bare: str, write: Callable[[str], str], tmp_path: Path
) -> None:
    dense().write(tmp_path / "m.gguf")
    problem = Problem.load(write(f"{bare}model: m.gguf\nweights: {weights}\n"))
    assert problem.weights == "q4_k_m"


@pytest.mark.parametrize("weights", ["q8_0", "f16", "nonsense"])
def test_other_weights_than_the_files_are_refused(
    weights: str, bare: str, said: Callable[[str], list[str]], tmp_path: Path
) -> None:
    dense().write(tmp_path / "m.gguf")
    lines = said(f"{bare}model: m.gguf\nweights: {weights}\n")
    assert lines == [
        (
            f"lab.yaml:8: weights: the .gguf file decides, and it is q4_k_m, not '{weights}'; "
            "leave weights out, or give q4_k_m"
        )
    ]


def test_gguf_is_no_format_of_another_model(good: str, said: Callable[[str], list[str]]) -> None:
    (line,) = said(good.replace("q8_0", "gguf"))
    assert line.startswith("lab.yaml:7: weights: unknown")


def test_a_broken_file_is_one_line_whatever_the_weights(
    bare: str, said: Callable[[str], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(dense().write(tmp_path / "whole.gguf").read_bytes()[:99])
    lines = said(f"{bare}model: m.gguf\nweights: gguf\n")
    assert lines == [
        (
            "lab.yaml:7: model: m.gguf: cut off: ends after 99 bytes, inside its header; "
            "download it again, or more of it"
        )
    ]


def test_a_fault_of_the_metadata_names_the_key(
    bare: str, said: Callable[[str], list[str]], tmp_path: Path
) -> None:
    dense().with_keys(block_count=None).write(tmp_path / "m.gguf")
    assert said(f"{bare}model: m.gguf\n") == [
        (
            "lab.yaml:7: model: m.gguf: llama.block_count: missing; "
            "the file is damaged, or no language model"
        )
    ]


def test_a_problem_in_python_needs_no_weights(bare: str, write: Callable[[str], str]) -> None:
    problem = Problem.load(write(f"{bare}model: llama-3.2-1b\n"))
    assert problem.weights == "f16"
    facts = load_gguf(dense().write(Path("m.gguf")))
    assert replace(problem, facts=facts, weights="").weights == "q4_k_m"
    with pytest.raises(InputError, match=r"^weights: the file of the model decides"):
        replace(problem, facts=facts)


def test_the_package_gguf_is_imported_only_for_such_a_file(
    good: str, bare: str, write: Callable[[str], str], tmp_path: Path
) -> None:
    dense().write(tmp_path / "m.gguf")
    program = (
        "import sys\n"
        "from e2llm_opt import Problem\n"
        "Problem.load('lab.yaml')\n"
        "print('gguf' in sys.modules)\n"
    )
    root = str(Path(__file__).parents[2])
    for text, is_imported in ((good, "False"), (f"{bare}model: m.gguf\n", "True")):
        write(text)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == is_imported
