"""Where sentences end, in twelve languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from backend.text.sentences import final, mark, sentence_lengths, sentences

ENDS = [
    *("It rains.", "Really?", 'He said "no."', "(So it is.)", "Stop!**", "It is done.\n", "Well…", "He left..."),
    *("Great! 😊", "Done. 🎉🎉", "Thumbs up! 👍🏽", "It costs 3.50.", "It began in 1969.", "Why?!", "I love it!!!"),
    *("He said 'yes.'", "```python\nx = 1\n```", "Use it:\n```\nls\n```\n"),
    *("Es regnet.", "„Ja.“", "Er sagte: „Komm!“", "»Nein.«", "Wirklich?"),
    *("Il pleut.", "Il dit : « Oui. »", "Vraiment ?", "C’est vrai !", "¿De verdad?", "Llueve.", "Chove.", "Piove."),
    *("Идёт дождь.", "Правда?", "Βρέχει.", "Γιατί;", "Անձրև է գալիս։"),
    *("今天天气很好。", "我们走吧！", "你好吗？", "他说：“好。”"),
    *("今日はいい天気です。", "「行きましょう。」", "そうですか？"),
    *("आज मौसम अच्छा है।", "क्या यह सच है?", "الطقس جميل اليوم.", "هل الطقس جميل؟", "آج موسم اچھا ہے۔", "کیا؟"),
    *("ዛሬ ጥሩ ነው።", "오늘은 날씨가 좋습니다.", "정말요?", "မိုးရွာသည်။", "ཆར་པ་བབས།", "ភ្លៀង។"),
]
GO_ON = [
    *("", "It rains", "Here is why:", "First.\n2.", "1.", "- a.", "one, two,", "3.1", "It costs 3.", "😊", "Fine 😊"),
    *("because,.", "\n\n.", "and -.", "Mr.", "I met Mr.", "See Fig.", "Many fruits, e.g.", "It is i.e.", "on p."),
    *("He lives in the U.S.", "Dr. Who met Prof.", "J. R. R.", "Written by J.", "```python\nx = 1\n", "the 3."),
    *("Er kam z. B.", "Das ist z.B.", "Er wurde am 3.", "Herr Dr.", "Bonjour M.", "El Sr.", "O Sr.", "Это г."),
    *("今天天气", "我们，", "今日は", "आज मौसम", "الطقس", "الطقس،", "آج موسم", "ዛሬ ጥሩ", "오늘은", "Անձրև"),
]


@pytest.mark.parametrize("text", ENDS)
def test_sentences_that_end(text):
    assert final(text)


@pytest.mark.parametrize("text", GO_ON)
def test_texts_that_do_not(text):
    assert not final(text)


@pytest.mark.parametrize("text", [text for text in ENDS if "```" not in text])
def test_what_stands_before_changes_nothing(text):
    assert mark(f"One more thing, said before.\n\n{text}") == len("One more thing, said before.\n\n") + mark(text)
    assert final("A long text came before. " * 40 + "\n" + text)


@given(st.text())
def test_the_mark_is_in_the_text_and_more_white_space_moves_it_not(text):
    found = mark(text)
    assert found is None or not text[found].isspace()
    assert mark(text + "  \n") == found


def test_sentences_are_those_of_each_line():
    assert sentences("It rains. Dr. Low stays\nat home.\n\n今天。明天？") == [
        "It rains.", "Dr. Low stays", "at home.", "今天。", "明天？",
    ]  # fmt: skip
    assert sentences(" \n") == []


def test_lengths_are_those_of_whole_sentences(embedded):
    text = 'Dr. Who met Mr. Li at 3.15 today. "Why?" he asked. They agreed on:\n1. Tea.\n2. Cake, e.g. plum. The end'
    tokens = embedded.tokenizer(text, add_special_tokens=False)["input_ids"]
    cut = [embedded.tokenizer.decode(tokens[:n]) for n in sentence_lengths(tokens, embedded.tokenizer)]
    starts = ["today.", '"Why?"', "asked.", "Tea.", "plum."]
    assert [piece.rstrip().endswith(end) for piece, end in zip(cut, starts, strict=True)] == [True] * 5


def metaspace():
    """A tokenizer as Llama 2's and Mistral's: "▁" for a space, and bytes for what is unknown."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁It", "▁rains", "▁snows", "▁here", ".", "!", "▁"]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, [], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing("$0")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer), {piece: index for index, piece in enumerate(pieces)}


def test_spaces_that_a_token_alone_loses_count():
    tokenizer, ids = metaspace()
    tokens = [ids[p] for p in ("▁It", "▁rains", ".", "▁It", "▁snows", "!", "▁It", "▁rains", "▁here", ".", "▁It")]
    assert tokenizer.decode(tokens[3:5]) == "It snows" and tokenizer.decode(tokens[3:4]) == "It"
    assert sentence_lengths(tokens, tokenizer) == [3, 6, 10]


def test_a_character_of_several_tokens_is_one():
    tokenizer, ids = metaspace()
    smile = [ids[f"<0x{byte:02X}>"] for byte in "😊".encode()]
    tokens = [ids["▁It"], ids["▁rains"], ids["."], ids["▁"], *smile, ids["▁It"], ids["▁snows"], ids["."]]
    assert sentence_lengths(tokens, tokenizer) == [3, 8, 11]


def test_scripts_without_spaces_are_cut_at_their_marks(embedded):
    tokens = embedded.tokenizer("今天很好。我们走吧！后来", add_special_tokens=False)["input_ids"]
    cut = [embedded.tokenizer.decode(tokens[:n]) for n in sentence_lengths(tokens, embedded.tokenizer)]
    assert cut == ["今天很好。", "今天很好。我们走吧！"]


def test_no_sentence_no_length(embedded):
    tokens = embedded.tokenizer("no end here", add_special_tokens=False)["input_ids"]
    assert sentence_lengths(tokens, embedded.tokenizer) == []
    assert sentence_lengths([], embedded.tokenizer) == []
