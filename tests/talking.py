"""Tokenizers of every kind with one chat template, and a tiny Qwen3 that always writes one text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AddedToken,
    ByT5Tokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.convert_slow_tokenizer import bytes_to_unicode

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OFF = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
QWEN3 = CHATML.replace("assistant\n", f"assistant\n{OFF}")
TURNS = ("<|im_start|>", "<|im_end|>")
ALPHABET = bytes_to_unicode()


def _fast(core: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def bytes_of(pieces: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A byte-level BPE with a token for each byte and each piece."""
    names = ["<unk>", "<s>", "</s>", *ALPHABET.values()]
    names += ["".join(ALPHABET[byte] for byte in piece.encode()) for piece in pieces]
    core = Tokenizer(models.BPE({name: i for i, name in enumerate(dict.fromkeys(names))}, []))
    core.pre_tokenizer, core.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    return _fast(core)


def _fallen_back() -> PreTrainedTokenizerFast:
    """Like Llama 2's: a space before any text, bytes where a character is unknown."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "|", "i", "m", "▁m", "<", "|i"]
    merges = [("▁", "m"), ("|", "i")]
    core = Tokenizer(
        models.BPE({name: i for i, name in enumerate(names)}, merges, unk_token="<unk>", byte_fallback=True)
    )
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _fast(core)


def _unigrams() -> PreTrainedTokenizerFast:
    pieces = ["<unk>", "▁", *map(chr, range(33, 127)), "▁the", "im"]
    core = Tokenizer(models.Unigram([(piece, -float(i > 90) - 1) for i, piece in enumerate(pieces)], 0, True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    core.decoder = decoders.Metaspace(prepend_scheme="first")
    return _fast(core)


def _in_python() -> ByT5Tokenizer:
    """A tokenizer without the Rust library; its own class leaves its special tokens unmarked."""
    eos, unk = AddedToken("</s>", special=True), AddedToken("<unk>", special=True)
    return ByT5Tokenizer(eos_token=eos, unk_token=unk, extra_ids=0)


KINDS = {"bytes": bytes_of, "byte fallback": _fallen_back, "unigrams": _unigrams, "python": _in_python}


def tokenizer(kind: str) -> PreTrainedTokenizerBase:
    """One of KINDS, with special marks of turns and a thinking mark that is no special token."""
    made = KINDS[kind]()
    made.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in TURNS], special_tokens=True)
    made.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    made.chat_template = CHATML + "{# <think> #}{{ '<think>' if false }}"
    return made


def thinker(folder: Path, pieces: Sequence[str], template: str = QWEN3, added: dict[str, bool] | None = None) -> str:
    """A Qwen3 without attention that writes `pieces`, one token each and all different, then its end.

    added: tokens that the tokenizer takes whole, and whether they are special.
    """
    added = {"<|im_start|>": True, "<|im_end|>": True} | (added or {})
    made = bytes_of([piece for piece in pieces if piece not in added])
    for mark, special in added.items():
        made.add_tokens([AddedToken(mark, special=special, normalized=False)], special_tokens=special)
    made.chat_template = template
    ids = [made.convert_tokens_to_ids(p if p in added else "".join(ALPHABET[b] for b in p.encode())) for p in pieces]
    width = -(-len(made) // 64) * 64
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=len(made), hidden_size=width, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2,
        pad_token_id=2, tie_word_embeddings=False,
    ))  # fmt: skip
    following = dict.fromkeys(range(len(made)), ids[0]) | dict(zip(ids, [*ids[1:], 2], strict=True))
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(len(made), width))
        # The end is never quite out of the question, so that a penalty can raise it.
        model.lm_head.weight.zero_()[2] = 0.1
        for token, after in following.items():
            model.lm_head.weight[after, token] = 2
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return str(folder)


def with_template(folder: str, template: str | list[dict[str, str]]) -> str:
    """The folder, its tokenizer's chat template replaced."""
    file = Path(folder) / "tokenizer_config.json"
    (Path(folder) / "chat_template.jinja").unlink(missing_ok=True)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    return folder
