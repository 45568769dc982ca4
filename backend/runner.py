"""One loaded model, ready to read chunks of one sequence into a framed cache."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from backend.attention import Frame, framed
from backend.cache import FramedCache, Shape
from backend.families import attach
from backend.fused import Fused, fits
from backend.inference.beginnings import Beginnings
from backend.inference.lora import Lora, beside
from backend.inference.scheduler import Read, Scheduler
from backend.models import Loaded
from backend.positions import Policy, Rope
from backend.probes import Probe
from backend.refused import Refused
from backend.signals import SignalContext, add_signal


class Runner:
    """Runs a model's forward pass under any position policy; holds nothing of a run, so runs may share it.

    Its caches are of the loaded model's adapter, where it has one. exact: through transformers' own modules and
    kernels, equal to them bit for bit under the plain policy; else fused where the model allows it.
    """

    def __init__(self, loaded: Loaded, exact: bool = False):
        self.model: PreTrainedModel = attach(loaded.model)
        self.capabilities = loaded.capabilities
        precision = loaded.capabilities.precision
        fused = fits(self.model) and not exact
        plain = getattr(self.model, "quantization_method", None) is None
        if precision in ("int8", "int4") and self.model.device.type == "cpu" and plain and not fused:
            raise Refused(f"transformers' own modules hold no {precision} weights on the CPU: choose bf16 or fp32")
        self.fused = Fused(self.model, precision) if fused else None
        self.exact = exact
        self.lora = loaded.lora
        self.beginnings = Beginnings()
        self.scheduler = Scheduler(self)

    def cache(self, policy: Policy, room: int = 256) -> FramedCache:
        """An empty cache for one sequence, with room for that many tokens before it grows."""
        about = self.capabilities
        shape = Shape(about.layers, about.kv_heads, about.head_dim, self.model.dtype, self.model.device)
        rope = None if about.position == "alibi" else Rope.of(self.model.config, policy.base_factor)
        cache = FramedCache(shape, policy, rope, room)
        cache.lora = self.lora
        return cache

    def beside(self, lora: Lora | None) -> Runner:
        """The same whose caches are an adapter's, or nobody's; weights and scheduler are shared."""
        runner = copy.copy(self)
        runner.lora = lora
        return runner

    def probe(self, watch) -> Probe:
        """A probe fitted to the model."""
        return Probe(self.capabilities.layers, self.capabilities.heads, watch)

    @torch.inference_mode()
    def read(
        self,
        tokens: Tensor,
        cache: FramedCache,
        probe: Probe | None = None,
        signal: SignalContext | None = None,
        whole_prompt: bool = False,
        every_row: bool = False,
    ) -> Tensor:
        """Read token ids [n] after what the cache holds; next-token logits [vocabulary] of the last row in float32.

        signal: adds its length signal and moves on by n. whole_prompt: one frame for all n (004's own prefill).
        every_row: logits [n, vocabulary] of all rows instead.
        """
        embeds = self.signalled(tokens, signal)
        cache.begin(len(tokens), whole_prompt)
        logits = self._forward(embeds, cache, probe, every_row)
        cache.end()
        return logits.float() if every_row else logits[-1].float()

    @torch.inference_mode()
    def read_tokens(self, reads: Sequence[Read]) -> list[Tensor | Exception]:
        """Read a token of each of several sequences: next-token logits [vocabulary] in float32, or what went wrong.

        Each is the same to the last bit whichever are read beside it.
        """
        answers = [self._begun(read) for read in reads]
        opened = {index: answer for index, answer in enumerate(answers) if isinstance(answer, Tensor)}
        if self.fused is None or not opened:
            return answers
        asked = [reads[index] for index in opened]
        logits: list[Tensor | Exception]
        try:
            embeds = torch.stack(list(opened.values()))
            hidden = self.fused.decoded(embeds, [read.cache for read in asked], [read.probe for read in asked])
            logits = list(self.fused.decoded_logits(hidden))
            for read in asked:
                read.cache.end()
        except Exception as error:
            logits = [error] * len(asked)
        for index, found in zip(opened, logits, strict=True):
            answers[index] = found
        return answers

    def _begun(self, read: Read) -> Tensor | Exception:
        """The embedding [d] of a token for which the cache has opened a chunk; without a fused path its logits."""
        try:
            if self.fused is None:
                return self.read(*read)
            embeds = self.signalled(read.ids, read.signal)
            read.cache.begin(1)
            return embeds[0]
        except Exception as error:
            return error

    def signalled(self, ids: Tensor, signal: SignalContext | None) -> Tensor:
        """Embeddings [n, d] with the length signal, which moves on by n."""
        embeds = self._embedded(ids)
        if signal is not None:
            embeds = add_signal(embeds[None], signal)[0]
            signal.offset += len(ids)
        return embeds

    def _embedded(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens.to(self.model.device), self.model.get_input_embeddings().weight)

    def _forward(self, embeds: Tensor, cache: FramedCache, probe: Probe | None, every_row: bool) -> Tensor:
        if self.fused is not None:
            hidden = self.fused.hidden(embeds, cache, probe)
            return self.fused.logits(hidden if every_row else hidden[-1:])
        with framed(Frame([cache], [0], probe, self.exact)), beside([cache.lora]):
            kept = 0 if every_row else 1
            return self.model(inputs_embeds=embeds[None], use_cache=False, logits_to_keep=kept).logits[0]

    @torch.inference_mode()
    def read_batch(
        self, tokens: Tensor, padding: list[int], caches: list[FramedCache], signal: SignalContext | None = None
    ) -> Tensor:
        """Read a batch of token ids [b, n], left-padded by padding[b] tokens; last rows' logits [b, vocabulary].

        Each row has a cache, and with it a policy, of its own; padding is never cached. After the first call the
        padding is 0. Runs through transformers' modules.
        """
        embeds = self._embedded(tokens)
        if signal is not None:
            embeds = add_signal(embeds, signal)
            signal.offset += tokens.shape[1]
        for cache, pad in zip(caches, padding, strict=True):
            cache.begin(tokens.shape[1] - pad)
        with framed(Frame(caches, padding, None, self.exact)), beside([cache.lora for cache in caches]):
            logits = self.model(inputs_embeds=embeds, use_cache=False, logits_to_keep=1).logits[:, -1]
        for cache in caches:
            cache.end()
        return logits.float()


_making = threading.Lock()


def runner(loaded: Loaded) -> Runner:
    """The runner of a loaded model, made once for all its adapters; its packed weights go when the model goes."""
    # Who has one does not wait for the kernels that another model's are compiled with.
    if not hasattr(loaded.model, "framed_runner"):
        with _making:
            if not hasattr(loaded.model, "framed_runner"):
                loaded.model.framed_runner = Runner(replace(loaded, lora=None))
    base = loaded.model.framed_runner
    return base if loaded.lora is None else base.beside(loaded.lora)
