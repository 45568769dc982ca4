"""A dense float64 reference of every position policy, written from the papers' definitions.

For each query t and key j it asks two plain questions: does t see j, and at which perceived distance? A query t reads
the text 0 … t, so the current length l_c of 004 eq. 9 is t + 1. Sources: 002 (LM-Infinite) §4, 004 (PIC) §3.1.
It shares no code with the engine: loops instead of frames, one softmax over all keys, no cache. Of a policy that
it does not know it takes the distances that the policy says itself.
"""
from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.positions import policy_of
from backend.settings import RunSettings

UNSEEN = math.nan


def position_id(m: int, length: int, settings: RunSettings) -> float:
    """g(m): position id of token m in a text of `length` tokens (004 eq. 7 and 9, counted from 0)."""
    if settings.ratio == 1 or settings.pic in ("none", "ntk", "yarn"):
        return m
    if settings.pic == "naive":
        return m / settings.ratio
    initial = initial_tokens(settings)
    first_recent = max(initial, length - settings.recent)
    if m < initial:
        return m
    if settings.reading == "literal":
        return m / settings.ratio if m < first_recent else m
    compressed = initial + (min(m, first_recent) - initial) / settings.ratio
    return compressed + max(0, m - first_recent)


def initial_tokens(settings: RunSettings) -> int:
    """Tokens that dynamic PIC leaves alone at the start; the sinks of Λ are among them."""
    return settings.initial if settings.window is None else max(settings.initial, settings.sinks)


def sees(t: int, j: int, settings: RunSettings) -> bool:
    """The Λ-shaped mask (002 §4.1): the starting tokens, and the last `window` tokens, t itself included."""
    if j > t:
        return False
    return settings.window is None or j < settings.sinks or t - j < settings.window


def limit(settings: RunSettings) -> float:
    """Largest perceived distance (002 §4.1)."""
    if settings.window is None or settings.distance_limit == "off":
        return math.inf
    return settings.window if settings.distance_limit == "window" else settings.distance_limit


def perceived(t: int, j: int, settings: RunSettings, prompt: int = 0) -> float:
    """Perceived distance of query t to key j, nan where unseen.

    prompt: tokens that were read under one frame, that of the whole prompt (004 Algorithm 1); 0 where each row is
    read under its own.
    """
    if not sees(t, j, settings):
        return UNSEEN
    if settings.pic == "streaming_llm":
        return slots_apart(t, j, settings)
    if settings.pic == "dual_chunk":
        return between_chunks(t, j, settings.recent)
    return min(bent(t, j, settings, max(t + 1, prompt)), limit(settings))


def bent(t: int, j: int, settings: RunSettings, length: int) -> float:
    """Perceived distance before the limit of Λ, in a text of `length` tokens."""
    far, ratio, recent = t - j, settings.ratio, settings.recent
    if settings.pic == "rerope":
        return min(far, recent)
    if settings.pic == "leaky_rerope":
        return far if far < recent else recent + (far - recent) / ratio
    if settings.pic == "self_extend":
        grouped = math.floor(t / ratio) - math.floor(j / ratio) + recent - math.floor(recent / ratio)
        return far if far < recent else grouped
    if settings.pic in ("none", "naive", "ntk", "dynamic", "yarn"):
        return position_id(t, length, settings) - position_id(j, length, settings)
    # A policy of somebody else's: what it says of itself.
    return float(policy_of(settings.model_copy(update={"window": None})).distance(np.array([t]), np.array([j]))[0, 0])


def slots_apart(t: int, j: int, settings: RunSettings) -> float:
    """StreamingLLM (arXiv 2309.17453, §3.2): how many kept tokens lie between."""
    return sum(sees(t, k, settings) for k in range(j, t))


def between_chunks(t: int, j: int, recent: int) -> float:
    """Dual Chunk Attention (arXiv 2402.17463, §3) with s = 3 · recent and c = 4 · recent; no limit is needed."""
    s, c = 3 * recent, 4 * recent
    apart = t // s - j // s
    if apart == 0:
        return t - j
    return (min(t % s + s, c) if apart == 1 else min(2 * s - 1, c)) - j % s


def logit_scale(t: int, settings: RunSettings, trained: int) -> float:
    """max(1, ln t / ln L) of both ReRoPEs for a text of t + 1 tokens."""
    return max(1.0, math.log(t + 1) / math.log(trained)) if settings.pic in ("rerope", "leaky_rerope") else 1.0


def yarn(theta: Tensor, base: float, trained: int, s: float) -> tuple[Tensor, float]:
    """YaRN's frequencies and its factor on queries and keys (arXiv 2309.00071, §3)."""
    d = 2 * len(theta)
    fast, slow = (d * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base)) for turns in (32, 1))
    fast, slow = max(0, math.floor(fast)), min(d - 1, math.ceil(slow))
    share = [1 - min(1.0, max(0.0, (k - fast) / (slow - fast or 0.001))) for k in range(d // 2)]
    m = torch.tensor(share, dtype=torch.float64)
    return theta * (m + (1 - m) / s), 0.1 * math.log(max(1.0, s)) + 1


def distances(n: int, settings: RunSettings, prompt: int = 0) -> Tensor:
    """Perceived distances [n, n] of all queries to all keys in float64, nan where unseen."""
    return torch.tensor(
        [[perceived(t, j, settings, prompt) for j in range(n)] for t in range(n)], dtype=torch.float64
    )


def frequencies(model: PreTrainedModel, settings: RunSettings) -> tuple[Tensor, float]:
    """θ_k = (b·s)^(−2k/d) in float64 (004 eq. 8; s = 1 but for NTK), or YaRN's; and a factor on queries and keys."""
    config = model.config
    factor = settings.ratio if settings.pic == "ntk" else 1.0
    if config.model_type == "gptj":
        base, width = 10_000.0, config.rotary_dim
    else:
        rope = config.rope_parameters
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        base, width = rope["rope_theta"], int(head * rope.get("partial_rotary_factor", 1.0))
    theta = (base * factor) ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return yarn(theta, base, trained(model), settings.ratio) if settings.pic == "yarn" else (theta, 1.0)


def trained(model: PreTrainedModel) -> int:
    """The training length."""
    return model.config.n_positions if model.config.model_type == "gptj" else model.config.max_position_embeddings


def rope_scores(q: Tensor, k: Tensor, delta: Tensor, theta: Tensor, interleaved: bool, factor: float = 1) -> Tensor:
    """q·R(δ)k, times factor², for q and k [heads, n, width] and distances [n, n].

    Dimensions beyond the rotated ones are plain.
    """
    width = 2 * len(theta)
    pairs = [(x[..., :width:2], x[..., 1:width:2]) if interleaved else x[..., :width].chunk(2, -1) for x in (q, k)]
    q_turning, k_turning = (torch.complex(*pair) for pair in pairs)
    turn = torch.exp(1j * delta.nan_to_num()[..., None] * theta)
    score = torch.einsum("hnf,hmf,nmf->hnm", q_turning, k_turning.conj(), turn).real
    return score * factor**2 + q[..., width:] @ k[..., width:].transpose(-1, -2)


def alibi_scores(q: Tensor, k: Tensor, delta: Tensor, scale: float) -> Tensor:
    """Scaled q·k − slope·δ with the slopes 2^(−8h/heads), h = 1 … heads (a power of two); scaled already."""
    heads = q.shape[0]
    slopes = torch.tensor([2.0 ** (-8 * h / heads) for h in range(1, heads + 1)], dtype=torch.float64)
    return (q @ k.transpose(-1, -2)) * scale - slopes[:, None, None] * delta.nan_to_num()


def scores(model: PreTrainedModel, settings: RunSettings, q: Tensor, k: Tensor, delta: Tensor) -> Tensor:
    """Pre-softmax scores [heads, n, n] of q [heads, n, width] and k [kv heads, n, width], −inf where unseen."""
    k, scale = k.repeat_interleave(q.shape[0] // k.shape[0], 0), q.shape[-1] ** -0.5
    if model.config.model_type == "mpt":
        score = alibi_scores(q, k, delta, scale)
    else:
        theta, factor = frequencies(model, settings)
        score = rope_scores(q, k, delta, theta, model.config.model_type == "gptj", factor) * scale
        score *= torch.tensor([[logit_scale(t, settings, trained(model))] for t in range(len(delta))])
    return score.masked_fill(delta.isnan(), -math.inf)


def forward(
    model: PreTrainedModel, tokens: Tensor, settings: RunSettings, prompt: int = 0
) -> tuple[Tensor, list[Tensor]]:
    """A dense forward of `model`, which must be in float64: logits [n, vocabulary] and each layer's scores."""
    assert model.dtype == torch.float64
    delta, seen = distances(len(tokens), settings, prompt), []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen.append(scores(model, settings, q, k, delta))
        values = v.repeat_interleave(q.shape[0] // v.shape[0], 0)
        return (seen[-1].softmax(-1) @ values).transpose(0, 1).flatten(1)

    with torch.inference_mode():
        out = FORWARD[model.config.model_type](model, model.get_input_embeddings()(tokens), attend)
    return out, seen


def logits(model: PreTrainedModel, tokens: Tensor, settings: RunSettings, prompt: int = 0) -> Tensor:
    """Next-token logits [n, vocabulary] of every row."""
    return forward(model, tokens, settings, prompt)[0]


def _heads(x: Tensor, width: int) -> Tensor:
    return x.unflatten(-1, (-1, width)).transpose(0, 1)


def _llama(model: PreTrainedModel, x: Tensor, attend) -> Tensor:
    for block in model.model.layers:
        h, own = block.input_layernorm(x), block.self_attn
        q, k, v = (_heads(project(h), own.head_dim) for project in (own.q_proj, own.k_proj, own.v_proj))
        q, k = (own.q_norm(q), own.k_norm(k)) if hasattr(own, "q_norm") else (q, k)
        x = x + own.o_proj(attend(q, k, v))
        x = x + block.mlp(block.post_attention_layernorm(x))
    return model.lm_head(model.model.norm(x))


def _gpt_neox(model: PreTrainedModel, x: Tensor, attend) -> Tensor:
    for block in model.gpt_neox.layers:
        own = block.attention
        q, k, v = _heads(own.query_key_value(block.input_layernorm(x)), 3 * own.head_size).chunk(3, -1)
        x = x + own.dense(attend(q, k, v)) + block.mlp(block.post_attention_layernorm(x))
    return model.get_output_embeddings()(model.gpt_neox.final_layer_norm(x))


def _gptj(model: PreTrainedModel, x: Tensor, attend) -> Tensor:
    for block in model.transformer.h:
        h, own = block.ln_1(x), block.attn
        q, k, v = (_heads(project(h), own.head_dim) for project in (own.q_proj, own.k_proj, own.v_proj))
        x = x + own.out_proj(attend(q, k, v)) + block.mlp(h)
    return model.lm_head(model.transformer.ln_f(x))


def _mpt(model: PreTrainedModel, x: Tensor, attend) -> Tensor:
    for block in model.transformer.blocks:
        own = block.attn
        q, k, v = (_heads(part, own.head_dim) for part in own.Wqkv(block.norm_1(x)).chunk(3, -1))
        x = x + own.out_proj(attend(q, k, v))
        x = block.ffn(block.norm_2(x), x)
    return nn.functional.linear(model.transformer.norm_f(x), model.lm_head.weight)


FORWARD = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _llama),
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "mpt": _mpt,
}
