"""A tiny Llama that writes one known text: what comes out of a run is known before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<unk>", "<s>", "</s>")
END = SPECIAL.index("</s>")
HEAD = 64


def scripted(folder: Path, pieces: Sequence[str], ends: bool = True, certainty: float = 30.0) -> Path:
    """Save to `folder` a model that answers any prompt by these pieces, a token each, then EOS, or itself again.

    Pieces differ from each other. certainty: logit of the next piece, where all others have 0 (the RMS norm of
    a unit vector scales it). Attention adds nothing, so a token follows from the last one alone.
    """
    tokenizer, ids = _tokenizer(pieces)
    size = len(tokenizer)
    width = -(-size // HEAD) * HEAD
    config = LlamaConfig(
        vocab_size=size, hidden_size=width, intermediate_size=HEAD, num_hidden_layers=1, head_dim=HEAD,
        num_attention_heads=width // HEAD, num_key_value_heads=1, max_position_embeddings=4096,
        bos_token_id=1, eos_token_id=END, pad_token_id=END, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    following = dict.fromkeys(range(size), ids[0]) | dict(pairwise([*ids, END if ends else ids[0]]))
    with torch.no_grad():
        for weights in (model.model.layers[0].self_attn.o_proj, model.model.layers[0].mlp.down_proj, model.lm_head):
            weights.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size, width))
        for token, after in following.items():
            model.lm_head.weight[after, token] = certainty / width**0.5
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(pieces: Sequence[str]) -> tuple[PreTrainedTokenizerFast, list[int]]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    names = [byte_level.pre_tokenize_str(piece)[0][0] for piece in pieces]
    vocabulary = {name: place for place, name in enumerate(dict.fromkeys([*SPECIAL, *letters, *names]))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    return fast, [vocabulary[name] for name in names]
