"""How words and characters are counted, and how a wanted number of them becomes a target in tokens."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.settings import RunSettings
from backend.text.prompt import asked, planned, token_ids
from backend.text.units import EXPECTED, Growing, characters, in_tokens, length, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        (" \n\t ", 0),
        ("Hello, world!", 2),
        ("well-known don't 3.14 e-mail", 4),
        ("- a list\n* of\n# two — marks", 5),
        ("_emphasis_ (aside) “quoted”", 3),
        ("non\u00a0breaking", 2),
        ("déjà vu", 2),
        ("猫が好き", 4),
        ("我喜欢 Python，和你一样。", 8),
        ("コーヒー", 4),
        ("สวัสดีครับ", 2),
        ("나는 학교에 간다", 3),
        ("नमस्ते दुनिया", 2),
        ("क्या यह सच है?", 4),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text("aé1-_.'’ \n\u00a0नя🎉"))
def test_words_are_runs_without_white_space_that_hold_a_letter_or_digit(text):
    assert words(text) == sum(any(c.isalnum() for c in run) for run in text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("  two words \n", 9),
        ("e\u0301", 1),
        ("\u00e9", 1),
        ("a\n\nb", 4),
        ("👨‍👩‍👧‍👦", 1),
        ("नमस्ते", 3),
        ("🇩🇪🇫🇷", 2),
    ],
)
def test_characters(text, expected):
    assert characters(text) == expected


@pytest.mark.parametrize("unit", ["words", "characters"])
@given(pieces=st.lists(st.text("a1-_ \n\u00a0\u2003e\u0301\u1100\u1161猫", max_size=6), max_size=12))
def test_a_growing_text_is_counted_as_the_whole(unit, pieces):
    growing = Growing(unit)
    for i, piece in enumerate(pieces, start=1):
        assert growing.add(piece) == length(unit, "".join(pieces[:i]), i)


def test_a_long_text_grows_as_cheaply_as_a_short_one():
    growing = Growing("characters")
    for word in range(4000):
        growing.add(f" word{word}")
    assert len(growing._open) < 20


def test_length_speaks_the_unit():
    assert [length(unit, "Two words.", 7) for unit in ("tokens", "words", "characters")] == [7, 2, 10]


def test_tokens_need_no_estimate():
    assert in_tokens(57, "tokens", "whatever was written", 3) == 57


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_before_any_text_the_expected_rate_holds(unit):
    assert in_tokens(1000, unit) == round(1000 * EXPECTED[unit].tokens)


@pytest.mark.parametrize("unit", ["words", "characters"])
@given(goal=st.integers(1, 10_000))
def test_a_target_is_never_below_one_token(unit, goal):
    assert in_tokens(goal, unit) >= 1
    assert in_tokens(1, unit, "long text " * goal, 1) >= 1


def test_the_running_rate_takes_over():
    text = "word. " * 400
    assert in_tokens(800, "words", text, tokens=1200) == pytest.approx(2400, rel=0.03)


def test_past_the_goal_the_target_is_what_was_written():
    assert in_tokens(3, "words", "one two three four", 9) == 9
    assert in_tokens(5, "characters", "123456", 4) == 4


def test_a_passed_goal_may_tell_how_far_it_is_passed():
    assert in_tokens(3, "words", "one two three four", 9, past=True) < 9
    assert in_tokens(100, "words", "word " * 150, 300, past=True) == pytest.approx(203, abs=3)
    assert in_tokens(100, "characters", "word " * 50, 100, past=True) < 60
    assert in_tokens(57, "tokens", "whatever was written", 90, past=True) == 57
    # Up to the goal it is the same.
    for tokens in range(1, 40):
        text = "one " * tokens
        assert tokens > 20 or in_tokens(20, "words", text, tokens, past=True) == in_tokens(20, "words", text, tokens)


def test_the_last_word_may_be_finished_and_closed():
    assert in_tokens(3, "words", "one two thr", 4) == 5
    assert in_tokens(3, "words", "one two three", 5) == 6
    assert in_tokens(3, "words", "one two three.", 6) == 6


@given(st.lists(st.sampled_from(["alpha", "be", "gamma-ray", "delta,", "epsilon."]), min_size=1, max_size=120))
def test_the_loop_closes_on_the_goal(script):
    """A writer that stops when its count has come to 1 writes the wanted number of words, whatever its rate."""
    pieces = [piece for word in script * 40 for piece in (" " + word[:3], word[3:]) if piece]
    text, tokens = "", 0
    for piece in pieces:
        text, tokens = text + piece, tokens + 1
        if in_tokens(len(script), "words", text, tokens) <= tokens:
            break
    assert abs(words(text) - len(script)) <= 1


def test_prompted_names_the_target():
    assert asked("prompted", "Why?", 112, "tokens") == "Answer the following question in 112 tokens:\nWhy?"
    assert asked("prompted", "Why?", 1, "words") == "Answer the following question in 1 word:\nWhy?"
    assert asked("prompted", "Why?", 2000, "words") == "Answer the following question in 2000 words:\nWhy?"
    assert asked("prompted", "Why?", 20, "characters") == "Answer the following question in 20 characters:\nWhy?"


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ({"method": "ldpe", "target": 60}, "Why?\n\nAnswer in about 43 words."),
        ({"method": "orpe", "target": 60, "unit": "words"}, "Why?\n\nAnswer in about 60 words."),
        ({"method": "exp_decay", "target": 300, "unit": "characters"}, "Why?\n\nAnswer in about 46 words."),
        ({"method": "ldpe", "target": 1}, "Why?\n\nAnswer in about 1 word."),
        ({"method": "mnt_orpe", "limit": 140}, "Why?\n\nAnswer in at most 100 words."),
        ({"method": "mnt_orpe", "limit": 140, "unit": "words"}, "Why?\n\nAnswer in at most 140 words."),
        ({"method": "none", "target": 60}, "Why?"),
        ({"method": "prompted", "target": 60}, "Why?"),
    ],
    ids=str,
)
def test_the_wanted_length_is_said_in_words_beside_a_method_that_does_not_ask(asks, said):
    assert planned(RunSettings(prompt="Why?", in_prompt=True, **asks)) == said
    assert planned(RunSettings(prompt="Why?", **asks)) == "Why?"


def test_what_is_said_is_what_the_model_reads(embedded):
    asked_for = RunSettings(prompt="Why?", method="ldpe", target=60, in_prompt=True)
    read = embedded.tokenizer.decode(token_ids(asked_for, embedded.tokenizer))
    assert "Why?\n\nAnswer in about 43 words.<|im_end|>" in read
