"""The Evidence tab in a real browser, at both widths and in both themes: five findings, every table of the report, and
its figures.

What the tables must hold is computed here from the recorded answers and readings, by other code than the report's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from statistics import NormalDist, fmean, median
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from app import __main__ as app
from backend.evaluation.experiments import experiments
from backend.evaluation.papers import PAPERS
from backend.record.results import RESULTS

LONG = 300_000
VIEWS = [
    pytest.param(view, id="-".join(map(str, view)), marks=marks)
    for view, marks in (
        ((390, "dark"), ()),
        ((1440, "light"), pytest.mark.ui),
        ((1440, "dark"), pytest.mark.ui),
        ((390, "light"), pytest.mark.ui),
    )
]
# Every chart of the tab that is drawn, by its name: what its lines are called, and the colour of its words.
CHARTS = """() => Object.fromEntries([...document.querySelectorAll(".ll-results .ll-chart")].map((chart) => {
  const plot = chart.querySelector(".ll-plot");
  return [chart.closest("[id^=chart-]").id.slice("chart-".length), {
    lines: plot.data.map((line) => ({name: line.name, x: [...line.x], y: [...line.y]})),
    paths: plot.querySelectorAll(".scatterlayer .trace").length,
    ink: getComputedStyle(plot.querySelector(".xtick text")).fill,
  }];
}))"""
# Every table; broken: words of its headings and figures that stand on more than one line.
TABLES = """() => {
const broken = (cell) => {
  const words = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    for (const word of texts.currentNode.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) words.push(word[0]);
    }
  return words;
};
return [...document.querySelectorAll(".ll-report table")].map((table) => ({
  section: table.closest("[id^=results-]").id.slice("results-".length),
  rows: [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim())),
  figures: [...table.querySelectorAll("td[align=right]")]
    .every((cell) => ["right", "end"].includes(getComputedStyle(cell).textAlign)),
  shown: table.offsetParent !== null, left: table.getBoundingClientRect().left,
  right: table.getBoundingClientRect().right, wide: table.scrollWidth > table.clientWidth,
  scrolls: getComputedStyle(table).overflowX === "auto",
  broken: [...table.querySelectorAll("th, td[align=right]")].flatMap(broken),
}));
}"""

# The findings, as they are read, where each begins, and whether its chart is drawn.
PROOFS = """() => [...document.querySelectorAll(".ll-proof")].map((proof) => ({
  theme: proof.querySelector("h2").textContent,
  finding: proof.querySelector("h2 + p").textContent.replaceAll("\u00a0", " "),
  names: [...proof.querySelectorAll("dt")].map((name) => name.textContent),
  facts: [...proof.querySelectorAll("dd")].map((fact) => fact.textContent.replaceAll("\u00a0", " ")),
  lines: proof.querySelectorAll(".scatterlayer .trace").length, top: proof.getBoundingClientRect().top + scrollY,
  right: proof.getBoundingClientRect().right,
}))"""
FIRST_TABLE = "document.querySelector('.ll-report table').getBoundingClientRect().top + scrollY"
# How far to the right anything of the tab reaches, but what scrolls in a table's box.
REACH = """() => Math.max(...[".ll-contents", ".ll-contents a", ".ll-report", ".ll-report :is(p,li)", ".ll-chart"]
  .flatMap((name) => [...document.querySelectorAll(name)])
  .filter((part) => part.offsetParent).map((part) => part.getBoundingClientRect().right))"""


def recorded(name: str) -> Any:
    return json.loads((RESULTS / name).read_text("utf-8"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    demo = app.make(["embedded"])
    yield app.serve(demo)
    demo.close()


def opened(browser: Browser, address: str, width: int, theme: str, wrongs: list[str]) -> Page:
    """The tab once everything of it is there; what a browser complains of goes into `wrongs`."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(LONG)
    page.on("console", lambda message: message.type == "error" and wrongs.append(message.text))
    page.on("pageerror", lambda error: wrongs.append(str(error)))
    page.goto(f"{address}?__theme={theme}&tab=evidence")
    page.wait_for_selector("#results-withdrawn table")
    page.wait_for_selector(".ll-results .ll-plot")
    for plot in page.locator(".ll-proof .ll-plot, .ll-results .ll-plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".xtick").first.wait_for()
    return page


class Shown:
    """What one visitor saw of the tab."""

    def __init__(self, browser: Browser, address: str, width: int, theme: str) -> None:
        self.width, self.theme = width, theme
        self.wrongs: list[str] = []
        page = opened(browser, address, width, theme, self.wrongs)
        self.tables = page.evaluate(TABLES)
        self.charts = page.evaluate(CHARTS)
        self.proofs = page.evaluate(PROOFS)
        self.below = page.evaluate(FIRST_TABLE)
        self.dark = page.evaluate("document.body.classList.contains('dark')")
        self.page_width = page.evaluate("document.documentElement.scrollWidth")
        self.reach = page.evaluate(REACH)
        self.order = page.evaluate("[...document.querySelectorAll('.ll-report h2')].map((h) => h.textContent.trim())")
        self.text = page.inner_text("#results-withdrawn")
        self.log, self.head = page.inner_text("#results-log"), page.inner_text("#results-head")
        page.close()

    def rows(self, section: str, first: str, column: str = "") -> dict[str, dict[str, str]]:
        """The table of a section whose first column has that name, with a column of that beginning: rows by name."""
        for table in self.tables:
            columns, *rows = table["rows"]
            if table["section"] == section and columns[0] == first and any(c.startswith(column) for c in columns):
                return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
        raise AssertionError(f"no table of {first} in {section}")


@pytest.fixture(scope="module", params=VIEWS)
def shown(request, browser, address) -> Shown:
    return Shown(browser, address, *request.param)


def number(cell: str) -> float:
    """The first number of a cell; a percentage as a share."""
    found = re.match(r"[−+-]?[\d,]*\.?\d+", cell)
    assert found, cell
    value = float(found[0].replace(",", "").replace("−", "-"))
    return value / 100 if cell[found.end() :].startswith(" %") else value


def wilson(count: int, total: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.975)
    middle, wide = count + z * z / 2, z * math.sqrt(count * (total - count) / total + z * z / 4)
    return (middle - wide) / (total + z * z), (middle + wide) / (total + z * z)


def percentage(count: int, total: int) -> str:
    low, high = wilson(count, total)
    return f"{100 * count / total:.0f} % ({100 * max(0, low):.0f} % to {100 * min(1, high):.0f} %)"


def counted(name: str, key: str) -> str:
    """A share of a row's answers, with its interval."""
    found = json.loads((RESULTS / "joint_rate" / "validation" / f"{name}.json").read_text("utf-8"))
    total = len(found["answers"])
    return percentage(round(total * found["summary"]["validation"][key][0]), total)


def test_the_tab_opens_without_an_error_in_its_theme_and_its_width(shown):
    assert shown.wrongs == []
    assert shown.dark == (shown.theme == "dark")
    assert shown.page_width <= shown.width and shown.reach <= shown.width


def test_five_findings_come_first_each_with_the_papers_figure_ours_and_the_command(shown):
    themes = ["Length met and ended", "Limits", "Far reading", "Longer writing", "Speed"]
    assert [proof["theme"] for proof in shown.proofs] == themes
    for proof in shown.proofs:
        assert proof["finding"].endswith(".") and ". " not in proof["finding"]
        assert proof["lines"] >= 2 and proof["top"] < shown.below and proof["right"] <= shown.width
        cited, *rest = proof["names"]
        assert re.search(r"\(\d{4}\)|undated", cited) and rest == ["Here", "Where it falls short", "Measured by"]
        assert all(proof["facts"]) and proof["facts"][-1].startswith(("python -m backend evaluate ", "make "))


def test_the_findings_are_those_of_the_tables(shown):
    length, limits, far, longer, _ = (proof["finding"] for proof in shown.proofs)
    rows = shown.rows("joint_rate", "method")
    for row, key in (("ldpe", "1 length"), ("ldpe landing", "1 length"), ("ldpe landing", "joint rate")):
        assert f"{rows[row][key].split(' % ')[0]} %" in length
    well = counted("ldpe", "all_three").split(" (")[0]
    assert f"ends {well} of them well" in length and rows["ldpe"]["joint rate"].startswith(f"– ({well}")
    assert "19 % to 28 %" in limits and rows["mnt orpe"]["joint rate"].startswith("28 %")
    ratios = shown.rows("perplexity", "attention", "times Λ")
    assert number(far.split("sees all is ")[1]) == pytest.approx(number(ratios["plain"]["times Λ"]), abs=0.06)
    words = shown.rows("long_responses", "over plain")["dynamic contiguous s=4"]["words"]
    assert f"({words.split(' (')[0]} times as many words)" in longer


def test_the_log_of_what_did_not_work_is_there_and_papers_are_named(shown):
    newest = (RESULTS / "LOG.md").read_text("utf-8").split("\n- ")[1].split(":")[0]
    assert newest in shown.log
    assert all(f"{number} is {paper.authors} ({paper.year})" in shown.head for number, paper in PAPERS.items())


def test_what_is_missed_or_withdrawn_is_said(shown):
    short = {proof["theme"]: proof["facts"][2] for proof in shown.proofs}
    assert short["Limits"].startswith("Missed: ") and short["Longer writing"].startswith("Missed: ")
    assert counted("ldpe_landing", "answer_end") in short["Length met and ended"]
    assert "Within its training Λ is the worse" in short["Far reading"]
    assert "no difference is claimed" in short["Speed"] and "Withdrawn as a headline" in short["Speed"]


def test_a_search_leaves_what_has_all_its_words(browser, address):
    wrongs: list[str] = []
    page = opened(browser, address, 1440, "light", wrongs)
    sections, links = page.locator(".ll-measured:visible"), page.locator(".ll-contents a:visible")
    everything = sections.count()
    assert everything == links.count() > 20
    page.fill(".ll-search input", "  Hidden PLAIN ")
    expect(page.locator(".ll-search [role=status]")).to_have_text(re.compile(f"^[1-9] of {everything} measurements$"))
    assert 0 < sections.count() == links.count() < 10
    assert all("hidden" in text.lower() and "plain" in text.lower() for text in sections.all_text_contents())
    page.fill(".ll-search input", "<img src=x onerror=alert(1)>")
    expect(page.locator(".ll-search [role=status]")).to_have_text(f"0 of {everything} measurements")
    page.fill(".ll-search input", "")
    assert sections.count() == everything and wrongs == []
    page.close()


def test_tables_stay_in_their_box_and_no_figure_is_broken_over_lines(shown):
    visible = [table for table in shown.tables if table["shown"]]
    assert len(visible) >= 25
    for table in visible:
        assert table["left"] >= 0 and table["right"] <= shown.width, table["rows"][0]
        assert table["scrolls"] and table["figures"] and not table["broken"], table["rows"][0]
    assert shown.width > 390 or any(table["wide"] for table in visible)


def test_every_table_of_the_committed_report_is_shown(shown):
    """The Markdown is read anew: its tables, cell by cell, in their order."""
    lines = (RESULTS / "README.md").read_text("utf-8").splitlines()
    cells = [[plain(cell) for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    report_rows = [row for row in cells if not all(set(cell) <= set("-: ") for cell in row)]
    found = [row for table in shown.tables if table["section"] != "published" for row in table["rows"]]
    assert found == report_rows and len(found) > 200


def plain(cell: str) -> str:
    """A cell's Markdown as it is read."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell).replace("`", "").strip()


def test_headlines_come_first_and_what_is_withdrawn_last(shown):
    assert shown.order[:3] == [
        "Headlines", "Answers that have the length asked for and end well", "LIFEBench's tasks"
    ]  # fmt: skip
    assert shown.order[-2:] == ["Withdrawn: being measured again", "What did not work"]


def test_each_withdrawn_table_says_so_and_shows_no_figure(shown):
    rows = shown.rows("withdrawn", "table")
    withdrawn = [each for each in experiments if each.withdrawn]
    files = [RESULTS.glob(pattern) for each in withdrawn for pattern in each.files]
    held = {file.relative_to(RESULTS).as_posix() for found in files for file in found}
    assert len(rows) == len(withdrawn) and len(held) > 15
    for row in rows.values():
        assert row["why it is not shown"].startswith("being measured again: ")
    assert {name for row in rows.values() for name in row["files"].split(", ")} == held
    elsewhere = [cell for t in shown.tables if t["section"] != "withdrawn" for line in t["rows"] for cell in line]
    assert not any(name in cell for name in held for cell in elsewhere)


def test_joint_rates_are_those_of_the_answers(shown):
    rows = shown.rows("joint_rate", "method")
    files = sorted((RESULTS / "joint_rate" / "validation").glob("*.json"))
    assert set(rows) == {file.stem.replace("_", " ") for file in files}
    for file in files:
        result, row = recorded(f"joint_rate/validation/{file.name}"), rows[file.stem.replace("_", " ")]
        answers = result["answers"]
        assert row["answers"] == f"{len(answers)} of {result['asked']}"
        assert row["2 own EOS"] == percentage(sum(a["own_end"] for a in answers), len(answers))
        assert row["1 length"] == percentage(sum(map(in_length, answers)), len(answers))
        if not answers[0]["limit"]:
            error = fmean(abs(a["produced"] - a["target"]) for a in answers)
            assert number(row["mean error"]) == pytest.approx(error, abs=0.006)


def in_length(answer: Mapping[str, Any]) -> bool:
    over = answer["produced"] - answer["target"]
    return over <= 0 if answer["limit"] else abs(over) <= max(3, answer["target"] / 20)


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("long_responses", "longform_many"), ("position_survey", "longform"), ("longbench_write", "longbench_write")
    ],
)
def test_long_answers_are_those_of_the_answers(shown, section, name):
    found = recorded(f"{name}.json")["answers"]
    rows, beside = shown.rows(section, "policy", "answers"), shown.rows(section, "over plain")
    assert set(rows) == set(found) == {"plain", *beside}
    for policy, answers in found.items():
        row, words = rows[policy], [answer["words"] for answer in answers]
        assert number(row["answers"]) == len(answers)
        assert number(row["words, mean"]) == pytest.approx(fmean(words), abs=0.6)
        assert number(row["median"]) == pytest.approx(median(words), abs=0.6)
        assert row["ended by itself (95 %)"] == percentage(sum(a["ended"] for a in answers), len(answers))
        if policy != "plain":
            ratio = sum(words) / sum(answer["words"] for answer in found["plain"])
            assert number(beside[policy]["words"]) == pytest.approx(ratio, abs=0.006)
            assert f"; {len(answers)} prompts)" in beside[policy]["words"]


def nats(result: Mapping[str, Any], policy: str, length: int) -> dict[str, float]:
    """By text: mean nats of the last 1,024 tokens before a length, of the reading that reaches it."""
    found = {}
    for reading in result["readings"]:
        exact = reading["start"] == 0 and (policy != "truncation" or reading["position"][-1] == length)
        if reading["policy"] == policy and exact:
            last = [v for p, v in zip(reading["position"], reading["nll"], strict=True) if length - 1024 < p <= length]
            if len(last) * 512 == 1024:
                found[reading["document"]] = fmean(last)
    return found


def test_perplexities_are_those_of_the_readings(shown):
    result = recorded("perplexity_novels.json")
    values, ratios = shown.rows("perplexity", "attention", "2,048"), shown.rows("perplexity", "attention", "times Λ")
    assert set(values) == {"plain", "Λ", "truncation"} and set(ratios) == {"plain", "truncation"}
    for policy in ("plain", "Λ"):
        for length in (2048, 4096, 8192, 16384):
            perplexity = math.exp(fmean(nats(result, policy, length).values()))
            assert number(values[policy][f"{length:,}"]) == pytest.approx(perplexity, rel=0.005)
    ours, theirs = nats(result, "plain", 16384), nats(result, "Λ", 16384)
    ratio = math.exp(fmean(ours[text] - theirs[text] for text in ours))
    assert len(ours) == 6 and number(ratios["plain"]["times Λ"]) == pytest.approx(ratio, rel=0.001)
    headline = next(row for name, row in shown.rows("headlines", "what").items() if "16,384" in name)
    assert number(headline["how much (95 %)"]) == pytest.approx(ratio, rel=0.005)
    assert "; 6 novels)" in headline["how much (95 %)"]


def test_speed_and_ends_are_those_of_the_rounds(shown):
    bench = {(rate["case"], rate["context"]): rate["decode_rounds"] for rate in recorded("bench.json")["short"]}
    pairs = zip(bench["engine bf16", 2048], bench["transformers bf16", 2048], strict=True)
    ratio = median(ours / theirs for ours, theirs in pairs)
    rows = shown.rows("decode_speed", "decode, times transformers bf16")
    assert number(rows["engine bf16"]["2,048"]) == pytest.approx(ratio, abs=0.006)
    ends = recorded("endmark.json")
    table = next(t["rows"][1:] for t in shown.tables if t["section"] == "eos_probe")
    assert len(table) == len(ends["rows"])
    for cells, row in zip(table, ends["rows"], strict=True):
        assert cells[:3] == [row["signal"], row["numbers"], row["reader"]]
        assert cells[3].removesuffix("; 110 lengths)") == percentage(round(row["found"] * 110), 110)[:-1]


def test_charts_draw_the_readings_and_are_read_in_either_theme(shown):
    assert {"r-perplexity", "r-perplexity-1", "r-perplexity-2", "r-compute_matched"} <= set(shown.charts)
    for chart in shown.charts.values():
        assert chart["paths"] == len(chart["lines"]) > 0
        light = min(map(int, re.findall(r"\d+", chart["ink"])[:3]))
        assert (light > 128) == shown.dark
    result = recorded("perplexity_novels.json")
    lines = {line["name"]: dict(zip(line["x"], line["y"], strict=True)) for line in
             shown.charts["r-perplexity"]["lines"]}  # fmt: skip
    for policy in ("plain", "Λ"):
        found = fmean(nats(result, policy, 16384).values())
        assert lines[policy][16384] == pytest.approx(found, abs=0.002)
    values = shown.rows("perplexity", "attention", "2,048")["truncation"]
    assert list(lines["truncation"]) == [2048, 4096, 8192, 16384, 32768]
    for length, height in lines["truncation"].items():
        assert math.exp(height) == pytest.approx(number(values[f"{length:,}"]), rel=0.01)
