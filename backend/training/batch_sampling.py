"""Many answers of one model at once, for training: all rows of a batch take each step together.

The engine's own rows come and go and have policies, probes and adapters of their own; a corpus needs none of this. It
is for models of Llama's shape. A GPU replays one recorded step (a CUDA graph), so that launching kernels costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backend.inference.responses import Response
from backend.models.capabilities import fusable

# Rows that are read at once: attention over their prompts holds all scores.
READ = 256
# Steps between two looks at whether all rows have ended.
LOOK = 16


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; a temperature of 0 takes the likeliest."""

    temperature: float = 0.7
    top_k: int = 50
    top_p: float = 0.9

    def draw(self, logits: Tensor) -> Tensor:
        """One token id for each row of logits [b, vocabulary]."""
        if not self.temperature:
            return logits.argmax(-1)
        best, ids = logits.float().topk(self.top_k)
        share = (best / self.temperature).softmax(-1)
        share = share.masked_fill(share.cumsum(-1) - share >= self.top_p, 0)
        # The Gumbel trick: torch.multinomial would wait for the device.
        noise = torch.empty_like(share).exponential_()
        return ids.gather(-1, (share / noise).argmax(-1, keepdim=True))[:, 0]


class Weights:
    """A Llama's weights, those that read the same rows joined; on the model's device, in its type."""

    def __init__(self, model: nn.Module):
        if not fusable(model.config):
            raise ValueError(f"answers in batches need a model of Llama's shape, not {model.config.model_type}")
        self.config = config = model.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.width = config.head_dim
        self.embedding = model.get_input_embeddings().weight.detach()
        self.head = model.get_output_embeddings().weight.detach()
        self.norm = model.base_model.norm.weight.detach()
        self.epsilon = config.rms_norm_eps
        theta = config.rope_parameters["rope_theta"]
        self.speeds = theta ** -(torch.arange(0, self.width, 2, device=self.norm.device).double() / self.width)
        self.layers = [self._layer(layer) for layer in model.base_model.layers]

    def _layer(self, layer: Any) -> list[Tensor]:
        a, m = layer.self_attn, layer.mlp
        joined = [(a.q_proj, a.k_proj, a.v_proj), (a.o_proj,), (m.gate_proj, m.up_proj), (m.down_proj,)]
        norms = [layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()]
        return [*(torch.cat([whole(each) for each in some]) for some in joined), *norms]

    def take(self, model: nn.Module) -> None:
        """Copy a model's weights into these, an adapter's product added: recorded steps go on with them."""
        for mine, layer in zip(self.layers, model.base_model.layers, strict=True):
            for kept, new in zip(mine, self._layer(layer), strict=True):
                kept.copy_(new)

    def turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [..., width] of positions."""
        phases = positions[..., None].double() * self.speeds
        both = torch.cat([phases, phases], -1)
        return both.cos().to(self.norm.dtype), both.sin().to(self.norm.dtype)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], attend: Callable[..., Tensor]) -> Tensor:
        """x [b, n, d] → last hidden states. attend(layer, q, k, v) has heads first: [b, heads, n, width]."""
        cos, sin = (each[:, None] for each in turns)
        for number, (qkv, out, gate_up, down, first, second) in enumerate(self.layers):
            joined = F.linear(F.rms_norm(x, first.shape, first, self.epsilon), qkv)
            parts = joined.unflatten(-1, (-1, self.width)).transpose(1, 2)
            q, k, v = parts.split((self.heads, self.groups, self.groups), 1)
            q, k = (each * cos + _half_turned(each) * sin for each in (q, k))
            x = x + F.linear(attend(number, q, k, v).transpose(1, 2).flatten(2), out)
            gate, up = F.linear(F.rms_norm(x, second.shape, second, self.epsilon), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.rms_norm(x, self.norm.shape, self.norm, self.epsilon)

    def read(self, x: Tensor, unseen: Tensor, keep: Callable[[int, Tensor, Tensor], None] | None = None) -> Tensor:
        """Last hidden states of embeddings [b, n, d] of which each row has `unseen` [b] before it that are padding."""
        n = x.shape[1]
        places = torch.arange(n, device=x.device)
        positions = (places - unseen[:, None]).clamp(min=0)
        mask = (places[:, None] >= places) & (places >= unseen[:, None, None])
        # What sees nothing would be no number, and is never looked at.
        mask = (mask | torch.eye(n, dtype=torch.bool, device=x.device))[:, None]

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if keep is not None:
                keep(number, k, v)
            k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (k, v))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        return self.forward(x, self.turns(positions), attend)


def whole(linear: nn.Module) -> Tensor:
    """A product's weight, with that of a peft LoRA around it."""
    if not hasattr(linear, "lora_A"):
        return linear.weight.detach()
    [name] = linear.active_adapters
    return (linear.base_layer.weight + linear.get_delta_weight(name)).to(linear.base_layer.weight.dtype).detach()


def _half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class _Batch:
    """The rows of one batch, of `longest` tokens at most each; what `signal` gives is added to what they read."""

    def __init__(
        self, weights: Weights, prompts: Sequence[Sequence[int]], longest: int, end: int, sampling: Sampling,
        signal: Callable[[slice, Tensor], Tensor] | None,
    ):  # fmt: skip
        self.weights, self.end, self.sampling, self.longest = weights, end, sampling, longest
        rows, self.n = len(prompts), max(map(len, prompts))
        device, kind = weights.norm.device, weights.norm.dtype
        ids = torch.full((rows, self.n), end)
        for row, prompt in zip(ids, prompts, strict=True):
            row[self.n - len(prompt) :] = torch.tensor(prompt)
        self.ids = ids.to(device)
        self.unseen = torch.tensor([self.n - len(prompt) for prompt in prompts], device=device)
        shape = len(weights.layers), rows, weights.groups, self.n + longest, weights.width
        self.keys, self.values = (torch.zeros(shape, dtype=kind, device=device) for _ in range(2))
        self.places = torch.arange(self.n + longest, device=device)
        self.signal = signal
        self.added = torch.zeros((longest, rows, weights.norm.numel()), dtype=kind, device=device)
        if signal is not None:
            for row in range(0, rows, READ):
                part = slice(row, row + READ)
                shown = signal(part, self.places[self.n :] - self.unseen[part, None])
                self.added[:, part] = shown.transpose(0, 1).to(kind)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.token = torch.zeros(rows, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.written = torch.full((longest, rows), end, device=device)

    def read(self) -> None:
        """Read the prompts and draw the first tokens."""
        last = []
        for row in range(0, len(self.ids), READ):
            part = slice(row, row + READ)
            x = F.embedding(self.ids[part], self.weights.embedding)
            if self.signal is not None:
                x = x + self.signal(part, self.places[: self.n] - self.unseen[part, None]).to(x.dtype)

            def keep(number: int, k: Tensor, v: Tensor, part: slice = part) -> None:
                self.keys[number, part, :, : self.n], self.values[number, part, :, : self.n] = k, v

            last.append(self.weights.read(x, self.unseen[part], keep)[:, -1])
        self._drawn(torch.cat(last))

    def _drawn(self, hidden: Tensor) -> None:
        self.token.copy_(self.sampling.draw(F.linear(hidden, self.weights.head)))
        self.ended |= self.token == self.end
        # What comes after its end is never looked at.
        self.written.index_copy_(0, self.step, torch.where(self.ended, self.end, self.token)[None])

    def advance(self) -> None:
        """Read the tokens drawn last, and draw the next."""
        weights, slot = self.weights, self.step + self.n
        x = F.embedding(self.token, weights.embedding) + self.added.index_select(0, self.step)[0]
        seen = (self.places >= self.unseen[:, None]) & (self.places <= slot)
        bias = torch.zeros(seen.shape, dtype=x.dtype, device=x.device).masked_fill(~seen, -torch.inf)[:, None, None]

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.keys[number].index_copy_(2, slot, k)
            self.values[number].index_copy_(2, slot, v)
            grouped = q.reshape(len(q), weights.groups, -1, weights.width)
            score = grouped @ self.keys[number].transpose(2, 3) / weights.width**0.5 + bias
            return (score.softmax(-1, torch.float32).to(q.dtype) @ self.values[number]).reshape(q.shape)

        hidden = weights.forward(x[:, None], weights.turns(slot - self.unseen[:, None]), attend)[:, 0]
        self.step += 1
        self._drawn(hidden)

    def responses(self) -> Iterator[Response]:
        for row in self.written.T.tolist():
            ended = self.end in row
            yield Response(row[: row.index(self.end)] if ended else row, ended)


@torch.no_grad()
def written(
    weights: Weights, prompts: Sequence[Sequence[int]], longest: int, end: int, sampling: Sampling,
    signal: Callable[[slice, Tensor], Tensor] | None = None,
) -> list[Response]:  # fmt: skip
    """An answer to each prompt, of at most `longest` tokens, EOS not counted.

    end: id of EOS. signal: given rows of the batch and 0-based positions [b, n] in prompt and response, what is added
    to the embeddings there [b, n, d]. Random numbers are torch's own.
    """
    batch = _Batch(weights, prompts, longest, end, sampling, signal)
    batch.read()
    advance = _recorded(batch) if batch.ids.is_cuda else batch.advance
    while int(batch.step) < longest - 1 and not bool(batch.ended.all()):
        for _ in range(min(LOOK, longest - 1 - int(batch.step))):
            advance()
    return list(batch.responses())


def _recorded(batch: _Batch) -> Callable[[], None]:
    """A step as a CUDA graph; the steps that precede its recording are steps of the batch."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(min(2, batch.longest - 1)):
            batch.advance()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch.advance()
    return graph.replay


@torch.no_grad()
def likelihoods(
    weights: Weights, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], last: Sequence[Sequence[int]]
) -> tuple[list[list[float]], list[list[float]]]:
    """What a model that is shown no signal says of answers: the log-probability of each token of theirs; and, after
    the whole of each, the probability of each of the groups of ids `last` together."""
    device, each, ends = weights.norm.device, [], []
    groups = [torch.tensor(group, device=device) for group in last]
    for row in range(0, len(prompts), READ):
        some = list(zip(prompts[row : row + READ], answers[row : row + READ], strict=True))
        n = max(len(prompt) + len(answer) for prompt, answer in some)
        ids = torch.zeros((len(some), n), dtype=torch.long)
        for line, (prompt, answer) in zip(ids, some, strict=True):
            line[n - len(prompt) - len(answer) :] = torch.tensor([*prompt, *answer])
        unseen = torch.tensor([n - len(prompt) - len(answer) for prompt, answer in some], device=device)
        ids = ids.to(device)
        hidden = weights.read(F.embedding(ids, weights.embedding), unseen)
        for line, state, (_, answer) in zip(ids, hidden, some, strict=True):
            likely = F.linear(state[n - len(answer) - 1 :], weights.head).float().log_softmax(-1)
            own = line[n - len(answer) :]
            each.append(likely[:-1].gather(-1, own[:, None])[:, 0])
            ends.append(torch.stack([likely[-1, group].exp().sum() for group in groups]))
    return [one.tolist() for one in each], [one.tolist() for one in ends]
