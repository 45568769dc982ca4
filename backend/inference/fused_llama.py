"""Llama-shaped models on the CPU: one token through compiled kernels, many rows through torch's products.

The mathematics is transformers' own; what differs is the order of roundings in bf16. A single token's cost is the
reading of weights and cache, so each is read once, in the order in which it lies (`make bench` reports the bandwidth
reached). Projections of the same input are joined, and the weights of all layers lie in one tensor.

torch's products round by the number of rows, not by what the others are. Short chunks are therefore multiplied in
blocks of fixed sizes, filled up with zeros, and so several sequences can share them (`backend.inference.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.families import head_dim
from backend.inference.attention import attend
from backend.inference.blocks import MOST, SIZES, Blocks, agreeing, filled
from backend.inference.kernels import chunks, decoder, rows
from backend.inference.kernels.lora import Adapted, Joined, Loras, add_rows, ends, joined, loras
from backend.inference.kernels.place import pasts, places, stored
from backend.inference.kv_cache import FramedCache, Shape
from backend.inference.probes import Probe
from backend.inference.quantised_linear import KINDS, Projection
from backend.models.capabilities import fusable
from backend.models.lora import Lora
from backend.positions import Plain

Norm = tuple[Tensor, float]


@dataclass
class Part:
    """The rows of one sequence among those of a chunk. error: what ended it, after which its rows mean nothing."""

    rows: slice
    cache: FramedCache
    probe: Probe | None
    error: Exception | None = None


class Short:
    """The parts of a chunk whose attention is compiled. Of their scores entropies, log-sum-exps and last queries are
    kept for probes."""

    def __init__(self, parts: Sequence[Part], layers: int, heads: int):
        self.parts = parts
        caches = [part.cache for part in parts]
        self._pasts, self._rows = pasts(caches), chunks.rows(caches, [part.rows.start for part in parts])
        count, width = len(self._rows.row), caches[0].shape.width
        self._ends = np.cumsum([part.rows.stop - part.rows.start for part in parts])
        self._queries = np.empty((count, 1, heads, width), np.float32)
        self._last = np.empty((len(parts), layers, 1, heads, width), np.float32)
        self._entropy, self._lse = (np.empty((layers, count, heads), np.float32) for _ in range(2))

    @classmethod
    def of(cls, parts: Sequence[Part], layers: int, heads: int) -> Short | None:
        """None of no parts."""
        return cls(parts, layers, heads) if parts else None

    def attend(self, layer: int, norms: chunks.Norms, qkv: Tensor, mixed: Tensor) -> None:
        """qkv [n, heads + 2·kv heads, width] → mixed [n, heads, width]."""
        chunks.attended(
            torch.get_num_threads(), layer, norms, self._pasts, self._rows, stored(qkv), self._queries, stored(mixed),
            self._entropy[layer], self._lse[layer],
        )  # fmt: skip
        self._last[:, layer] = self._queries[self._ends - 1]

    def show(self) -> None:
        """Show the probes what was kept for them."""
        seen = (self._rows.pieces[..., 1] - self._rows.pieces[..., 0]).sum(-1)
        for part, end, queries in zip(self.parts, self._ends, self._last, strict=True):
            if part.probe is not None:
                count = part.rows.stop - part.rows.start
                found = end - count + np.array(part.probe.sampled(count))
                entropy = self._entropy[:, found].transpose(1, 0, 2)
                kept = entropy, self._lse[:, end - 1], queries, seen[found]
                part.probe.chunk(*map(torch.from_numpy, kept))


@dataclass(frozen=True)
class Layer:
    """One decoder layer's norms, for many rows."""

    before: Norm
    after: Norm
    q_norm: Norm | None
    k_norm: Norm | None


class Fused:
    """A Llama-shaped causal LM. A sequence's numbers are the same to the last bit whichever are read beside it.

    precision: bf16 or fp32 keep the weights as they are, and the model's own become views of the joined ones; int8 and
    int4 round a copy (the head of int4 to int8).
    """

    def __init__(self, model: PreTrainedModel, precision: str):
        config = model.config
        body, head = KINDS[precision]
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = head_dim(config)
        blocks = model.base_model.layers
        groups = [*zip(*map(_groups, blocks), strict=True)]
        self.products: list[Projection] = [body(*_weights(group)) for group in groups]
        self.adapted = [Adapted.of(model, group) for group in groups]
        self._ends = ends(self.adapted)
        self._parts: WeakKeyDictionary[Lora, list[Joined]] = WeakKeyDictionary()
        self.layers = [_layer(block) for block in blocks]
        self.norm = _norm(model.base_model.norm)
        self.head: Projection = head(model.get_output_embeddings().weight.detach()[None], None)
        self._kernel = self._parameters()
        self._norms = chunks.Norms(self._kernel.q_norm, self._kernel.k_norm, self.norm[1])
        inputs = [group.inputs for group in self.adapted]
        products = [(partial(each, 0), count) for each, count in zip(self.products, inputs, strict=True)]
        self._blocks = [agreeing(products, sizes, model.dtype) for sizes in SIZES]
        self._compile(model)

    @torch.inference_mode()
    def hidden(self, embeds: Tensor, cache: FramedCache, probe: Probe | None = None) -> Tensor:
        """Hidden states [n, width] of the chunk that `cache.begin(n)` opened, from input embeddings [n, width]."""
        if len(embeds) == 1:
            return self.decoded(embeds, [cache], [probe])
        [found] = self.prefilled([embeds], [cache], [probe])
        if isinstance(found, Exception):
            raise found
        return found

    @torch.inference_mode()
    def prefilled(
        self, embeds: Sequence[Tensor], caches: Sequence[FramedCache], probes: Sequence[Probe | None]
    ) -> list[Tensor | Exception]:
        """Hidden states of the chunks of some sequences, or what went wrong with one. Several must have the same
        `blocks`."""
        ends, blocks = [*accumulate(map(len, embeds))], self.blocks(len(embeds[0]))
        rows = [slice(end - len(each), end) for each, end in zip(embeds, ends, strict=True)]
        parts = [Part(*part) for part in zip(rows, caches, probes, strict=True)]
        short = Short.of([part for part in parts if blocks and chunks.serves(part.cache)], len(self.layers), self.heads)
        x = filled(torch.cat(list(embeds)), blocks)
        added = self._added(parts, len(x))
        for index, layer in enumerate(self.layers):
            x = self._layer(layer, index, x, parts, short, partial(self._product, index, added, blocks))
            for part in parts if index == 0 else ():
                if part.probe is not None:
                    part.probe.state(x[part.rows])
        x = _normed(x, self.norm)
        if short is not None:
            short.show()
        return [part.error or x[part.rows] for part in parts]

    def blocks(self, rows: int) -> Blocks:
        """In which a chunk of so many rows is multiplied."""
        fitting = (blocks for sizes, blocks in zip(SIZES, self._blocks, strict=True) if rows <= min(sizes[-1], MOST))
        return next(fitting, ())

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [n, vocabulary] of a chunk."""
        return self.head(0, hidden) if len(hidden) > 1 else self.decoded_logits(hidden)

    @torch.inference_mode()
    def decoded_logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [n, vocabulary] of single tokens in float32, each the same whichever are beside it."""
        out = torch.empty(len(hidden), self.head.kernel.weight.shape[1], dtype=torch.float32)
        decoder.logits(torch.get_num_threads(), self.head.kernel, hidden.float().numpy(), out.numpy())
        return out

    def _layer(
        self, layer: Layer, index: int, x: Tensor, parts: Sequence[Part], short: Short | None,
        product: Callable[[int, Tensor], Tensor],
    ) -> Tensor:  # fmt: skip
        qkv = product(decoder.QKV, _normed(x, layer.before)).view(len(x), -1, self.width)
        mixed = qkv.new_zeros(len(x), self.heads, self.width)
        if short is not None:
            short.attend(index, self._norms, qkv, mixed)
        for part in parts:
            if part.error is None and (short is None or part not in short.parts):
                try:
                    self._attend(layer, index, qkv[part.rows].transpose(0, 1), part, mixed[part.rows])
                except Exception as error:
                    part.error = error
        x = x + product(decoder.OUT, mixed.flatten(1))
        return x + product(decoder.DOWN, _gated(product(decoder.GATE_UP, _normed(x, layer.after))))

    def _attend(self, layer: Layer, index: int, qkv: Tensor, part: Part, mixed: Tensor) -> None:
        """Attention of one sequence's rows over its own cache, into mixed [n, heads, width]."""
        q, k, v = qkv[: self.heads], qkv[self.heads : -self.kv_heads], qkv[-self.kv_heads :]
        q = _rms(q, layer.q_norm) if layer.q_norm else q
        k = _rms(k, layer.k_norm) if layer.k_norm else k
        mixed.copy_(attend(part.cache, index, q, k, v, self.width**-0.5, part.probe).transpose(0, 1))

    def _product(self, layer: int, added: Loras | None, blocks: Blocks, number: int, x: Tensor) -> Tensor:
        out = self.products[number](layer, x, blocks)
        if added is not None:
            add_rows(torch.get_num_threads(), added, number, layer, stored(x.contiguous()), stored(out))
        return out

    def _loras(self, caches: Sequence[FramedCache]) -> Loras:
        """The adapters of the rows that these caches' are."""
        return loras([self._joined(cache.lora) if cache.lora else None for cache in caches], self._ends)

    def _added(self, parts: Sequence[Part], rows: int) -> Loras | None:
        """The adapters of so many rows, None where there are none."""
        if not any(part.cache.lora for part in parts):
            return None
        each = self._loras([part.cache for part in parts])
        counts = [part.rows.stop - part.rows.start for part in parts]
        address, rank = (np.repeat(found, counts, 0) for found in (each.address, each.rank))
        beyond = rows - sum(counts)
        return Loras(np.pad(address, ((0, beyond), (0, 0), (0, 0))), np.pad(rank, ((0, beyond), (0, 0))), self._ends)

    def _joined(self, lora: Lora) -> list[Joined]:
        """What an adapter adds to every product; made once."""
        if lora not in self._parts:
            self._parts[lora] = [joined(lora, each) for each in self.adapted]
        return self._parts[lora]

    @torch.inference_mode()
    def decoded(self, embeds: Tensor, caches: Sequence[FramedCache], probes: Sequence[Probe | None]) -> Tensor:
        """Last hidden states [n, width] of a token of each of n sequences, in float32; each the same whichever are
        beside it. Every cache has opened a chunk of one."""
        past, where, members = pasts(caches), places(caches), torch.get_num_threads()
        work = decoder.work(self._kernel, past, where, embeds.float().numpy(), members)
        decoder.decode(members, self._kernel, self._loras(caches), past, where, work)
        for row, probe in enumerate(probes):
            if probe is not None:
                pieces = where.pieces[where.pieces_from[row] : where.pieces_from[row + 1]]
                groups = int(where.turned_from[row + 1] - where.turned_from[row])
                found = work.entropy[row], work.lse[row], work.queries[row, :, :groups], work.first[row : row + 1]
                attended = int((pieces[:, 1] - pieces[:, 0]).sum())
                entropy, lse, queries, first = map(torch.from_numpy, found)
                probe.token(entropy, lse, queries, first, attended)
        return torch.from_numpy(work.x)

    @torch.inference_mode()
    def _compile(self, model: PreTrainedModel) -> None:
        """A first token, so that compiling (seconds, once a machine) is part of loading a model."""
        shape = Shape(len(self.layers), self.kv_heads, self.width, model.dtype, model.device)
        cache = FramedCache(shape, Plain(), Plain().rope(model.config))
        for count in (2, 1):
            cache.begin(count)
            self.logits(self.hidden(torch.zeros(count, len(self.norm[0]), dtype=model.dtype), cache))
            cache.end()

    def _parameters(self) -> decoder.Layers:
        norms = [[getattr(layer, name) for layer in self.layers] for name in ("before", "after", "q_norm", "k_norm")]
        none = torch.empty(0, dtype=torch.float32)
        weights = [torch.stack([norm[0].float() if norm else none for norm in each]) for each in norms]
        products = [each.kernel for each in self.products]
        return decoder.Layers._make([*products, *map(stored, (*weights, self.norm[0].float())), self.norm[1]])


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model can run fused here: such a model, unquantised, on the CPU."""
    return (
        fusable(model.config)
        and model.device.type == "cpu"
        and model.dtype in (torch.bfloat16, torch.float32)
        and not getattr(model, "is_quantized", False)
    )


def _normed(x: Tensor, norm: Norm) -> Tensor:
    """`_rms` of rows [n, d], compiled."""
    x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    rows.normed(torch.get_num_threads(), stored(x), stored(norm[0]), np.float32(norm[1]), stored(out))
    return out


def _gated(both: Tensor) -> Tensor:
    """silu(gate) · up of rows [n, 2m], compiled."""
    out = torch.empty(len(both), both.shape[1] // 2, dtype=both.dtype)
    rows.gated(torch.get_num_threads(), stored(both), stored(out))
    return out


def _rms(x: Tensor, norm: Norm) -> Tensor:
    """RMS norm as Llama rounds it: normalised in float32, cast, then weighted."""
    weight, epsilon = norm
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def _norm(module: nn.Module) -> Norm:
    return module.weight.detach(), module.variance_epsilon


def _layer(block: nn.Module) -> Layer:
    attention = block.self_attn
    return Layer(
        before=_norm(block.input_layernorm),
        after=_norm(block.post_attention_layernorm),
        q_norm=_norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        k_norm=_norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
    )


def _groups(block: nn.Module) -> list[tuple[nn.Linear, ...]]:
    """The projections of the same inputs, as the kernels number them."""
    attention, mlp = block.self_attn, block.mlp
    return [
        (attention.q_proj, attention.k_proj, attention.v_proj), (attention.o_proj,),
        (mlp.gate_proj, mlp.up_proj), (mlp.down_proj,),
    ]  # fmt: skip


def _weights(layers: Sequence[tuple[nn.Linear, ...]]) -> tuple[Tensor, Tensor | None]:
    """Projections of the same input as one, for all layers: weight [layers, out, in], bias [layers, out].

    The modules' own weights become views of it, so that a model is held once.
    """
    weight = torch.stack([torch.cat([linear.weight.detach() for linear in linears]) for linears in layers])
    for together, linears in zip(weight, layers, strict=True):
        for linear, part in zip(linears, together.split([len(linear.weight) for linear in linears]), strict=True):
            linear.weight.data = part
    if layers[0][0].bias is None:
        return weight, None
    return weight, torch.stack([torch.cat([linear.bias.detach() for linear in linears]) for linears in layers])
