"""A sweep file: every combination and every row, and what is wrong with each of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import InputError, Objective, Problem
from e2llm_opt.loading import sweep_file
from e2llm_opt.loading.sweep_file import AXES, ROW_KEYS, SweepFile
from e2llm_opt.loading.yaml_file import read_document
from tests.loading.conftest import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.loading.document import Document, Faults

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], SweepFile]:
    """Read a text as sweeps/s.yaml, with good.yaml beside that folder."""
    folder = tmp_path / "sweeps"
    folder.mkdir()
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> SweepFile:
        (folder / "s.yaml").write_text(text, encoding="utf-8")
        return SweepFile("sweeps/s.yaml")

    return read


def refused(sweep: Callable[[str], SweepFile], text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        sweep(text)
    return [str(fault) for fault in caught.value.faults]


def problems(file: SweepFile) -> list[Problem | str]:
    """Return each scenario's problem, or why it has none."""
    found: list[Problem | str] = []
    for scenario in file.scenarios:
        try:
            found.append(file.problem(scenario))
        except InputError as error:
            found.append(str(error))
    return found


def test_a_grid_is_every_combination_the_last_list_fastest(
    sweep: Callable[[str], SweepFile],
) -> None:
    file = sweep(
        "seeds: [0, 1]\n"
        "inventories: [../good.yaml]\n"
        "rates_per_s: [0.1, 0.2]\n"
        "models: [llama-3.2-1b, llama-3.2-3b]\n"
    )
    asked = [(s.said("model"), s.said("rate_per_s"), s.said("seed")) for s in file.scenarios]
    expected = [
        (f"llama-3.2-{size}", rate, seed)
        for size in ("1b", "3b")
        for rate in (0.1, 0.2)
        for seed in (0, 1)
    ]
    assert asked == expected
    for scenario in file.scenarios:
        problem = file.problem(scenario)
        assert problem.facts.name == scenario.said("model")
        assert problem.workload.rate_per_s == scenario.said("rate_per_s")


def test_every_axis_reaches_the_problem(sweep: Callable[[str], SweepFile]) -> None:
    text = """\
inventories: [{name: less, file: ../good.yaml, constraints: {exclude: [pi-1]}}]
models: [llama-3.2-3b]
weights: [q4_k_m]
kv_caches: [q8_0]
runtimes: [{name: vllm, hop_overhead_ms: 3}]
workloads: [{name: chat, prompt_tokens: 77, output_tokens: {mean: 33, cv: 0}}]
rates_per_s: [0.25]
objectives: [cost]
constraints: [{name: one, replicas: 1}]
planners: [hexgen]
seeds: [7]
"""
    file = sweep(text)
    (scenario,) = file.scenarios
    problem = file.problem(scenario)
    assert set(scenario.asked) == set(AXES.values())
    assert problem.facts.name == "llama-3.2-3b"
    assert (problem.weights, problem.kv_cache) == ("q4_k_m", "q8_0")
    assert problem.runtime.name == "vllm"
    assert problem.runtime.hop_overhead_s == pytest.approx(0.003)
    assert (problem.workload.prompt.mean, problem.workload.output.mean) == (77, 33)
    assert problem.workload.output.cv == 0
    assert problem.workload.rate_per_s == 0.25
    assert problem.objective is Objective.COST
    assert problem.constraints.replicas == 1
    assert problem.constraints.exclude == ("pi-1",)
    assert [scenario.label(key) for key in ("inventory", "workload", "constraints")] == [
        *("less", "chat", "one")
    ]


def test_rows_stand_behind_the_grid_and_for_themselves(sweep: Callable[[str], SweepFile]) -> None:
    file = sweep(
        "inventories: [../good.yaml]\n"
        "rates_per_s: [0.5]\n"
        "rows:\n"
        "  - {name: alone, inventory: ../good.yaml, weights: q4_k_m}\n"
    )
    grid, row = file.scenarios
    assert (grid.name, row.name) == ("", "alone")
    assert file.problem(grid).workload.rate_per_s == 0.5
    assert file.problem(row).workload.rate_per_s == 0
    assert file.problem(row).weights == "q4_k_m"


def test_an_inventory_may_stand_in_the_sweep_itself(sweep: Callable[[str], SweepFile]) -> None:
    text = "inventories:\n  - name: inline\n" + "".join(
        f"    {line}\n" for line in GOOD.splitlines()
    )
    file = sweep(text)
    assert file.problem(file.scenarios[0]) == Problem.load("good.yaml")


def test_paths_are_beside_the_file_that_names_them(
    sweep: Callable[[str], SweepFile], tmp_path: Path
) -> None:
    (tmp_path / "sweeps" / "trace.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens\n0,10,20\n1,10,20\n", encoding="utf-8"
    )
    file = sweep("inventories: [../good.yaml]\nworkloads: [{trace: trace.csv}]\n")
    assert file.problem(file.scenarios[0]).workload.prompt.mean == 10


def test_an_inventory_is_read_once(
    sweep: Callable[[str], SweepFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def read(path: str) -> tuple[Document, Faults]:
        reads.append(str(path))
        return read_document(path)

    monkeypatch.setattr(sweep_file, "read_document", read)
    file = sweep("inventories: [../good.yaml]\nseeds: [0, 1, 2]\n")
    assert all(isinstance(problem, Problem) for problem in problems(file))
    assert reads == ["sweeps/s.yaml", "sweeps/../good.yaml"]


def test_a_wrong_value_of_a_list_is_a_fault_of_the_rows_that_have_it(
    sweep: Callable[[str], SweepFile],
) -> None:
    file = sweep(
        "inventories: [../good.yaml]\n"
        "workloads:\n"
        "  - {prompt_tokens: 5, output_tokens: 5}\n"
        "  - {prompt_tokens: -5, output_tokens: 5}\n"
        "  - {prompt_tokens: 8, prompt_tokens: 6, output_tokens: 5}\n"
        "seeds: [0, -1]\n"
    )
    found = problems(file)
    assert isinstance(found[0], Problem)
    assert "sweeps/s.yaml:6: seeds[1]: must be at least 0, got -1" in str(found[1])
    assert (
        str(found[2])
        == "sweeps/s.yaml:4: workload.prompt_tokens: must be at least 1, got -5; the unit is tokens"
    )
    assert str(found[4]).startswith("sweeps/s.yaml:5: workloads[2].prompt_tokens: the key is given")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{inventory: nowhere.yaml}", "sweeps/nowhere.yaml: cannot be read: no such file"),
        ("{weights: f16}", "sweeps/s.yaml:2: rows[0].inventory: missing; the path of an inv"),
        ("{inventory: 7}", "sweeps/s.yaml:2: inventory: must be a path or a mapping, got 7"),
        (
            "{inventory: {file: 7}}",
            "sweeps/s.yaml:2: inventory: must be a path or a mapping, got 7",
        ),
        ("{inventory: {}}", "sweeps/s.yaml: devices: missing"),
        ("{inventory: ../good.yaml, seed: x}", "sweeps/s.yaml:2: rows[0].seed: must be a number"),
        ("{inventory: ../good.yaml, seed: }", "sweeps/s.yaml:2: rows[0].seed: has no value"),
        ("{inventory: ../good.yaml, name: 5}", "sweeps/s.yaml:2: rows[0].name: must be text"),
        ("{inventory: ../good.yaml, workload: 5}", "sweeps/s.yaml:2: workload: must be a mapping"),
        ("{inventory: ../good.yaml, weight: f16}", "rows[0].weight: unknown key; did you mean wei"),
        ("{inventory: ../good.yaml, objective: spead}", "sweeps/s.yaml:2: objective: must be wait"),
        ("{inventory: {file: ../good.yaml, modle: x}}", "sweeps/s.yaml:2: modle: unknown key"),
        ("[1]", "sweeps/s.yaml:2: rows[0]: must be a mapping of keys to values, got a list"),
        ("!x {a: 1}", "sweeps/s.yaml:2: rows[0]: YAML tags are not allowed"),
    ],
)
def test_a_bad_row_has_its_reason_and_the_next_is_fine(
    sweep: Callable[[str], SweepFile], row: str, reason: str
) -> None:
    bad, good = problems(sweep(f"rows:\n  - {row}\n  - {{inventory: ../good.yaml}}\n"))
    assert reason in str(bad)
    assert good == Problem.load("good.yaml")


def test_a_row_that_says_the_same_again_is_refused(sweep: Callable[[str], SweepFile]) -> None:
    row = "  - {inventory: ../good.yaml}\n"
    first, second = problems(sweep("rows:\n" + 2 * row))
    assert isinstance(first, Problem)
    assert str(second).startswith("sweeps/s.yaml:3: rows[1]: says the same as rows[0]")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("inventory: [x]\n", "s.yaml:1: inventory: unknown key; did you mean inventories?"),
        ("inventories: x\n", "s.yaml:1: inventories: must be a list with at least one value, got"),
        ("inventories: []\n", "s.yaml:1: inventories: must be a list with at least one value"),
        ("rows: []\n", "s.yaml:1: rows: must be a list with at least one value"),
        ("seeds: [1]\n", "s.yaml: inventories: missing; list the inventory files of the grid"),
        ("inventories: [a, b, a]\n", "inventories[2] is the same as inventories[0]; keep one"),
        ("rows: [{}]\nrows: [{}]\n", "s.yaml:2: rows: the key is given twice"),
        ("- a\n", "s.yaml:1: the file is not a mapping"),
        ("rows: [\n", "s.yaml:1: not valid YAML"),
    ],
)
def test_a_file_that_is_no_sweep_is_refused(
    sweep: Callable[[str], SweepFile], text: str, fault: str
) -> None:
    assert any(fault in line for line in refused(sweep, text))


def test_a_grid_that_explodes_is_refused(sweep: Callable[[str], SweepFile]) -> None:
    many = ", ".join(map(str, range(400)))
    text = f"inventories: [../good.yaml]\nseeds: [{many}]\nrates_per_s: [{many}]\n"
    assert any(
        "the grid has 160000 rows, more than 100000" in line for line in refused(sweep, text)
    )


def test_the_examples_load() -> None:
    files = sorted((ROOT / "examples" / "sweeps").glob("*.yaml"))
    assert files
    for path in files:
        assert all(isinstance(problem, Problem) for problem in problems(SweepFile(path)))


def test_row_keys_are_the_axes_one_by_one() -> None:
    assert ("name", *AXES.values()) == ROW_KEYS
