"""Where sentences end."""

import pytest

from backend.sentences import final, sentence_lengths


@pytest.mark.parametrize(
    "text", ["It rains.", "Really?", 'He said "no."', "(So it is.)", "Stop!**", "It is done.\n", "Well…"]
)
def test_sentences_that_end(text):
    assert final(text)


@pytest.mark.parametrize("text", ["", "It rains", "Here is why:", "First.\n2.", "1.", "- a.", "one, two,", "3.1"])
def test_texts_that_do_not(text):
    assert not final(text)


def test_lengths_are_those_of_whole_sentences(embedded):
    text = 'Dr. Who met Mr. Li at 3.15 today. "Why?" he asked. They agreed on:\n1. Tea.\n2. Cake, e.g. plum. The end'
    tokens = embedded.tokenizer(text, add_special_tokens=False)["input_ids"]
    cut = [embedded.tokenizer.decode(tokens[:n]) for n in sentence_lengths(tokens, embedded.tokenizer)]
    starts = ["today.", '"Why?"', "asked.", "Tea.", "plum."]
    assert [piece.rstrip().endswith(end) for piece, end in zip(cut, starts, strict=True)] == [True] * 5


def test_no_sentence_no_length(embedded):
    tokens = embedded.tokenizer("no end here", add_special_tokens=False)["input_ids"]
    assert sentence_lengths(tokens, embedded.tokenizer) == []
    assert sentence_lengths([], embedded.tokenizer) == []
