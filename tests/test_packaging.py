"""What a user installs is complete: data files, types, the command, one version."""

from __future__ import annotations

import importlib
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import e2llm_opt

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "e2llm_opt"
DATA = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*")
    if path.is_file() and path.suffix not in {".py", ".pyc", ".nbi", ".nbc"}
)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_data_files_are_those_that_are_known() -> None:
    assert {"py.typed", "plan/plan.schema.json", "catalogue/devices.csv"} <= set(DATA)
    assert {Path(name).suffix for name in DATA} <= {".csv", ".j2", ".json", ".typed"}, (
        "a new kind of data file: see that it reaches the wheel, then add it here"
    )


@pytest.mark.parametrize("name", DATA)
def test_a_data_file_is_found_where_the_package_is_installed(name: str) -> None:
    resource = files("e2llm_opt").joinpath(*name.split("/"))
    assert resource.is_file()
    assert name == "py.typed" or resource.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DATA)
def test_a_data_file_is_under_version_control_and_so_in_the_wheel(name: str) -> None:
    """The wheel takes the whole package folder, but for what git ignores."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    ignored = subprocess.run(
        ["git", "check-ignore", "-q", f"e2llm_opt/{name}"], cwd=ROOT, check=False
    )
    assert ignored.returncode == 1, f"{name} is ignored by git and would miss in the wheel"


def test_the_wheel_takes_the_whole_package(project: dict[str, Any]) -> None:
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["e2llm_opt"]}


def test_every_folder_with_code_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    missing = [str(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert not missing, f"add __init__.py to {missing}"


def test_the_command_resolves(project: dict[str, Any]) -> None:
    module, _, name = project["project"]["scripts"]["e2llm-opt"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_the_version_stands_in_one_place(project: dict[str, Any]) -> None:
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "e2llm_opt/__init__.py"
    assert e2llm_opt.__version__.count(".") == 2


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"])
def test_the_papers_are_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()
