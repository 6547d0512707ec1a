"""What the documents say is true: commands and code exist, every word is explained."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import e2llm_opt
from e2llm_opt.cli import command_line
from e2llm_opt.loading import schema
from e2llm_opt.plan.infeasible import DeviceNeed, Infeasible, Suggestion
from e2llm_opt.plan.json_file import plan_schema

if TYPE_CHECKING:
    from e2llm_opt.loading.fields import Section

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = (
    *("plan", "check", "explain", "report", "simulate", "export", "compare", "predict", "sweep"),
    *("advise", "failures", "pareto", "replan"),
    *("calibrate", "init", "import", "probe", "catalog", "schema", "completion"),
)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [
        line.strip().removeprefix("$ ")
        for page in PAGES
        for language, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if language in {"sh", "console"}
        for line in text.splitlines()
    ]
    return sorted({line for line in lines if line.startswith("e2llm-opt ")})


def called(name: str) -> click.Command:
    command = command_line.get_command(click.Context(command_line), name)
    assert command is not None, f"no command is called {name}"
    return command


@pytest.mark.parametrize("line", commands())
def test_commands_and_options_exist(line: str) -> None:
    words = [word for word in shlex.split(line, comments=True) if word != "COMMAND"]
    if words[1:2] in ([], ["--help"]):
        return
    command = called(words[1])
    known = {name for parameter in command.params for name in parameter.opts}
    for word in words[2:]:
        assert not word.startswith("-") or word in known, f"{line}: no option {word}"
        assert not word.startswith("examples/") or (ROOT / word).exists(), f"{line}: no {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def said(page: str) -> set[str]:
    """Return the words that a page of docs/ sets as code."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    code = [block for _, block in _BLOCK.findall(text)]
    code += re.findall(r"`([^`]+)`", _BLOCK.sub("", text))
    return set(re.findall(r"\w+", " ".join(code)))


def schema_keys(schema: object) -> set[str]:
    """Return every property that a JSON Schema names, at any depth."""
    if isinstance(schema, list):
        return {key for item in schema for key in schema_keys(item)}
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties", {})
    return set(own) | {key for item in schema.values() for key in schema_keys(item)}


def test_every_key_of_a_plan_is_explained() -> None:
    missing = schema_keys(plan_schema()) - said("file-formats.md")
    assert not missing, f"explain {sorted(missing)} in docs/file-formats.md"


def test_every_key_of_an_infeasible_answer_is_explained() -> None:
    keys = {item.name for kind in (Infeasible, DeviceNeed, Suggestion) for item in fields(kind)}
    assert not keys - said("file-formats.md")


@pytest.mark.parametrize(
    "entry",
    [
        schema.DeviceEntry,
        schema.EfficiencyEntry,
        schema.CalibratedEntry,
        schema.LinkEntry,
        schema.DirectionsEntry,
        schema.RuntimeEntry,
        schema.WorkloadEntry,
        schema.LengthsEntry,
        schema.SloEntry,
        schema.ConstraintsEntry,
    ],
)
def test_every_key_of_an_inventory_is_explained(entry: type[Section]) -> None:
    missing = set(entry.model_fields) - said("file-formats.md")
    assert not missing, f"explain {sorted(missing)} in docs/file-formats.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    command = called(name)
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    own = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = [part for part in own if part.startswith((f"{name}\n", "plan\n", "simulate\n"))]
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-") and option not in {"-h", "--help"}:
                assert any(f"`{option}" in part for part in sections), f"{name}: explain {option}"


def test_pages_name_code_that_exists() -> None:
    for page in PAGES:
        for file, name in re.findall(r"`([\w/]+\.py):\s+([\w.]+)`", page.read_text("utf-8")):
            code = (ROOT / "e2llm_opt" / file).read_text(encoding="utf-8")
            for part in name.split("."):
                is_there = re.search(rf"^ *(def |class )?{part}\b[ (:=]", code, re.MULTILINE)
                assert is_there, f"{page.name}: {file} has no {part}"


def test_every_public_name_is_explained() -> None:
    missing = set(e2llm_opt.__all__) - said("api.md")
    assert not missing, f"explain {sorted(missing)} in docs/api.md"


def test_the_index_lists_every_page() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"]({page})" not in text} == set()


def test_every_exit_code_is_explained() -> None:
    from e2llm_opt.cli import group

    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    codes = [value for name, value in vars(group).items() if name.startswith("EXIT_")]
    assert {2, 3, 130} <= set(codes)
    assert all(f"| {code} |" in text for code in codes)


def test_every_make_target_is_listed_by_make_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split()
    listed = re.findall(r'@echo "make ([\w-]+) ', text)
    assert set(listed) == set(phony) - {"help", "install"}
