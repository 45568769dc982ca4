"""The charts show a run from its first token on, and none before it."""

from __future__ import annotations

from test_app_browser import CHARTS, address, demo, held, lab, link, runs, visit  # noqa: F401

# Notes from now on what is drawn and of which run; a text has no run of its own.
NOTES = """() => {
  window.notes = [];
  new MutationObserver((changes) => {
    for (const { target: { dataset } } of changes)
      notes.push([dataset.name, dataset.run ?? "", Number(dataset.drawn ?? dataset.tokens)]);
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-drawn", "data-tokens"] });
}"""


def test_every_chart_shows_the_first_token_before_there_is_a_second(visit, held):  # noqa: F811
    story = link(prompt="Write a long story about the sea.", max_new_tokens=60)
    visitor = visit(query=story, viewport={"width": 1440, "height": 2400})
    before = visitor.chart("length")["run"]
    held.upto(1)
    visitor.generate()
    visitor.shows(1)
    for name in CHARTS:
        visitor.settles(name)
        assert visitor.chart(name)["run"] != before, name


def test_no_chart_shows_a_run_before_the_one_that_is_written(visit, held):  # noqa: F811
    story = link(prompt="Write a long story about the sea.", max_new_tokens=60)
    visitor = visit(query=story, viewport={"width": 1440, "height": 2400})
    visitor.generate()
    visitor.ends()
    for name in CHARTS:
        visitor.settles(name)
    visitor.page.evaluate(NOTES)
    held.upto(30)
    visitor.generate()
    visitor.shows(30)
    held.free()
    visitor.ends()
    for name in CHARTS:
        visitor.settles(name)
    notes, run = visitor.page.evaluate("window.notes"), visitor.chart("length")["run"]
    begun = next(place for place, (name, _, drawn) in enumerate(notes) if name == "text-run" and drawn > 0)
    later = [(name, of) for name, of, _ in notes[begun:] if name in CHARTS]
    assert set(later) == {(name, run) for name in CHARTS}
