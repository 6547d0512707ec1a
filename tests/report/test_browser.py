"""The page in headless Chromium: every panel drawn, nothing over anything else, axe finds nothing.

Needs Debian's ``chromium`` and the extra ``browser``; ``make test-all`` installs both.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2llm_opt import Plan, Problem
from e2llm_opt.check.check import check
from e2llm_opt.report.page import plan_page
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OVERLAPS = """() => {
  const shown = e => e.getClientRects().length > 0 && e.getBoundingClientRect().width > 0;
  const boxes = [...document.querySelectorAll("figure text, dt, dd, h1, h2, h3, p, li > b")]
    .filter(e => shown(e) && !e.closest(".skip") && e.textContent.trim())
    .map(e => [e, e.getBoundingClientRect()]);
  const found = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    const [a, one] = boxes[i], [b, other] = boxes[j];
    if (a.contains(b) || b.contains(a)) continue;
    const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    if (wide > 1.5 && high > 3) found.push([a.textContent.trim(), b.textContent.trim()]);
  }
  return found;
}"""
"""Texts that cover each other by more than the rounding of a glyph's box."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=["two-macs", "homelab", "campus-fog"])
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    example = ROOT / "examples" / f"{request.param}.yaml"
    problem = Problem.load(example)
    found = plan(problem, stop=Stop(max_evaluations=300, time_limit_s=20))
    assert isinstance(found, Plan)
    text = plan_page(
        found,
        check(found, problem),
        hosts={device.name: device.host for device in problem.devices},
        texts=[("Inventory", example.read_text(encoding="utf-8"))],
    )
    assert len(text.encode()) < 1_000_000
    file = tmp_path_factory.mktemp("page") / "plan.html"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_is_drawn_readable_and_accessible(
    browser: Any,
    page_file: Path,
    width: int,
    scheme: str,
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    assert asked == [page_file.as_uri()]
    for panel in page.query_selector_all("section.panel"):
        assert panel.bounding_box()["height"] > 60
    drawn = [figure for figure in page.query_selector_all("figure") if figure.is_visible()]
    assert len(drawn) == 2
    assert all(figure.bounding_box()["height"] > 50 for figure in drawn)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OVERLAPS) == []
    found = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the plan"
    page.click("button[data-copy]")
    page.wait_for_function("document.getElementById('said').textContent !== ''")
    chosen = page.evaluate("getSelection().toString()")
    assert "devices:" in chosen
    assert said == []
    context.close()
