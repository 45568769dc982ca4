"""The charts show a run from its first token on."""

from __future__ import annotations

from test_app_browser import CHARTS, address, demo, held, lab, link, runs, visit  # noqa: F401


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
