"""Many responses at once from one Llama-shaped model, under any policy without a window: for evaluation and for
training data.

Requests wait for one of a few slots; a slot that falls free takes the next. Rows are never padded: each has its own
length, and a row's prompt is read alone. A decode step of 48 rows costs about as much as two of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from backend.capabilities import LLAMA_SHAPED, head_dim
from backend.finite import check_finite
from backend.inference.lora import Lora, attach, beside
from backend.positions import Policy, Rope
from backend.positions.policy import COMPRESSED, NEAR
from backend.refused import Refused
from backend.signals import SignalSettings, prompt_norms, signal_rows

STRIDE = 64
SLOTS = 48
# A nucleus is looked for among so many tokens first: to sort a whole vocabulary takes as long as to read a layer.
LIKELIEST = 1024

Phases = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Request:
    """One response to write.

    ids [n]: tokens of the prompt. most: hard cap on new tokens. goal: the target in tokens, given the tokens written
    so far; asked before each of them, so it may change.
    """

    ids: Tensor
    most: int
    goal: Callable[[list[int]], int] | None = None


@dataclass(frozen=True)
class Response:
    """Tokens written, EOS not counted, and whether EOS came before the cap."""

    tokens: list[int]
    ended: bool


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k (0: all), then top_p: the likeliest tokens, then the smallest set of that
    probability. seed: with its index, that of a request, whichever others are written beside it.
    """

    temperature: float = 0.0
    top_k: int = 50
    top_p: float = 1.0
    seed: int = 0


@dataclass
class _Row:
    index: int
    request: Request
    random: torch.Generator
    tokens: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens in the cache before the newest one is read."""
        return len(self.request.ids) + max(0, len(self.tokens) - 1)


def write(
    model: PreTrainedModel,
    requests: Iterable[Request],
    ends: list[int],
    room: int,
    signal: SignalSettings | None = None,
    sampling: Sampling | None = None,
    slots: int = SLOTS,
    policy: Policy | None = None,
    lora: Lora | None = None,
) -> Iterator[tuple[int, Response]]:
    """Write all requests; yields (index of the request, response) as they end, not in order.

    room: longest prompt and response together, in tokens. ends: ids of EOS. signal: shows each request's
    goal. policy: plain without. lora: of an adapter, for all. ValueError for a model of another shape, a window, a
    request that needs more room, or a prompt that dynamic PIC would compress by itself; FloatingPointError where the
    logits are not finite.
    """
    policy = policy or Policy()
    if model.config.model_type not in LLAMA_SHAPED:
        raise Refused(f"batches need a model of the families {', '.join(sorted(LLAMA_SHAPED))}")
    if policy.window is not None:
        raise Refused("batches have no Λ window: write such responses one by one")
    attach(model)
    return _Batch(model, ends, room, signal, sampling or Sampling(), slots, policy, lora).responses(requests)


class _Batch:
    def __init__(
        self, model, ends: list[int], room: int, signal, sampling: Sampling, slots: int, policy: Policy,
        lora: Lora | None,
    ):  # fmt: skip
        config = model.config
        self.lora = lora
        self.model, self.body, self.ends, self.signal = model, model.base_model, ends, signal
        self.device, self.dtype = model.device, model.dtype
        self.policy, self.rope = policy, Rope.of(config, policy.base_factor)
        self.width = head_dim(config)
        self.room, self.slots = -(-room // STRIDE) * STRIDE, slots
        shape = (config.num_hidden_layers, slots, config.num_key_value_heads, self.room, self.width)
        self.keys = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.values = torch.zeros_like(self.keys)
        self.stores = [self.keys, self.values]
        if policy.moves:
            self.raw = torch.zeros_like(self.keys)
            self.stores.append(self.raw)
        self.phases = self._phases(policy.key_frame(np.arange(self.room), NEAR))
        self.sampling = sampling

    def responses(self, requests: Iterable[Request]) -> Iterator[tuple[int, Response]]:
        waiting = iter(enumerate(requests))
        rows: list[_Row] = []
        while True:
            while len(rows) < self.slots and (following := next(waiting, None)) is not None:
                random = torch.Generator(self.device).manual_seed(1_000_003 * self.sampling.seed + following[0])
                rows.append(_Row(*following, random))
                rows[-1].tokens.append(self._prefill(rows[-1], len(rows) - 1))
            if not rows:
                return
            for slot in reversed(range(len(rows))):
                row = rows[slot]
                ended = row.tokens[-1] in self.ends
                if ended or len(row.tokens) >= row.request.most:
                    self._release(rows, slot)
                    yield row.index, Response(row.tokens[:-1] if ended else row.tokens, ended)
            if rows:
                for row, token in zip(rows, self._decode(rows), strict=True):
                    row.tokens.append(token)

    def _release(self, rows: list[_Row], slot: int) -> None:
        """Free a slot by moving the last row into it, so that the rows under way are always the first slots."""
        last = len(rows) - 1
        if slot != last:
            for store in self.stores:
                store[:, slot] = store[:, last]
            rows[slot] = rows[last]
        rows.pop()

    @torch.inference_mode()
    def _prefill(self, row: _Row, slot: int) -> int:
        n = len(row.request.ids)
        if n + row.request.most > self.room:
            raise Refused(f"a prompt of {n} tokens and {row.request.most} more need more room than {self.room}")
        if self.policy.kind == "dynamic" and self.policy.near_start(np.array(n - 1)) > self.policy.initial:
            raise Refused(f"a prompt of {n} tokens is compressed by itself: write its response alone")
        phases = self.phases[0][:n], self.phases[1][:n]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if self.policy.moves:
                self.raw[layer, slot, :, :n] = k
            q, k = self.rope.rotate(q, phases), self.rope.rotate(k, phases)
            self.keys[layer, slot, :, :n], self.values[layer, slot, :, :n] = k, v
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]

        hidden = self._hidden(row.request.ids, torch.arange(n)[:, None], [row], attend)
        return self._chosen(hidden[-1:], [row])[0]

    @torch.inference_mode()
    def _decode(self, rows: list[_Row]) -> list[int]:
        count = len(rows)
        lengths = torch.tensor([row.length for row in rows], device=self.device)
        reach = -(-(int(lengths.max()) + 1) // STRIDE) * STRIDE
        every = torch.arange(count, device=self.device)
        seen = torch.arange(reach, device=self.device) <= lengths[:, None]
        mask = torch.zeros(count, 1, 1, reach, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~seen[:, None, None], -torch.inf)
        phases = self.phases[0][lengths], self.phases[1][lengths]
        compressed = self._squeeze(lengths, reach)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            if self.policy.moves:
                self.raw[layer][every, :, lengths] = k.transpose(0, 1)
            keys[every, :, lengths] = self.rope.rotate(k, phases).transpose(0, 1)
            values[every, :, lengths] = v.transpose(0, 1)
            keys, values = keys[:count, :, :reach], values[:count, :, :reach]
            near = self._grouped(q, phases, len(k))
            if compressed is None:
                out = F.scaled_dot_product_attention(near, keys, values, mask.expand(-1, 1, near.shape[2], -1))
            else:
                far, behind = compressed
                scores = torch.where(behind, self._grouped(q, far, len(k)) @ keys.mT, near @ keys.mT).float()
                weights = torch.softmax(scores * self.width**-0.5 + mask, -1).to(self.dtype)
                out = weights @ values
            return out.reshape(count, -1, self.width).transpose(0, 1)

        newest = torch.tensor([row.tokens[-1] for row in rows])
        return self._chosen(self._hidden(newest, lengths.cpu()[:, None], rows, attend), rows)

    def _squeeze(self, lengths: Tensor, reach: int) -> tuple[Phases, Tensor] | None:
        """Turn the key that leaves each row's recent part into its compressed frame.

        Returns the newest tokens' phases towards compressed keys, and which keys [rows, 1, 1, reach] these are; None
        where there are none.
        """
        if self.policy.kind != "dynamic":
            return None
        near = self.policy.near_start(lengths.cpu().numpy())
        moved = np.flatnonzero(near > self.policy.initial)
        if len(moved) == 0:
            return None
        slots, leaving = torch.from_numpy(moved), torch.from_numpy(near[moved] - 1)
        cos, sin = self._phases(self.policy.key_frame(near[moved] - 1, COMPRESSED))
        turned = self.rope.rotate(self.raw[:, slots, :, leaving], (cos[:, None, None], sin[:, None, None]))
        self.keys[:, slots, :, leaving] = turned
        # A row that has compressed nothing yet sees all of its keys as near ones.
        behind = np.where(near > self.policy.initial, near, 0)
        far = self._phases(self.policy.query_frame(lengths.cpu().numpy(), COMPRESSED))
        return far, (torch.arange(reach) < torch.from_numpy(behind)[:, None])[:, None, None].to(self.device)

    def _phases(self, frames: np.ndarray) -> Phases:
        return self.rope.phases(frames, self.dtype, self.device)

    def _grouped(self, q: Tensor, phases: Phases, groups: int) -> Tensor:
        """Rotated queries [rows, kv heads, heads of each, width]."""
        return self.rope.rotate(q, phases).transpose(0, 1).reshape(q.shape[1], groups, -1, self.width)

    def _hidden(self, tokens: Tensor, places: Tensor, rows: list[_Row], attend) -> Tensor:
        """Last hidden states [m, d] of tokens [m] at places [m, 1] of m rows, or of the one row given."""
        x = F.embedding(tokens.to(self.device), self.model.get_input_embeddings().weight)
        if self.signal is not None:
            x = (x + self._signal(places, rows, x.shape[-1]).to(x.device)).to(x.dtype)
        with beside([self.lora]):
            for index, block in enumerate(self.body.layers):
                x = self._block(block, index, x, attend)
        return self.body.norm(x)

    def _block(self, block, index: int, x: Tensor, attend) -> Tensor:
        attention, h = block.self_attn, block.input_layernorm(x)
        q, k, v = (
            project(h).view(len(x), -1, self.width).transpose(0, 1)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        mixed = attend(index, q, k, v)
        x = x + attention.o_proj(mixed.transpose(0, 1).reshape(len(x), -1))
        return x + block.mlp(block.post_attention_layernorm(x))

    def _signal(self, places: Tensor, rows: list[_Row], width: int) -> Tensor:
        prompts = torch.tensor([len(row.request.ids) for row in rows])[:, None]
        goals = torch.tensor([max(1, row.request.goal(row.tokens)) if row.request.goal else 1 for row in rows])
        table = self.model.get_input_embeddings().weight
        norms = prompt_norms(self.signal.scale, table, [row.request.ids for row in rows])
        return signal_rows(self.signal, places, prompts, goals[:, None], width, norms)[:, 0]

    def _chosen(self, hidden: Tensor, rows: list[_Row]) -> list[int]:
        scores, sampling = self.model.get_output_embeddings()(hidden).float(), self.sampling
        check_finite(scores)
        if sampling.temperature == 0:
            return scores.argmax(-1).tolist()
        return [
            int(tokens[torch.multinomial(weights, 1, generator=row.random)])
            for row, (weights, tokens) in zip(rows, map(self._nucleus, scores / sampling.temperature), strict=True)
        ]

    def _nucleus(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the tokens that may be drawn, the likeliest first, and their ids."""
        sampling = self.sampling
        if sampling.top_k:
            best, tokens = scores.topk(min(sampling.top_k, len(scores)))
            weights = torch.softmax(best, -1)
        else:
            likely = torch.softmax(scores, -1)
            weights, tokens = likely.topk(min(LIKELIEST, len(scores)))
            if float(weights.sum()) < sampling.top_p:
                weights, tokens = likely.sort(descending=True)
        return weights.masked_fill(weights.cumsum(-1) - weights >= sampling.top_p, 0), tokens
