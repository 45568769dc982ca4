"""Present: scenes over the whole page, from what came with the page, by keys, buttons and swipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from test_app_browser import HOSTILE, address, lab, runs, visit  # noqa: F401

from app import page as lab_page
from app import presets, scenes
from app.present import playable
from app.scenes.scene import Scene
from backend.measures.overlap import repeated
from backend.models.adapters import available
from backend.record.trace import Trace
from backend.text.sentences import final
from backend.text.units import tolerance

STORY = ["it_does_not_obey", "it_obeys", "it_follows", "it_breaks_and_is_repaired"]
READY = ".ll-present[data-scenes]"
SCENE = ".ll-present[data-scene={}][data-played=whole]"
# The smallest letters that are shown, and by how much the screen is too small for them across.
LETTERS = """() => {
  const root = document.querySelector(".ll-present");
  const own = (part) => [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const shown = [...root.querySelectorAll("*")].filter((part) => part.getClientRects().length && own(part));
  return [Math.min(...shown.map((part) => parseFloat(getComputedStyle(part).fontSize))),
    root.scrollWidth - root.clientWidth, root.scrollHeight - root.clientHeight];
}"""
FILE = 'title = "t"\norder = 1\nlook = "l"\n'
LANE = '[[lanes]]\nname = "n"\nrun = "r"\n'
DRAWING = '[drawing]\nexperiment = "perplexity"\n[drawing.curves]\nplain = "p"\n'


def found(name: str) -> Trace:
    return Trace.load(presets.file_of(name))


def test_the_folder_s_files_are_the_scenes_in_their_order():
    files = {file.stem for file in Path(scenes.__file__).parent.glob("*.toml")}
    assert [scene["name"] for scene in playable()] == STORY and files == set(STORY)


@pytest.mark.parametrize("wrong", [FILE, FILE + LANE + DRAWING, FILE + LANE * 3, FILE + LANE + "mots = 1\n", "{"])
def test_a_file_that_is_no_scene_is_named(tmp_path, wrong):
    file = tmp_path / "broken.toml"
    file.write_text(wrong, "utf-8")
    with pytest.raises(ValueError, match=r"broken\.toml is no scene"):
        Scene.read(file)


@pytest.mark.parametrize("right", [FILE + LANE, FILE + LANE * 2, FILE + DRAWING])
def test_a_scene_has_lanes_or_a_drawing(tmp_path, right):
    file = tmp_path / "one.toml"
    file.write_text(right, "utf-8")
    assert Scene.read(file).name == "one"


def test_the_recorded_runs_tell_the_story():
    asked, steered, moved = (found(name) for name in ("asked", "60-tokens", "moved"))
    assert abs(asked.finish.error) > tolerance(60, "tokens") and repeated([step.token for step in asked.steps])
    for run, target in ((steered, 60), (moved, 120)):
        assert abs(run.finish.error) <= tolerance(target, "tokens")
        assert run.finish.own_end and final(run.finish.text)
    assert [(step.index, step.wanted) for step in moved.steps[29:31]] == [(30, 60), (31, 120)]


def test_a_run_of_a_scene_alone_is_recorded_as_its_file_says():
    for preset in presets.of_scenes():
        trace = Trace.load(preset.file)
        assert trace.settings == preset.settings
        for written, goal in preset.moves.items():
            assert trace.steps[written].wanted == goal != trace.steps[written - 1].wanted


def test_only_runs_that_there_are_can_be_recorded_anew(monkeypatch):
    monkeypatch.setattr("sys.argv", ["presets", "moved", "movde"])
    with pytest.raises(SystemExit, match=r"^movde: no recorded run .* moved\.$"):
        presets.main()


def test_a_scene_says_one_sentence_and_what_to_look_at_in_another():
    for scene in playable():
        for words in (scene["title"], scene["look"]):
            assert words.endswith(".") and ". " not in words
        assert scene["look"].startswith("Look ")


def test_reading_everything_breaks_beyond_the_training_and_a_window_does_not():
    window, everything = playable()[-1]["chart"]["data"]
    assert (window["name"], everything["name"]) == ("sees a window", "sees everything")
    inside = [dict(zip(line["x"], line["y"], strict=True))[8192] for line in (window, everything)]
    assert abs(inside[0] - inside[1]) < 0.1
    assert everything["y"][-1] > 1.5 * max(window["y"]) and window["x"][-1] > everything["x"][-1]


def test_a_scene_without_its_recorded_run_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    assert [scene["name"] for scene in playable.__wrapped__()] == STORY[-1:]


@pytest.fixture(scope="module")
def demo(lab) -> lab_page.Page:  # noqa: F811
    """The page with one scene more, whose words are markup."""
    shown = playable()[0]
    lane = shown["lanes"][0] | {"name": HOSTILE, "words": HOSTILE, "tokens": [[HOSTILE, 0.1, 1, 60]]}
    hostile = shown | {"name": "hostile", "title": HOSTILE, "look": HOSTILE, "lanes": [lane]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_page, "playable", lambda: [*playable(), hostile])
        return lab_page.build(lab, available, lab_page.Runs())


def opened(visit, **options) -> Page:  # noqa: F811
    """The page, at its first scene, whose end is shown at once."""
    page = visit(query="?tab=try", reduced_motion="reduce", **options).page
    page.wait_for_selector(READY, state="attached")
    page.keyboard.press("p")
    page.wait_for_selector(SCENE.format(STORY[0]))
    return page


def test_keys_and_clickers_go_on_and_back_and_escape_leaves(visit):  # noqa: F811
    page = opened(visit)
    for key, place in (
        ("ArrowRight", 1), ("PageDown", 2), (" ", 3), ("PageUp", 2), ("ArrowLeft", 1), ("ArrowLeft", 0),
        ("ArrowLeft", 0),
    ):  # fmt: skip
        page.keyboard.press(key)
        page.wait_for_selector(SCENE.format(STORY[place]))
    page.keyboard.press("Escape")
    expect(page.locator(".ll-present")).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator(".ll-present h2")).to_have_text(playable()[0]["title"])


def test_the_button_opens_it_and_its_buttons_work_by_the_keyboard_alone(visit):  # noqa: F811
    page = visit(query="?tab=try", reduced_motion="reduce").page
    page.wait_for_selector(READY, state="attached")
    page.focus("[data-present]")
    page.keyboard.press("Enter")
    page.wait_for_selector(SCENE.format(STORY[0]))
    expect(page.locator(".ll-present")).to_be_focused()
    page.focus("[data-act=next]")
    page.keyboard.press(" ")
    page.wait_for_selector(SCENE.format(STORY[1]))
    page.focus(".ll-present [data-act=close]")
    page.keyboard.press("Enter")
    expect(page.locator(".ll-present")).to_be_hidden()
    expect(page.locator("[data-present]")).to_be_focused()


def test_a_p_in_a_text_is_a_letter(visit):  # noqa: F811
    page = visit(query="?tab=try").page
    page.wait_for_selector(READY, state="attached")
    page.fill("#try-prompt textarea", "sto")
    page.press("#try-prompt textarea", "p")
    assert page.input_value("#try-prompt textarea") == "stop"
    expect(page.locator(".ll-present")).to_be_hidden()


def test_all_scenes_are_played_without_the_server(visit):  # noqa: F811
    visitor = visit(query="?tab=try", reduced_motion="reduce")
    page = visitor.page
    page.wait_for_selector(READY, state="attached")
    page.wait_for_function("window.Plotly")
    visitor.context.set_offline(True)
    page.keyboard.press("p")
    for scene in playable():
        page.wait_for_selector(SCENE.format(scene["name"]))
        expect(page.locator(".ll-present h2")).to_have_text(scene["title"])
        expect(page.locator(".ll-look")).to_have_text(scene["look"])
        for lane, box in zip(scene.get("lanes", []), page.locator(".ll-saying").all(), strict=True):
            expect(box).to_have_text("".join(token[0] for token in lane["tokens"]))
        if "chart" in scene:
            expect(page.locator(".ll-drawn .scatterlayer .trace")).to_have_count(2)
        page.keyboard.press("ArrowRight")
    # What the page asked for meanwhile by itself.
    visitor.wrongs = [wrong for wrong in visitor.wrongs if "ERR_INTERNET_DISCONNECTED" not in wrong]


def test_a_lane_is_written_piece_by_piece_and_its_flag_moves(visit):  # noqa: F811
    page = visit(query="?tab=try", clock=True).page
    page.wait_for_selector(READY, state="attached")
    page.clock.pause_at(page.evaluate("Date.now() + 10_000"))
    page.keyboard.press("p")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    moved = page.locator(".ll-present .ll-run[data-lane='1']")
    page.clock.run_for(1000)
    early = page.locator(".ll-saying").last.inner_text()
    assert early and moved.locator(".ll-goal").inner_text() == "60"
    page.clock.run_for(9000)
    page.wait_for_selector(SCENE.format(STORY[2]))
    assert moved.locator(".ll-goal").inner_text() == "120"
    whole = page.locator(".ll-saying").last.inner_text()
    assert whole.startswith(early) and len(whole) > 2 * len(early)


@pytest.mark.parametrize(
    ("width", "height", "theme"),
    [(390, 844, "dark"), *(pytest.param(*more, marks=pytest.mark.ui) for more in (
        (1440, 900, "light"), (1920, 1080, "dark"), (390, 844, "light"),
    ))],
)  # fmt: skip
def test_letters_are_large_and_each_scene_fits_its_screen(visit, width, height, theme):  # noqa: F811
    page = opened(visit, viewport={"width": width, "height": height}, color_scheme=theme)
    for name in STORY:
        page.wait_for_selector(SCENE.format(name))
        letters, across, down = page.evaluate(LETTERS)
        assert letters >= 24 and across <= 0 and down <= 0, name
        expect(page.locator(".ll-present [data-act=next]")).to_be_in_viewport()
        page.keyboard.press("ArrowRight")


def test_a_swipe_goes_on_and_back(visit):  # noqa: F811
    page = opened(visit, viewport={"width": 390, "height": 844}, has_touch=True)
    for way, place in ((-1, 1), (1, 0)):
        page.mouse.move(200, 300)
        page.mouse.down()
        page.mouse.move(200 + way * 120, 310, steps=3)
        page.mouse.up()
        page.wait_for_selector(SCENE.format(STORY[place]))


def test_markup_in_a_scene_stays_text(visit):  # noqa: F811
    page = opened(visit)
    for _ in STORY:
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(SCENE.format("hostile"))
    for part in ("h2", ".ll-look", ".ll-saying", ".ll-said h3"):
        expect(page.locator(f".ll-present {part}")).to_have_text(HOSTILE)
    assert page.locator(".ll-present img, .ll-present script").count() == 0


def test_the_page_begins_without_experiments_that_it_does_not_show():
    """They import what is long to import."""
    begun = "import sys, app.page; from app.present import playable; playable(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, check=True, timeout=300)
    modules = {*done.stdout.split()}
    assert "backend.evaluation.experiments.perplexity" in modules
    assert not modules & {"backend.evaluation.experiments.multiple_choice", "lm_eval", "peft"}
