"""``e2llm-opt catalog`` lists what an inventory may name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("devices", "rtx-3060-12gb"),
        ("models", "llama-3.1-8b"),
        ("weights", "q4_k_m"),
        ("runtimes", "llama.cpp"),
    ],
)
def test_each_kind_is_listed_as_table_and_as_json(kind: str, name: str, run: Run) -> None:
    names = [line.split()[0] for line in run("catalog", kind).stdout.splitlines() if line.strip()]
    assert name in names
    entries = json.loads(run("catalog", kind, "--json").stdout)
    found = next(entry for entry in entries if entry["key"] == name)
    assert found["source"]
    assert {entry["key"] for entry in entries} <= set(names)


def test_a_search_of_several_words_narrows_the_list(run: Run) -> None:
    entries = json.loads(run("catalog", "devices", "orin", "nano", "--json").stdout)
    assert entries
    assert all("orin-nano" in entry["key"] for entry in entries)


def test_a_search_without_a_match_says_so(run: Run) -> None:
    result = run("catalog", "models", "zzzz")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "None of the models matches 'zzzz'." in result.stderr
    assert json.loads(run("catalog", "models", "zzzz", "--json").stdout) == []


def test_evidence_says_of_every_number_where_it_comes_from(run: Run) -> None:
    report = run("catalog", "devices", "dgx", "--evidence").stdout
    rows = {tuple(line.split()[-4:]) for line in report.splitlines()}
    assert ("memory_bandwidth_gb_s", "273", "sourced", "[1]") in rows
    kinds = {line.split()[0]: line.split()[-2:] for line in report.splitlines() if line.split()}
    assert kinds["prefill_efficiency"] == kinds["layer_overhead_us"] == ["fitted", "[3]"]
    assert kinds["reserved_gib"] == ["default", "[4]"]
    assert any(
        line.split()[-4:] == ["125", "from", "memory", "[2]"] for line in report.splitlines()
    )
    (found,) = json.loads(run("catalog", "devices", "dgx", "--evidence", "--json").stdout)
    numbers = {one["number"]: one for one in found["evidence"]}
    assert numbers["memory_gib"] == {
        "number": "memory_gib",
        "value": 128.0,
        "evidence": "sourced",
        "source": found["source"],
    }
    assert numbers["decode_efficiency"]["evidence"] == "fitted"
    assert "of decode on this device itself" in numbers["decode_efficiency"]["source"]
    assert "https://github.com/" in numbers["decode_efficiency"]["source"]
    (plain,) = json.loads(run("catalog", "devices", "dgx", "--json").stdout)
    assert plain == {key: value for key, value in found.items() if key != "evidence"}


def test_no_address_of_a_source_is_cut_off(run: Run) -> None:
    report = run("catalog", "devices", "orin-nano", "--evidence").stdout
    assert "0e4b4194b619fbfcf8e1c818db65535bd48e7a6d" in "".join(report.split())


def test_evidence_is_for_devices(run: Run) -> None:
    result = run("catalog", "models", "--evidence")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--evidence is for devices" in result.stderr
