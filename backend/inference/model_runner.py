"""One loaded model, ready to read chunks of one sequence into a framed cache."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from backend.inference.attach import attach
from backend.inference.attention import Frame, framed
from backend.inference.beginnings import Beginnings
from backend.inference.chunks import FIRST_CHUNK, chunk_on
from backend.inference.embedding import SignalContext, add_signal
from backend.inference.fused_llama import Fused, fits
from backend.inference.kv_cache import SLACK, FramedCache, Shape
from backend.inference.lora import beside
from backend.inference.memory import memory
from backend.inference.probes import Probe
from backend.inference.scheduler import Read, Scheduler
from backend.inference.varlen_plan import Member, planned
from backend.models.lora import Lora
from backend.models.pool import Loaded
from backend.positions import PositionPolicy
from backend.refused import Refused
from backend.settings import Watch


class Runner:
    """Runs a model's forward pass under any position policy; holds nothing of a run, so runs may share it.

    Its caches are of the loaded model's adapter, where it has one. exact: through transformers' own modules and
    kernels, equal to them bit for bit under the plain policy; else fused where the model allows it. varlen: through
    transformers' modules too, their attention by `backend.inference.varlen_attention`, where keys are rotated. chunk:
    the most tokens in which a longer prompt is read.
    """

    def __init__(self, loaded: Loaded, exact: bool = False, varlen: bool = False):
        self.model: PreTrainedModel = attach(loaded.model)
        self.capabilities = loaded.capabilities
        precision = loaded.capabilities.precision
        fused = fits(self.model) and not exact and not varlen
        plain = getattr(self.model, "quantization_method", None) is None
        if precision in ("int8", "int4") and self.model.device.type == "cpu" and plain and not fused:
            raise Refused(f"transformers' own modules hold no {precision} weights on the CPU: choose bf16 or fp32")
        self.fused = Fused(self.model, precision) if fused else None
        self.exact = exact
        self.chunk = chunk_on(self.model.device)
        self.varlen = varlen and loaded.capabilities.position != "alibi"
        self.lora = loaded.lora
        self.beginnings = Beginnings()
        self.scheduler = Scheduler(self, memory=memory(self.model.device))

    def cache(self, policy: PositionPolicy, room: int = 256) -> FramedCache:
        """An empty cache for one sequence, with room for that many tokens before it grows."""
        about = self.capabilities
        shape = Shape(about.layers, about.kv_heads, about.head_dim, self.model.dtype, self.model.device)
        rope = None if about.position == "alibi" else policy.rope(self.model.config)
        cache = FramedCache(shape, policy, rope, room)
        cache.lora = self.lora
        return cache

    def cache_bytes(self, policy: PositionPolicy, room: int) -> int:
        """Most memory that the cache of a sequence of so many tokens takes, in bytes."""
        about, window = self.capabilities, policy.window
        if window is not None:
            room = min(room, policy.sinks + window + SLACK + FIRST_CHUNK)
        tensors = 2 if policy.rerotated == 0 else 3
        width = self.model.dtype.itemsize * about.layers * about.kv_heads * about.head_dim
        return tensors * width * room

    def beside(self, lora: Lora | None) -> Runner:
        """The same whose caches are an adapter's, or nobody's; weights and scheduler are shared."""
        runner = copy.copy(self)
        runner.lora = lora
        return runner

    def probe(self, watch: Watch) -> Probe:
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
        if self.fused is not None and not every_row:
            [found] = self._together([Read(tokens, cache, probe, signal, whole_prompt)])
            if isinstance(found, Exception):
                raise found
            return found
        embeds = self.signalled(tokens, signal)
        cache.begin(len(tokens), whole_prompt)
        logits = self._forward(embeds, cache, probe, every_row)
        cache.end()
        return logits.float() if every_row else logits[-1].float()

    @torch.inference_mode()
    def forward(self, reads: Sequence[Read]) -> list[Tensor | Exception]:
        """Read after what each of several caches holds: next-token logits [vocabulary] of the last rows in float32,
        [n, vocabulary] where every row's are wanted, or what went wrong with one.

        Each is the same to the last bit whichever are read beside it.
        """
        if self.fused is None:
            return [self._alone(read) for read in reads]
        answers: dict[int, Tensor | Exception] = {}
        for places in self._groups(reads):
            answers |= zip(places, self._together([reads[place] for place in places]), strict=True)
        return [answers[place] for place in range(len(reads))]

    def _groups(self, reads: Sequence[Read]) -> Iterable[list[int]]:
        """The places of those that are read at once: all tokens, the chunks that are multiplied in the same blocks,
        each longer one."""
        assert self.fused is not None
        groups: dict[object, list[int]] = {}
        for place, read in enumerate(reads):
            count = len(read.ids)
            groups.setdefault("token" if count == 1 else self.fused.blocks(count) or place, []).append(place)
        return groups.values()

    def _together(self, reads: Sequence[Read]) -> list[Tensor | Exception]:
        """What `_groups` found."""
        answers = [self._begun(read) for read in reads]
        opened = [(place, answer) for place, answer in enumerate(answers) if isinstance(answer, Tensor)]
        found = self._opened([reads[place] for place, _ in opened], [embeds for _, embeds in opened]) if opened else []
        for (place, _), answer in zip(opened, found, strict=True):
            answers[place] = answer
        return answers

    def _opened(self, reads: Sequence[Read], embeds: Sequence[Tensor]) -> list[Tensor | Exception]:
        """The same, of embeddings for which the caches have opened a chunk."""
        assert self.fused is not None
        caches, probes = [read.cache for read in reads], [read.probe for read in reads]
        found: list[Tensor | Exception]
        try:
            if len(embeds[0]) == 1:
                found = [*self.fused.decoded(torch.cat([*embeds]), caches, probes).split(1)]
            else:
                found = self.fused.prefilled(embeds, caches, probes)
            wanted = {
                place: hidden if reads[place].every else hidden[-1:]
                for place, hidden in enumerate(found)
                if isinstance(hidden, Tensor)
            }
            rows = [len(hidden) for hidden in wanted.values()]
            logits = self.fused.decoded_logits(torch.cat([*wanted.values()])).split(rows) if wanted else ()
        except Exception as error:
            return [error] * len(reads)
        for place, answer in zip(wanted, logits, strict=True):
            caches[place].end()
            found[place] = answer if reads[place].every else answer[-1]
        return found

    def _alone(self, read: Read) -> Tensor | Exception:
        try:
            return self.read(*read)
        except Exception as error:
            return error

    def _begun(self, read: Read) -> Tensor | Exception:
        """The embeddings [n, d] of ids for which the cache has opened a chunk."""
        try:
            embeds = self.signalled(read.ids, read.signal)
            read.cache.begin(len(read.ids), read.whole)
            return embeds
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
        # A single token's products read the keys faster than one split of the kernel does.
        planning = self.varlen and len(embeds) > 1
        step = planned([Member.of(cache)]).to(self.model.device) if planning else None
        with framed(Frame([cache], [0], probe, self.exact, step)), beside([cache.lora]):
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
    """The runner of a loaded model, made once for all its adapters; its packed weights go when the model goes.

    With LENGTH_LAB_VARLEN=1 in the environment one on a GPU reads prompts by variable-length attention.
    """
    # Who has one does not wait for the kernels that another model's are compiled with.
    if not hasattr(loaded.model, "framed_runner"):
        with _making:
            if not hasattr(loaded.model, "framed_runner"):
                varlen = loaded.model.device.type == "cuda" and os.environ.get("LENGTH_LAB_VARLEN") == "1"
                loaded.model.framed_runner = Runner(replace(loaded, lora=None), varlen=varlen)
    base = loaded.model.framed_runner
    return base if loaded.lora is None else base.beside(loaded.lora)
