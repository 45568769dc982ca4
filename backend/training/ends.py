"""The EOS token that training puts after an answer, and every id that ends one.

A model's generation config may list several ids in any order: Llama 3's names <|end_of_text|> first, and its chat
template ends an answer with <|eot_id|>. What the model was taught stands in the template.
"""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from backend.models.pool import Loaded
from backend.refused import Refused
from backend.text.prompt import end_ids

ANSWER = "Yes."


def written_end(tokenizer: PreTrainedTokenizerBase, known: Iterable[int] = ()) -> int | None:
    """Id of the EOS token that the chat template writes after an assistant's answer: the first one behind it that is
    known to end answers or that the tokenizer was given besides its vocabulary. None where there is none."""
    if not tokenizer.chat_template:
        return None
    asked = [{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": ANSWER}]
    try:
        text = tokenizer.apply_chat_template(asked, tokenize=False)
    except TemplateError:
        return None
    _before, answer, behind = str(text).rpartition(ANSWER)
    marks = {*known, *tokenizer.added_tokens_decoder}
    ids = tokenizer(behind, add_special_tokens=False)["input_ids"] if answer else []
    return next((token for token in ids if token in marks), None)


def answer_end(loaded: Loaded) -> int:
    """Id of EOS to train on: the template's; without one the tokenizer's, then the generation config's first.

    ValueError for a model that has none.
    """
    known = end_ids(loaded)
    written = written_end(loaded.tokenizer, known)
    if written is not None:
        return written
    if loaded.tokenizer.eos_token_id in known or not known:
        known = [loaded.tokenizer.eos_token_id]
    if known[0] is None:
        raise Refused("the model has no EOS: set eos_token_id in its generation config")
    return int(known[0])


def all_ends(loaded: Loaded) -> list[int]:
    """Every id that ends an answer, the one to train on first."""
    first = answer_end(loaded)
    return [first, *sorted(set(end_ids(loaded)) - {first})]
