"""`corelkv analyze` as a whole: what it writes, and its page in a real browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import sync_playwright
from pyspark.sql import SparkSession

from spark import JOBS, Analysis, Request, SourceError, Verdict, analyze, steps_of
from spark.generator import plant
from spark.report.figures import hot_keys, plain
from spark.report.page import Page, Section, Table, render
from tests.console.browser import launch

pytestmark = pytest.mark.timeout(900)

HOSTILE = "<img src=x onerror=window.hacked=1>"


class Analysed(NamedTuple):
    result: Analysis
    out: Path
    told: list[str]

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return summary


@pytest.fixture(scope="module")
def analysed(spark_session: SparkSession, clean_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    out, told = tmp_path_factory.mktemp("out"), list[str]()
    result = analyze(spark_session, Request([str(clean_logs)], str(out)), told.append)
    return Analysed(result, out, told)


def test_clean_logs_agree_and_every_job_has_written_its_frames(analysed: Analysed) -> None:
    assert analysed.result.verdict is Verdict.AGREED
    assert analysed.summary["verdict"] == "agreed"
    written = {path.name for path in (analysed.out / "results").iterdir()}
    assert written == {"inputs", "clocks", "lines", *JOBS}
    assert not (analysed.out / "_work").exists()


def test_every_step_is_told_once(analysed: Analysed) -> None:
    assert len(analysed.told) == len(set(analysed.told)) == steps_of(JOBS)


def test_the_page_shows_its_plots_without_errors_on_any_screen(analysed: Analysed) -> None:
    troubles: list[str] = []
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in (390, 1_440):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda message: troubles.append(message.text))
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("requestfailed", lambda request: troubles.append(request.url))
            page.goto((analysed.out / "report.html").as_uri())
            page.wait_for_selector(".js-plotly-plot .main-svg")
            assert "prove that the replicas agreed" in page.locator("[role=status]").inner_text()
            plots = page.locator(".js-plotly-plot")
            assert plots.count() >= 8
            assert all((plots.nth(place).bounding_box() or {"height": 0})["height"] > 200 for place in range(8))
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert troubles == []


def test_an_earlier_report_must_be_continued_and_what_contradicts_it_is_named(
    spark_session: SparkSession, analysed: Analysed, clean_logs: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(clean_logs, changed)
    plant(spark_session, str(changed), "swap")
    for manifest in changed.rglob("exports/*.json"):
        content = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**content, "final_digest": "00" * 32}))
    request = Request([str(changed)], str(tmp_path / "out"), ["audit"], previous=str(analysed.out))
    found = analyze(spark_session, request)
    frames = json.loads((tmp_path / "out" / "summary.json").read_text())["frames"]
    assert found.verdict is Verdict.VIOLATED
    assert "digests" in " ".join(found.lines)
    named = {row["id"] for row in frames["audit.violations"]} - {None}
    assert named & {row["id"] for row in frames["audit.histories"]}
    assert "a rule was broken" in (tmp_path / "out" / "report.html").read_text()


def test_a_directory_without_logs_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there are no journals, exports or records below"):
        analyze(spark_session, Request([str(tmp_path)], str(tmp_path / "out")))


def test_what_users_choose_is_shown_as_text(tmp_path: Path) -> None:
    keys = [{"cluster": "", "rank": 1, "key": HOSTILE, "operations": 3, "share": 1.0}]
    table = Table(HOSTILE, [HOSTILE], [[HOSTILE]], HOSTILE)
    sections = [Section(HOSTILE, [hot_keys(keys)], [table], HOSTILE)]
    (tmp_path / "page.html").write_text(render(Page(HOSTILE, HOSTILE, "bad", [HOSTILE], sections)))
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_selector(".js-plotly-plot .main-svg")
        assert page.locator("img[src=x]").count() == 0
        assert page.evaluate("window.hacked") is None
        assert page.locator("td", has_text=HOSTILE).count() == 1
        browser.close()


def test_plain_text_has_no_markup() -> None:
    assert plain("<b>&") == "&lt;b&gt;&amp;"
