"""Which EOS training puts after an answer: the one the chat template writes, whatever the configs list first."""

from itertools import permutations

import pytest
from tokenizers import AddedToken

from backend.models.capabilities import describe
from backend.models.pool import Loaded
from backend.training import train as training
from backend.training.data import Sample
from backend.training.ends import all_ends, answer_end
from backend.training.settings import TrainSettings
from tests.conftest import tiny_model, tiny_tokenizer

# Each the shape of its family's own template, as far as turns and their ends go.
CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
SYSTEM = "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}"
LLAMA_2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<s>[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + ' </s>' }}{% endif %}{% endfor %}"
)
LLAMA_3 = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
)
MISTRAL = (
    "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
    "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}"
)
QWEN_3 = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
)
# Template, the end it writes, the tokenizer's own end, and what the generation config lists.
FAMILIES = {
    "Llama 2": (LLAMA_2, "</s>", "</s>", ["</s>"]),
    "Llama 3": (LLAMA_3, "<|eot_id|>", "<|eot_id|>", ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]),
    "Llama 3, as first published": (LLAMA_3, "<|eot_id|>", "<|end_of_text|>", ["<|end_of_text|>"]),
    "Mistral": (MISTRAL, "</s>", "</s>", ["</s>"]),
    "Qwen 2": (SYSTEM + CHATML, "<|im_end|>", "<|im_end|>", ["<|im_end|>", "<|endoftext|>"]),
    "Qwen 3": (QWEN_3, "<|im_end|>", "<|im_end|>", ["<|im_end|>", "<|endoftext|>"]),
    "SmolLM2": (SYSTEM + CHATML, "<|im_end|>", "<|im_end|>", ["<|im_end|>"]),
    "GPT-NeoX": (None, "<|endoftext|>", "<|endoftext|>", ["<|endoftext|>"]),
    "GPT-J": (None, "<|endoftext|>", "<|endoftext|>", None),
    "MPT": (None, "<|endoftext|>", "<|endoftext|>", ["<|pad|>", "<|endoftext|>"]),
    "no end in the template": ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "</s>", "</s>", ["</s>"]),
    "a template for questions alone": (
        "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}{% endfor %}",
        "</s>", "</s>", ["</s>"],
    ),
    "a template that drops answers": ("{{ '</s>' + messages[0].content + '<|eot_id|>' }}", "</s>", "</s>", ["</s>"]),
}  # fmt: skip
MARKS = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|im_start|>", "<think>", "</think>",
    "<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|pad|>",
)  # fmt: skip


def loaded_with(template, eos, ends) -> Loaded:
    tokenizer, model = tiny_tokenizer(), tiny_model("llama")
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    tokenizer.chat_template, tokenizer.eos_token = template, eos
    model.generation_config.eos_token_id = ends and tokenizer.convert_tokens_to_ids(ends)
    return Loaded(model, tokenizer, describe("tiny", model, "fp32"))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_ends_as_its_template_ends_it(family):
    template, end, eos, listed = FAMILIES[family]
    for order in permutations(listed) if listed else [None]:
        loaded = loaded_with(template, eos, order and list(order))
        names = loaded.tokenizer.convert_ids_to_tokens(all_ends(loaded))
        assert names[0] == end and set(names) == {end, *(listed or [])}
        assert answer_end(loaded) == loaded.tokenizer.convert_tokens_to_ids(end)


def test_a_training_labels_that_end_and_keeps_the_untouched_model_from_teaching_any(tmp_path):
    loaded = loaded_with(*(FAMILIES["Llama 3"][i] for i in (0, 2, 3)))
    settings = TrainSettings(method="ldpe", samples=4, rank=2, alpha=4, longest=20, match=1.0)
    run = training._Run(loaded, [Sample("", (5, 6), (7,) * 20, (4,))], settings, tmp_path / "t")
    name = loaded.tokenizer.convert_ids_to_tokens
    assert name(run.end) == "<|eot_id|>"
    assert set(name(run.model.ends)) == {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}


def test_a_model_without_an_end_is_refused():
    loaded = loaded_with(None, None, None)
    loaded.model.config.eos_token_id = None
    with pytest.raises(ValueError, match="set eos_token_id"):
        answer_end(loaded)


def test_the_embedded_model_ends_as_it_did(embedded):
    assert embedded.tokenizer.convert_ids_to_tokens(all_ends(embedded)) == ["<|im_end|>"]
