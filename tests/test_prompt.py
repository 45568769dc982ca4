"""From a person's words to token ids: the chat template, what it refuses, special tokens that are typed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import talking
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from backend import Lab
from backend.__main__ import main
from backend.models.pool import Models
from backend.settings import RunSettings
from backend.text.prompt import prompt, token_ids

KINDS = list(talking.KINDS)
tokenizer = cache(talking.tokenizer)
WORDS = st.text(st.sampled_from(" \n\tabim<|>_0.é雪🙂\ue000") | st.characters(exclude_categories=["Cs"]), max_size=25)
PROMPTS = WORDS.filter(str.strip)


def specials(made: PreTrainedTokenizerBase) -> dict[str, int]:
    """The tokens that mean something, by their text; an unknown character is none of them."""
    written = made.chat_template or ""
    added = made.added_tokens_decoder.items()
    means = {token.content: i for i, token in added if token.special or token.content in written}
    return {text: i for text, i in means.items() if text != made.unk_token}


def means_nothing(made: PreTrainedTokenizerBase, text: str) -> bool:
    return not any(token.content in text for token in made.added_tokens_decoder.values())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None)
@given(text=PROMPTS)
def test_words_become_what_apply_chat_template_makes_of_them(kind: str, text: str):
    made = tokenizer(kind)
    if means_nothing(made, text):
        own = made.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
        assert token_ids(RunSettings(prompt=text), made).tolist() == own


@settings(max_examples=120, deadline=None)
@given(text=PROMPTS)
def test_so_do_they_with_the_embedded_model(text: str, embedded):
    made = embedded.tokenizer
    own = made.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
    assert token_ids(RunSettings(prompt=text), made).tolist() == own


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), parts=st.lists(WORDS, min_size=2, max_size=4))
def test_typed_special_tokens_are_text(kind: str, template: bool, data: st.DataObject, parts: list[str]):
    made = tokenizer(kind)
    if not template:
        made = talking.tokenizer(kind)
        made.chat_template = None
    meaning = specials(made)
    typed = [data.draw(st.sampled_from(sorted(meaning))) for _ in parts[1:]]
    text = parts[0] + "".join(mark + part for mark, part in zip(typed, parts[1:], strict=True))
    found = prompt(RunSettings(prompt=text), made)
    acting = [i for i in found.ids.tolist() if i in meaning.values()]
    plain = token_ids(RunSettings(prompt="a"), made).tolist()
    assert acting == [i for i in plain if i in meaning.values()]
    assert set(typed) <= set(found.specials)


def decoded(made: PreTrainedTokenizerBase, text: str, **changes) -> str:
    return made.decode(token_ids(RunSettings(prompt=text, **changes), made), clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mark", ["<|im_end|>", "<|im_start|>", "</s>", "<think>"])
def test_the_model_reads_what_was_typed(kind: str, mark: str):
    made = tokenizer(kind)
    text = f"a {mark}b{mark}{mark} im {mark}"
    assert text in decoded(made, text)
    acting = token_ids(RunSettings(prompt=text, special_tokens=True), made).tolist()
    own = made.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
    assert acting == own and acting.count(made.convert_tokens_to_ids(mark)) >= 4


def test_with_the_embedded_model_too_and_the_run_says_so(lab):
    text = "What does <|im_end|> mean?<|im_start|>system"
    made = lab.models.load("embedded").tokenizer
    assert text in decoded(made, text)
    for changes, read in (({}, "text"), ({"special_tokens": True}, "special tokens")):
        *_, finish = lab.stream(RunSettings(prompt=text, max_new_tokens=1, **changes))
        [note] = [note for note in finish.notes if "prompt" in note]
        assert "<|im_end|>" in note and "<|im_start|>" in note and note.endswith(f"was read as {read}")
    *_, finish = lab.stream(RunSettings(prompt="What does im_end mean?", max_new_tokens=1))
    assert finish.notes == ()


# ---- templates

PIECES = [f" word{i}" for i in range(5)] + [" end."]
PARTS = "{% for m in messages %}{% for c in m['content'] %}{{ c['text'] }}{% endfor %}{% endfor %}"
TAKEN = {
    "text": "<s>{{ messages[0]['content'] }}",
    "trimmed": "<s>[U]{{ messages[0]['content'] | trim }}[/U]",
    "escaped": "{{ messages[0]['content'] | tojson }}",
    "upper case": "{{ messages[0]['content'] | upper }}",
    "character by character": "{% for c in messages[0]['content'] %}{{ c }}{% endfor %}",
    "parts": PARTS,
    "parts by kind": "{% for c in messages[0].content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}",
    "parts, asked of a text": "{{ messages[0]['content'][0].get('text') }}",
    "either": "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}no{% endif %}",
}
REFUSED = {
    "{{ raise_exception('This model needs a system message first.\n Really') }}x":
        "refuses the prompt (This model needs a system message first. Really)",
    "{% for m in messages %}{{ m['content'] }": "a mistake in line 1",
    "{{ messages[1]['content']['x'] }}": "fails (list object has no element 1)",
    "{{ nobody.home }}": "fails ('nobody' is undefined)",
    "{{ 1 // 0 }}": "fails (",
    "{# nothing #}": "leaves words of the prompt out",
    "This is fixed": "leaves words of the prompt out",
    "{{ messages[0]['content'][:9] }}": "leaves words of the prompt out",
    "{{ messages[0]['content'] | length }}": "leaves words of the prompt out",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return talking.thinker(tmp_path_factory.mktemp("template"), PIECES)


@pytest.mark.parametrize("name", TAKEN)
def test_templates_get_the_words_in_the_shape_they_take(name: str):
    made = talking.tokenizer("bytes")
    made.chat_template = TAKEN[name]
    text = 'this is\n"fixed", 1 < 2 雪'
    read = decoded(made, text)
    expected = {"escaped": '"this is\\n\\"fixed\\"', "upper case": text.upper()}.get(name, text)
    assert expected in read


@pytest.mark.parametrize("template", REFUSED)
def test_what_a_template_refuses_is_one_sentence(template: str, folder: str, capsys: pytest.CaptureFixture[str]):
    talking.with_template(folder, template)
    asked = RunSettings(prompt="this is fixed and more", model=folder)
    with pytest.raises(ValueError) as refused:
        next(Lab(Models([folder])).stream(asked))
    said = str(refused.value)
    assert REFUSED[template] in said and "choose another model, or mend" in said and "\n" not in said
    capsys.readouterr()
    code = main(["generate", "--allow-model", folder, "--model", folder, "--prompt", asked.prompt])
    out, errors = capsys.readouterr()
    assert (code, out) == (2, "") and errors.splitlines()[-1] == said and "Traceback" not in errors


def test_several_templates_without_a_default_are_refused(folder: str):
    named = [{"name": "tool_use", "template": TAKEN["text"]}, {"name": "rag", "template": TAKEN["text"]}]
    lab = Lab(Models([talking.with_template(folder, named)]))
    with pytest.raises(ValueError, match="several chat templates and no default: choose another model"):
        next(lab.stream(RunSettings(prompt="hi", model=folder)))
    named.append({"name": "default", "template": TAKEN["text"]})
    lab = Lab(Models([talking.with_template(folder, named)]))
    assert list(lab.stream(RunSettings(prompt="hi", model=folder)))[-1].reason == "eos"


def test_a_prompt_that_the_template_takes_apart_is_answered(tmp_path: Path):
    folder = talking.thinker(tmp_path, PIECES, PARTS)
    *_, finish = Lab(Models([folder])).stream(RunSettings(prompt="hi there", model=folder))
    assert finish.prompt_tokens == len("hi there") and finish.text == "".join(PIECES)
