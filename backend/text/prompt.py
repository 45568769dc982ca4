"""From a person's message to the model's token ids, and from new ids back to text, piece by piece."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from backend.methods import methods
from backend.models.pool import Loaded
from backend.refused import Refused
from backend.settings import Method, RunSettings, Unit, counted, noun
from backend.text.template import ALONE, chat, source
from backend.text.units import EXPECTED, in_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST = 131_072
# Tokens that are worth keeping for the next prompt, and how many at most: they are read at once and stay in memory.
LEAST, MOST = 8, 512


class Prompt(NamedTuple):
    """A prompt as the model reads it.

    ids [n]: its tokens. begins: how many of them, at most MOST, come before the person's words, 0 where these are few:
    what the chat template writes, and the messages before the prompt. tail: what the template writes after the words.
    specials: the model's special tokens that the messages hold as typed text.
    """

    ids: Tensor
    begins: int
    tail: str
    specials: list[str]


def token_ids(settings: RunSettings, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Ids [n] of `prompt`."""
    return prompt(settings, tokenizer).ids


def prompt(settings: RunSettings, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    """The words in the model's chat template (bare where it has none), after the messages before them, up to the
    assistant's turn.

    Special tokens typed in the words are text, unless the settings let them act. Raises ValueError where the prompt is
    too long to be read, or the template or the tokenizer does not take it.
    """
    words = asked(settings.method, planned(settings), settings.target, settings.unit)
    everything = "\n".join([*(turn.content for turn in settings.earlier), words])
    head, tail, specials = "", "", _specials(tokenizer, everything)
    plain = bool(specials) and not settings.special_tokens
    if tokenizer.chat_template:
        shaped = chat(words, tokenizer, settings.thinking, settings.earlier)
        ids, head, tail = _encoded(tokenizer, shaped.messages, plain, **shaped.options), shaped.head, shaped.tail
    elif settings.earlier:
        raise Refused(f"the model has no chat template, so it {ALONE}")
    else:
        ids = _bare(tokenizer, words, plain)
    if not ids:
        raise Refused("the model's tokenizer finds no token in the prompt: type some text")
    if len(ids) > LONGEST:
        raise Refused(f"the prompt has {len(ids):,} tokens, more than {LONGEST:,}: shorten it")
    return Prompt(torch.tensor(ids), _begins(tokenizer, head, ids), tail, specials)


def asked(method: Method, text: str, target: int, unit: Unit) -> str:
    """The words that a length method asks with; `text` itself, with most."""
    return methods[method].prompt(text, f"{target} {noun(target, unit)}")


def planned(settings: RunSettings) -> str:
    """The person's words, with the wanted length after them where it is to be said beside a method that steers it.

    It is said in words, since a model plans by them and not by tokens.
    """
    if not settings.in_prompt or not settings.steered or methods[settings.method].asks:
        return settings.prompt
    wanted = settings.goal
    if settings.unit != "words":
        wanted = max(1, round(in_tokens(wanted, settings.unit) / EXPECTED["words"].tokens))
    return f"{settings.prompt}\n\n{in_words(wanted, settings.limited)}"


def in_words(count: int, limited: bool = False) -> str:
    """The sentence that asks for so many words."""
    return f"Answer in {'at most' if limited else 'about'} {counted(count, 'words')}."


def _begins(tokenizer: PreTrainedTokenizerBase, head: str, ids: list[int]) -> int:
    """How many ids are of the head alone: a tokenizer may join its end with what comes after."""
    alone = tokenizer(head, add_special_tokens=False)["input_ids"] if head else []
    count = len([*takewhile(lambda pair: pair[0] == pair[1], zip(alone, ids, strict=False))])
    return min(count, MOST) if LEAST <= count < len(ids) else 0


def _encoded(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], plain: bool, **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True, sanitize_control_tokens=plain, **options
        )["input_ids"]
    except ValueError as error:
        raise Refused(
            f"the prompt holds a special token that this model's tokenizer never takes for text ({error}): leave it "
            "out, or allow special tokens"
        ) from error


def _bare(tokenizer: PreTrainedTokenizerBase, words: str, plain: bool) -> list[int]:
    """The words without a template, between the tokens that the tokenizer puts around any text."""
    if not plain:
        return tokenizer(words)["input_ids"]
    # Of a text that means nothing: a tokenizer may put no end after words that seem to hold one.
    whole, own = (tokenizer("a", add_special_tokens=around)["input_ids"] for around in (True, False))
    start = next((i for i in range(len(whole)) if whole[i : i + len(own)] == own), 0)
    message = [{"role": "user", "content": words}]
    text = _encoded(tokenizer, message, plain, chat_template="{{ messages[0]['content'] }}")
    return [*whole[:start], *text, *whole[start + len(own) :]]


def _specials(tokenizer: PreTrainedTokenizerBase, words: str) -> list[str]:
    """The tokens in the words that mean something to the model: special ones, and those that its template writes."""
    written = source(tokenizer)
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.content.isspace()]
    means = [token.content for token in added if token.special or token.content in written]
    return [content for content in dict.fromkeys(means) if content in words]


def end_ids(loaded: Loaded) -> list[int]:
    """Ids that end a response: those of the generation config, then the tokenizer's own; none where neither has one.

    Ids that the model cannot write are left out: transformers' generate takes them, and never meets them. ValueError
    for what is no number.
    """
    config = loaded.model.generation_config
    stored = config.eos_token_id if config else None
    named = [*(stored if isinstance(stored, (list, tuple)) else [stored]), loaded.tokenizer.eos_token_id]
    for end in named:
        if end is not None and not isinstance(end, (int, float)):
            raise Refused(
                f"eos_token_id in the generation_config.json of {loaded.capabilities.model!r} is {end!r}: write its "
                "token ids as numbers"
            )
    return list(dict.fromkeys(int(end) for end in named if end is not None and 0 <= end < loaded.capabilities.vocab))


class TextStream:
    """Text of a growing list of tokens, given out only when later tokens can no longer change it.

    specials: whether special tokens are written out; they are left out otherwise.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, specials: bool = False):
        self.tokenizer, self.specials = tokenizer, specials
        self.tokens: list[int] = []
        self.text = ""
        self._start = 0
        self._given = 0

    def add(self, token: int) -> str:
        """The text that one more token adds; "" while a character is incomplete."""
        self.tokens.append(token)
        before = self._decode(self.tokens[self._start : self._given])
        now = self._decode(self.tokens[self._start :])
        if now.endswith("\ufffd") or len(now) <= len(before):
            return ""
        new = now[len(before) :]
        self._start, self._given = self._given, len(self.tokens)
        self.text += new
        return new

    def _decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=not self.specials, clean_up_tokenization_spaces=False)
