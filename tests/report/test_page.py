"""The page of a plan: whole, self-contained, safe with any name; pictures that say what is true."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from e2llm_opt import Plan, Problem
from e2llm_opt.check.check import check
from e2llm_opt.cli import command_line
from e2llm_opt.report.page import plan_page
from e2llm_opt.report.pictures import INKS, draw_graph, draw_load, edges_of, nodes_of, svg_of
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan
from tests.samples import overloaded_plan, sample_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
VOID = {"meta", "br", "link", "hr", "img", "input"}
NASTY = '<script>alert("1")</script>&amp; \' $x$ {{ 7*7 }}'


class Reader(HTMLParser):
    """Checks that elements are nested, and remembers ids, headings, text and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.scripts += tag == "script"
        if given.get("id"):
            self.ids.append(given["id"] or "")
        for name in ("src", "href", "xlink:href"):
            if given.get(name):
                self.addresses.append(given[name] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def macs() -> tuple[Plan, Problem]:
    problem = Problem.load(ROOT / "examples" / "two-macs.yaml")
    found = plan(problem, stop=Stop(max_evaluations=60))
    assert isinstance(found, Plan)
    return found, problem


@pytest.mark.parametrize("one", [sample_plan(), overloaded_plan()], ids=["stable", "overloaded"])
def test_the_page_is_whole_and_needs_nothing_else(one: Plan) -> None:
    page = plan_page(one)
    reader = read(page)
    assert len(reader.ids) == len(set(reader.ids))
    assert all(address.startswith("#") for address in reader.addresses)
    assert not re.search(r"url\((?!#)|@import|//cdn", page)
    assert len(page.encode()) < 1_000_000
    for panel in ("predicted", "devices", "replicas", "load", "others", "why", "commands"):
        assert f"h-{panel}" in reader.ids
    text = " ".join(reader.text)
    for replica in one.replicas:
        for stage in replica.stages:
            assert stage.device in text
            assert f"[{stage.layers[0]}, {stage.layers[1]})" in text
    assert ("the queue grows" in text) is not one.predicted.stable
    for line in (*one.explain, *one.warnings, *(other.why_not for other in one.alternatives)):
        assert line in text


def test_names_are_shown_and_never_run() -> None:
    one = sample_plan()
    first = one.replicas[0]
    stage = replace(first.stages[0], device=NASTY)
    replicas = (replace(first, stages=(stage, *first.stages[1:])), *one.replicas[1:])
    nasty = replace(
        one,
        replicas=replicas,
        warnings=(NASTY,),
        explain=(NASTY,),
        problem=replace(one.problem, model={**one.problem.model, "name": NASTY}),
    )
    page = plan_page(nasty, texts=[(NASTY, NASTY)])
    reader = read(page)
    assert reader.scripts == 1
    assert NASTY in " ".join(reader.text)
    assert "49" not in "".join(re.findall(r"<h1>.*?</h1>", page))


def test_with_the_inventory_links_are_shown_by_load(macs: tuple[Plan, Problem]) -> None:
    found, problem = macs
    report = check(found, problem)
    shares: dict[frozenset[str], float] = {}
    for link in report.links:  # of the two directions, the busier counts
        share = link.load_bytes_per_s / link.bandwidth_bytes_per_s
        shares[frozenset(link.ends)] = max(share, shares.get(frozenset(link.ends), 0.0))
    edges = edges_of(found, report)
    assert {frozenset(edge.ends) for edge in edges} == set(shares)
    assert all(edge.share == shares[frozenset(edge.ends)] and not edge.is_hop for edge in edges)
    assert {node.name for node in nodes_of(found, edges)} >= {d.name for d in problem.devices}
    page = plan_page(found, report)
    assert "Load of links" in page
    assert "Load of links" not in plan_page(found)
    assert all(edge.is_hop for edge in edges_of(found, None))


def test_a_device_hangs_on_its_host(macs: tuple[Plan, Problem]) -> None:
    found, problem = macs
    report = check(found, problem)
    host = report.links[0].ends[0]
    edges = edges_of(found, report, {"gpu-0": host, "other": "nowhere", host: host})
    assert ("gpu-0", host) in [edge.ends for edge in edges]
    assert not any("other" in edge.ends for edge in edges)


def test_pictures_are_text_in_the_colours_of_the_page(macs: tuple[Plan, Problem]) -> None:
    found, _ = macs
    for figure in (draw_graph(found), draw_load(found), draw_load(sample_plan())):
        svg = svg_of(figure, "one")
        assert svg.startswith("<svg")
        assert "<text" in svg
        assert not [colour for colour in INKS.values() if colour in svg]
        ids = re.findall(r'\bid="([^"]*)"', svg)
        used = re.findall(r'(?:url\(#|href="#)([^")]*)', svg)
        assert all(name.startswith("one-") for name in ids)
        assert set(used) <= set(ids)
    assert all(stage.device in svg_of(draw_graph(found), "x") for stage in found.replicas[0].stages)


def test_the_load_is_drawn_up_to_the_bound(macs: tuple[Plan, Problem]) -> None:
    found, problem = macs
    axes = draw_load(found).axes[0]
    lines: Mapping[str, Any] = {str(line.get_label()): line for line in axes.lines}
    assert lines["today's rate"].get_xdata()[0] == problem.workload.rate_per_s
    assert lines["capacity"].get_xdata()[0] == found.predicted.capacity_per_s
    assert lines["bound of any plan"].get_xdata()[0] == found.bound.capacity_per_s
    curve = found.predicted.load_curve
    assert list(lines["waiting time"].get_xdata()) == [point.rate_per_s for point in curve]


def test_the_command_writes_page_and_pictures(macs: tuple[Plan, Problem], tmp_path: Path) -> None:
    found, _ = macs
    file, page, figures = tmp_path / "plan.json", tmp_path / "a page.html", tmp_path / "figures"
    file.write_text(found.to_json(), encoding="utf-8")
    own = str(ROOT / "examples" / "two-macs.yaml")
    asked = ["report", str(file), own, "-o", str(page), "--figures", str(figures)]
    done = CliRunner().invoke(command_line, asked)
    assert done.exit_code == 0, done.output
    assert "Load of links" in page.read_text(encoding="utf-8")
    names = {"devices.svg", "devices.png", "load.svg", "load.png"}
    assert {path.name for path in figures.iterdir()} == names
    assert all(path.stat().st_size > 2000 for path in figures.iterdir())
    other = str(ROOT / "examples" / "homelab.yaml")
    done = CliRunner().invoke(command_line, ["report", str(file), other, "-o", str(page)])
    assert done.exit_code == 2
    assert "not the devices and links that the plan was made for" in done.stderr
    done = CliRunner().invoke(command_line, ["report", str(file), "-o", "-"])
    assert done.stdout.startswith("<!doctype html>")
    for text in ("Commands of exo", "exo --api-port", f"e2llm-opt explain {file}"):
        assert text in " ".join(read(done.stdout).text)


def test_a_notebook_shows_the_page_and_the_pictures(macs: tuple[Plan, Problem]) -> None:
    found, _ = macs
    shown = found._repr_html_()
    assert shown is not None
    assert shown.startswith("<iframe srcdoc=")
    assert "&lt;!doctype html&gt;" in shown
    assert found.plot().axes
    assert found.plot("load").axes[0].get_xlabel() == "arrival rate [requests/s]"


def test_the_explanation_says_what_the_plan_does(
    macs: tuple[Plan, Problem], tmp_path: Path
) -> None:
    found, _ = macs
    file = tmp_path / "plan.json"
    file.write_text(found.to_json(), encoding="utf-8")
    done = CliRunner().invoke(command_line, ["explain", str(file)])
    assert done.exit_code == 0
    for line in found.explain:
        assert line in done.stdout
    for warning in found.warnings:
        assert f"Beware: {warning}." in done.stdout
    assert "as a pipeline over " in done.stdout
    file.write_text(overloaded_plan().to_json(), encoding="utf-8")
    done = CliRunner().invoke(command_line, ["explain", str(file)])
    assert "the queue grows for ever" in done.stdout
