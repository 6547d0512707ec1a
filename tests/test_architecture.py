"""The boundaries of the design, kept by force; each failure says what to do."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "e2llm_opt"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

ALLOWED = {
    "numba": ("*/kernel.py",),
    "pymoo": ("search/evolve.py", "search/*/evolve.py"),
    "gguf": ("model/gguf_file.py",),
    "pydantic": ("loading/*.py", "plan/json_file.py"),
    "pydantic_core": ("loading/*.py", "plan/json_file.py"),
    "yaml": ("loading/*.py", "export/yaml_text.py"),
    "rich": ("report/*.py", "cli/*.py"),
    "jinja2": ("report/*.py", "cli/*.py"),
    "matplotlib": ("report/*.py", "cli/*.py"),
    "click": ("cli/*.py",),
    "distributed": ("workers/cluster.py",),
    "psutil": ("importers/machine.py",),
    "pyarrow": ("plan/table_file.py",),
}
"""Library: the only modules that may import it, so that it can be replaced there."""

MAX_MODULE_LINES = 400
MAX_KERNEL_LINES = 450  # a kernel is one file, or numba would not see that its cache is stale
MAX_PARAMETERS = 8
P90_FUNCTION_LINES = 30
LONG_FUNCTION_LINES = 60
LONG_FUNCTION_SHARE = 0.02
VAGUE_NAMES = {"utils", "util", "helpers", "common", "core", "base", "manager", "misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / module).read_text(encoding="utf-8"))


def imported(module: str) -> Iterator[str]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def functions(module: str) -> list[Function]:
    return [node for node in ast.walk(tree(module)) if isinstance(node, Function)]


def num_lines(function: Function) -> int:
    """Lines of the signature and the body, the docstring left out."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def num_parameters(function: Function) -> int:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return len([parameter for parameter in named if parameter.arg not in {"self", "cls"}])


def kernels(module: str) -> dict[str, Function]:
    """Functions that numba compiles, by name."""
    return {
        function.name: function
        for function in functions(module)
        if any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)
    }


KERNEL_MODULES = [module for module in MODULES if Path(module).name == "kernel.py"]


def test_imports_only_point_downwards_and_second_opinions_are_independent() -> None:
    """The contracts stand in ``pyproject.toml`` under ``tool.importlinter``."""
    linter = Path(sys.executable).parent / "lint-imports"
    if not linter.exists():
        pytest.skip("import-linter is not installed: pip install -e '.[lint]'")
    done = subprocess.run(
        [linter, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        "move the code to the layer that may know both sides, or pass a value instead of "
        f"importing it\n{done.stdout}{done.stderr}"
    )


@pytest.mark.parametrize("library", ALLOWED)
def test_a_library_is_imported_only_where_it_may_be(library: str) -> None:
    allowed = ALLOWED[library]
    wrong = [
        module
        for module in MODULES
        if any(name.split(".")[0] == library for name in imported(module))
        and not any(Path(module).match(pattern) for pattern in allowed)
    ]
    assert not wrong, f"{wrong} import {library}; move that code to {' or '.join(allowed)}"


def test_the_rules_would_notice_a_stray_import() -> None:
    """The rules name files that exist, so that none of them is empty."""
    assert KERNEL_MODULES
    assert "plan/json_file.py" in MODULES
    assert "pydantic" in set(imported("plan/json_file.py"))
    assert any(kernels(module) for module in KERNEL_MODULES)


@pytest.mark.parametrize("module", KERNEL_MODULES)
def test_a_kernel_calls_only_numpy_and_kernels_of_its_own_file(module: str) -> None:
    own = {function.name for function in functions(module)}
    own |= {node.name for node in ast.walk(tree(module)) if isinstance(node, ast.ClassDef)}
    own |= {"Ladder", "Pool", "Rounds"}  # tuples of arrays, which compile as part of who makes them
    builtins = {"abs", "bool", "float", "int", "len", "max", "min", "range", "round", "tuple"}
    for name, function in kernels(module).items():
        called = {
            node.func.id
            for statement in function.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        strangers = called - own - builtins - {"prange", "enumerate", "zip"}
        assert not strangers, f"{module}: {name} calls {strangers}; kernels are self-contained"


@pytest.mark.parametrize("module", KERNEL_MODULES)
def test_a_kernel_knows_only_arrays_and_scalars(module: str) -> None:
    for name, function in kernels(module).items():
        assert not function.args.defaults, f"{module}: {name} has default arguments; pass them"
        for node in ast.walk(function):
            bad = isinstance(node, (ast.Dict, ast.JoinedStr, ast.DictComp))
            assert not bad, f"{module}: {name} uses a dict or a string; use arrays"


@pytest.mark.parametrize("module", MODULES)
def test_the_first_line_of_a_file_says_its_one_idea(module: str) -> None:
    docstring = ast.get_docstring(tree(module))
    assert docstring, f"{module}: open with a docstring of one line that says its one idea"
    first = docstring.splitlines()[0]
    assert len(first) <= 97, f"{module}: the first line must fit on one line"
    assert first.endswith("."), f"{module}: the first line must be a sentence ending in a period"
    assert len(docstring.splitlines()) == 1 or not docstring.splitlines()[1].strip(), (
        f"{module}: leave an empty line after the first"
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_small_enough_to_read(module: str) -> None:
    lines = len((PACKAGE / module).read_text(encoding="utf-8").splitlines())
    most = MAX_KERNEL_LINES if module.endswith("kernel.py") else MAX_MODULE_LINES
    assert lines <= most, f"{module} has {lines} lines: split it by idea"


@pytest.mark.parametrize("module", MODULES)
def test_a_function_has_few_parameters(module: str) -> None:
    if module.startswith("cli/"):
        pytest.skip("one parameter an option")
    wide = [
        f"{function.name} ({num_parameters(function)})"
        for function in functions(module)
        if num_parameters(function) > MAX_PARAMETERS
    ]
    assert not wide, f"{module}: {wide}: give what belongs together a dataclass"


def test_functions_fit_on_a_screen() -> None:
    sizes = sorted(
        (num_lines(function), f"{module}: {function.name}")
        for module in MODULES
        for function in functions(module)
    )
    p90, _ = sizes[int(0.9 * len(sizes))]
    assert p90 <= P90_FUNCTION_LINES, f"a tenth of the functions is longer than {p90} lines"
    long = [entry for entry in sizes if entry[0] > LONG_FUNCTION_LINES]
    assert len(long) <= LONG_FUNCTION_SHARE * len(sizes), f"take steps out of {long}"


@pytest.mark.parametrize("module", MODULES)
def test_names_of_files_mean_something(module: str) -> None:
    vague = VAGUE_NAMES & {*Path(module).parts, Path(module).stem}
    assert not vague, f"{module}: name it after what is in it, not {vague}"


@pytest.mark.parametrize("module", MODULES)
def test_no_error_is_swallowed_and_no_input_asserted(module: str) -> None:
    for node in ast.walk(tree(module)):
        where = f"{module}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
            reraised = isinstance(node.body[-1], ast.Raise)
            assert not broad or reraised, f"{where}: catch the error you expect, by its name"
        assert not isinstance(node, ast.Assert), f"{where}: raise InputError, or trust the caller"


def test_conversion_factors_stand_in_one_place() -> None:
    for module in set(MODULES) - {"units.py"}:
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                text = ast.unparse(node)
                assert text not in {"2 ** 30", "2.0 ** 30"}, (
                    f"{module}:{node.lineno}: import the factor from e2llm_opt.units"
                )
