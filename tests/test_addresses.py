"""Addresses of tabs, in a real browser: choosing one is a step back and forth, and a link opens one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from test_app_browser import CHARTS, address, demo, lab, link, runs, visit  # noqa: F401
from test_page_state import LOST


def chosen(page: Page, name: str) -> None:
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-tab-id", name)


def choose(page: Page, name: str) -> None:
    page.click(f"[role=tab][data-tab-id={name}]")
    chosen(page, name)
    page.wait_for_url(re.compile(f"[?&]tab={name}"))


def test_back_and_forward_go_through_the_tabs_that_were_chosen(visit):  # noqa: F811
    visitor = visit()
    page, first = visitor.page, visitor.page.url
    for name in CHARTS:
        visitor.settles(name)
    choose(page, "compare")
    choose(page, "far")
    page.go_back()
    chosen(page, "compare")
    page.go_back()
    chosen(page, "lab")
    assert page.url == first and page.evaluate(LOST) == []
    page.go_forward()
    page.go_forward()
    chosen(page, "far")


@pytest.mark.ui
def test_every_tab_can_be_linked_to(visit):  # noqa: F811
    visitor = visit()
    page = visitor.page
    names = page.eval_on_selector_all("[role=tab]", "(tabs) => tabs.map((tab) => tab.dataset.tabId)")
    assert len(names) >= 5
    base = page.url.partition("?")[0]
    for name in names:
        linked = visitor.context.new_page()
        linked.goto(f"{base}?tab={name}")
        chosen(linked, name)
        assert linked.url == f"{base}?tab={name}"
        linked.close()


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("long", "far"),
        pytest.param("generate", "lab", marks=pytest.mark.ui),
        pytest.param("results", "evidence", marks=pytest.mark.ui),
    ],
)
def test_a_former_address_opens_its_tab(visit, former, name):  # noqa: F811
    page = visit(query=f"?tab={former}", opens=name).page
    chosen(page, name)
    page.reload()
    chosen(page, name)
    assert page.url.endswith(f"?tab={former}")


def test_a_link_with_settings_and_an_unknown_tab_opens_theirs(visit):  # noqa: F811
    page = visit(query=link(target=40, tab="nonsense"), opens="lab").page
    chosen(page, "lab")
    expect(page.locator("#target input[type=number]")).to_have_value("40")


def test_tabs_in_the_menu_of_a_narrow_page_have_addresses_too(visit):  # noqa: F811
    page = visit(viewport={"width": 390, "height": 844}).page
    page.click("[aria-label='More tabs']")
    page.click(".overflow-dropdown button:text-is('Evidence')")
    chosen(page, "evidence")
    page.wait_for_url(re.compile("tab=evidence"))
    page.go_back()
    chosen(page, "lab")
    page.go_forward()
    chosen(page, "evidence")
    page.reload()
    chosen(page, "evidence")


# Of each tab that has such a link: where it lies, its button, a box, and what is put into it.
FORMS = {
    "try": ("#try-link", "#try-prompt textarea", "Tell me about 🐝 & «bees».\nNow."),
    "compare": ("#c-link", "#c-prompt textarea", "<b>Why?</b>"),
    "sweep": ("#s-link", "#s-targets :is(input, textarea)", "7, 70"),
    "far": ("#l-link", "#l-window input[type=number]", "777"),
}


@pytest.mark.parametrize(
    "tab", ["try", "sweep", *(pytest.param(tab, marks=pytest.mark.ui) for tab in ("compare", "far"))]
)
def test_a_link_holds_what_its_tabs_form_holds(visit, browser, tab):  # noqa: F811
    button, box, text = FORMS[tab]
    page = visit(query=f"?tab={tab}", opens={"sweep": "compare"}.get(tab, tab)).page
    page.locator(box).fill(text)
    page.locator(box).blur()
    page.click(button)
    expect(page.locator(button)).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    other = browser.new_context().new_page()
    other.goto(copied)
    expect(other.locator(box)).to_have_value(text)
    expect(other.locator(button)).to_be_visible()
    # What is typed since is what counts when the page is loaded anew.
    again = "Why?" if tab in ("try", "compare") else "77"
    other.locator(box).fill(again)
    other.locator(box).blur()
    other.wait_for_timeout(600)
    other.reload()
    expect(other.locator(box)).to_have_value(again)
    other.context.close()


@pytest.mark.parametrize(
    "form",
    [
        "eNqrVkrOzy1ILCpWsqoGACjABVM",
        *(pytest.param(form, marks=pytest.mark.ui) for form in ("", "AAAA", "%F0", "<b>")),
    ],
)
def test_a_link_that_was_cut_opens_the_form_as_it_is(visit, form):  # noqa: F811
    page = visit(query=f"?tab=compare&form={form}").page
    expect(page.locator("#c-go")).to_be_visible()
    expect(page.locator("#c-prompt textarea")).not_to_have_value("")
