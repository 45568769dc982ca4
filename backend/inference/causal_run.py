"""One run of a causal model: prefill → decode loop → a `Step` a token → one `Finish`."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from backend.failure import advice
from backend.inference import chunks
from backend.inference.beginnings import Beginning, Seen
from backend.inference.control import Control
from backend.inference.embedding import SignalContext
from backend.inference.kv_cache import FramedCache, Stopped
from backend.inference.landing import Fork, Landing
from backend.inference.probes import Probe
from backend.inference.scheduler import Asks, Read
from backend.positions import heeds_limit, policies, policy_of
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Alternative, Finish, Logits, Prefilling, Reading, Reason, Resumed, Step
from backend.text.prompt import Prompt, TextStream
from backend.text.sampling import Choice, Chooser
from backend.text.template import switches
from backend.text.thinking import Response
from backend.text.units import characters, in_tokens, length, tolerance, words

if TYPE_CHECKING:
    from backend.inference.model_runner import Runner

# Of each token of a run that is probed: how many of the likeliest its step names.
ALTERNATIVES = 5

log = logging.getLogger("length_lab")


@dataclass
class CausalRun:
    """State of one run. tells: whether it yields how far the prompt was read. resumed: what it wrote elsewhere."""

    settings: RunSettings
    control: Control
    runner: Runner
    ids: Tensor
    chooser: Chooser
    response: Response
    asked: Prompt
    tells: bool = False
    resumed: Resumed = field(default_factory=Resumed)
    signal: SignalContext | None = None
    landing: Landing | None = None
    cache: FramedCache | None = None
    started: float = 0.0
    prefilled: float = 0.0

    def asks(self) -> Asks:
        """The run as the scheduler takes it: what it wants read, its steps, and how it ended. Raises ValueError before
        the first step only."""
        self.started = time.perf_counter()
        self.prefilled = self.started - self.resumed.seconds
        try:
            yield from self._written()
        except Exception as error:
            if isinstance(error, Refused) and not self.response.tokens:
                raise
            log.error("a run failed", exc_info=error)
            yield self._finish("error", message=advice(error, self.response.tokens))

    def _written(self) -> Asks:
        if self.control.stopped:
            yield self._finish("stopped")
            return
        settings = self.settings
        cache = self.cache = self.runner.cache(policy_of(settings), len(self.ids) + settings.max_new_tokens)
        probing = settings.watch.enabled and "probes" not in self.runner.capabilities.unsupported
        probe = self.runner.probe(settings.watch) if probing else None
        cache.stopped = lambda: self.control.stopped
        read = self.ids.tolist()
        try:
            logits, reading = yield from self._prefill(cache, probe)
            if self.resumed.written:
                logits, reading = (yield from self._reread(logits, cache, probe, read)), None
        except Stopped:
            logits = reading = None
        self.prefilled = time.perf_counter() - self.resumed.seconds
        reason: Reason = "stopped"
        last: Choice | None = None
        then, others = self.resumed.then, ALTERNATIVES if probe else 0
        while not self.control.stopped and logits is not None and not self._full:
            wanted = self.wanted()
            goal = self.goal(wanted)
            planned = then if then is not None else (yield from self._planned(logits, cache, read))
            if self.control.stopped:
                break
            choice = self.chooser.choose(logits, read, self._end_goal(wanted), planned, others)
            if choice.token in self.chooser.ends:
                reason, last = "eos", choice
                break
            read.append(choice.token)
            step = self._step(choice, cache, probe, reading, wanted, goal)
            yield step if then is None else replace(step, chosen=True)
            reading = then = None
            if self._full or self.control.stopped:
                break
            self._aims(self.wanted())
            logits = yield Read(torch.tensor([choice.token]), cache, probe, self.signal)
        if reason == "stopped" and self._full:
            reason = "eos" if self.landing is not None and self.landing.done else "cap"
        yield self._finish(reason, last)

    @property
    def _full(self) -> bool:
        """Whether the cap is reached."""
        return self.response.tokens >= self.settings.max_new_tokens

    def _aims(self, wanted: int | None) -> None:
        """Lets the signal show the target that is in force when the response's last token is read."""
        if self.signal is None:
            return
        if self.landing is not None and self.landing.aim is not None:
            self.signal.end_at(self.landing.aim)
        else:
            self.signal.retarget(self.goal(wanted) or 1)
        if not self.text.tokens:
            self.signal.postpone()

    def _reread(
        self, logits: Tensor | None, cache: FramedCache, probe: Probe | None, read: list[int]
    ) -> Generator[Read, Tensor, Tensor]:
        """Read what the run wrote elsewhere as it was read there; logits of its last token. Draws what was drawn.

        Where it need not be exact, the tokens between two targets are read in one chunk.
        """
        assert logits is not None
        vocabulary, written = len(logits), self.resumed.written
        ids: list[int] = []
        shown = None
        for index, (token, _) in enumerate(written, 1):
            self.response.add(token)
            self.chooser.skip(vocabulary)
            last = index == len(written)
            # A token is read under the target of the one that follows it.
            aim = self.wanted() if last else written[index].wanted
            shows = None if self.signal is None else (self.goal(aim), not self.text.tokens)
            alone = self.resumed.exact or last or shows != shown or self.response.thinking
            if ids and (alone or len(ids) == chunks.CHUNK):
                logits = yield Read(torch.tensor(ids), cache, None, self.signal)
                ids = []
            if self.control.stopped:
                raise Stopped
            self._aims(aim)
            ids.append(token)
            read.append(token)
            shown = shows
        return (yield Read(torch.tensor(ids), cache, probe, self.signal))

    @property
    def text(self) -> TextStream:
        """The answer so far."""
        return self.response.answer

    def wanted(self) -> int | None:
        """The target in force, in the settings' unit."""
        return self.control.goal(self.settings) if self.settings.steered else None

    def goal(self, wanted: int | None, past: bool = False) -> int | None:
        """The target `wanted` in tokens, by the response so far. past: as `in_tokens` has it."""
        if wanted is None:
            return None
        return in_tokens(wanted, self.settings.unit, self.text.text, len(self.text.tokens), past)

    def _end_goal(self, wanted: int | None) -> int | None:
        """The target in tokens of the whole response, also where that has passed it; None while the model thinks, and
        where nothing aims at it: words are counted anew for it."""
        goal = self.goal(wanted, past=True) if self.chooser.aims and not self.response.thinking else None
        return None if goal is None else goal + self.response.thought

    def _planned(
        self, logits: Tensor, cache: FramedCache, read: list[int]
    ) -> Generator[Read | list[Read], Any, int | None]:
        if (closing := self.response.closing(self.settings.thinking_budget)) is not None:
            return closing
        if self.landing is None or self.response.thinking:
            return None
        written, goal, limit = self.text.tokens, self.control.goal(self.settings), None
        self.landing.cap = self.settings.max_new_tokens - self.response.thought
        if self.settings.limited:
            # What is near this is just below the limit.
            limit, goal = goal, max(1, goal - int(tolerance(goal, self.settings.unit)))
        thought = read[len(self.ids) : len(read) - len(written)]
        return (yield from self.landing.token(Fork(logits, cache, self.signal, written, thought, goal, limit)))

    def _prefill(
        self, cache: FramedCache, probe: Probe | None
    ) -> Generator[Read | list[Read] | Prefilling, Tensor, tuple[Tensor | None, Reading | None]]:
        """Read the prompt in chunks; logits of its last row. Raises Stopped between chunks and, by layers, amid one."""
        framed = cache.policy.prompt_frame(np.arange(1), 1) is not None
        whole = self.settings.prefill == "paper" and framed
        # What a signal adds to a prompt may hold its own target.
        begins = 0 if whole or self.signal is not None else self.asked.begins
        logits, seen = None, []
        if begins:
            seen.append((yield from self._beginning(begins, cache, probe)))
        rest = self.ids[begins:]
        pieces = chunks.sizes(begins, len(rest), self.settings.window, self.runner.chunk)
        for ids in [rest] if whole else rest.split(pieces):
            logits, found = yield from self._chunk(ids, cache, probe, whole)
            seen.append(found)
        if probe is None:
            return logits, None
        positions, entropy, attended, states = (np.concatenate(part) for part in zip(*filter(None, seen), strict=True))
        return logits, Reading(len(self.ids), time.perf_counter() - self.started, positions, entropy, attended, states)

    def _beginning(
        self, count: int, cache: FramedCache, probe: Probe | None
    ) -> Generator[Read | list[Read] | Prefilling, Tensor, Seen | None]:
        """Read the prompt's first tokens, or take them as they were read for another prompt."""
        key = cache.policy, cache.lora, probe is not None, tuple(self.ids[:count].tolist())
        beginnings = self.runner.beginnings
        while (known := beginnings.find(key)) is None and beginnings.being_read(key):
            yield []
        if known is not None:
            cache.restore(known.state)
            return known.seen
        with beginnings.reading(key):
            _, seen = yield from self._chunk(self.ids[:count], cache, probe)
            beginnings.keep(key, Beginning(cache.state(), seen))
        return seen

    def _chunk(
        self, ids: Tensor, cache: FramedCache, probe: Probe | None, whole: bool = False
    ) -> Generator[Read | Prefilling, Tensor, tuple[Tensor, Seen | None]]:
        if self.control.stopped:
            raise Stopped
        first = cache.length
        if self.tells:
            yield Prefilling(first, len(self.ids))
        logits = yield Read(ids, cache, probe, self.signal, whole)
        if probe is None:
            return logits, None
        rows = probe.sampled(len(ids))
        return logits, (np.array(rows) + first, *probe.prefilled(), probe.states(rows))

    def _step(
        self,
        choice: Choice,
        cache: FramedCache,
        probe: Probe | None,
        reading: Reading | None,
        wanted: int | None,
        goal: int | None,
    ) -> Step:
        text, thinking = self.response.add(choice.token)
        goal = None if thinking else goal
        index = self.response.tokens
        return Step(
            index=index,
            token=choice.token,
            text=text,
            p=choice.p,
            p_eos=choice.p_end,
            spread=choice.spread,
            context=cache.length,
            attended=cache.attended,
            goal=goal,
            remaining=None if goal is None else goal - len(self.text.tokens),
            seconds=time.perf_counter() - self.prefilled,
            entropy=None if probe is None else reading.entropy[-1] if reading is not None else probe.decoded(),
            state=None if probe is None else probe.states([-1])[0],
            logits=None if probe is None else self._logits(cache, probe, index),
            reading=reading,
            wanted=wanted,
            p_model=choice.p_model,
            p_eos_model=choice.p_end_model,
            thinking=thinking,
            alternatives=self._alternatives(choice) if probe else None,
            sink_share=None if probe is None else probe.sink_share(cache),
            tried=None if self.landing is None else self.landing.taken(),
        )

    def _alternatives(self, choice: Choice) -> tuple[Alternative, ...]:
        tokens = [token for token, *_ in choice.likeliest]
        texts = self.response.tokenizer.batch_decode([[token] for token in tokens])
        return tuple(
            Alternative(token, text, p, own, token in self.chooser.ends)
            for (token, p, own), text in zip(choice.likeliest, texts, strict=True)
        )

    def _logits(self, cache: FramedCache, probe: Probe, index: int) -> Logits | None:
        if (index - 1) % self.settings.watch.every:
            return None
        return probe.logits(cache, *self.control.watched(self.settings.watch))

    def _finish(self, reason: Reason, last: Choice | None = None, message: str = "") -> Finish:
        decode = time.perf_counter() - self.prefilled
        settings, text, tokens = self.settings, self.text.text, len(self.text.tokens)
        wanted = self.wanted()
        landed = reason == "eos" and self.landing is not None and self.landing.planned
        return Finish(
            reason=reason,
            text=text,
            tokens=tokens,
            words=words(text),
            characters=characters(text),
            error=None if wanted is None else length(settings.unit, text, tokens) - wanted,
            prompt_tokens=len(self.ids),
            prefill_seconds=self.prefilled + self.resumed.seconds - self.started,
            decode_seconds=decode,
            tokens_per_second=self.response.tokens / decode if decode > 0 else 0.0,
            cache_bytes=self.cache.bytes if self.cache else 0,
            p_eos=None if last is None else last.p_end,
            p_eos_model=None if last is None else last.p_end_model,
            thinking=self.response.thoughts,
            thinking_tokens=self.response.thought,
            message=message,
            notes=tuple(self._notes(reason)),
            landed=landed,
            own_end=reason == "eos" and (not landed or (self.landing is not None and self.landing.own)),
            tried=None if self.landing is None else self.landing.taken(),
        )

    def _notes(self, reason: Reason) -> Iterator[str]:
        if self.landing is not None and reason in ("eos", "cap") and not self.landing.planned:
            yield f"landing found no sentence that ends near the {self.settings.bound}"
        asked = self.settings
        if asked.window is not None and asked.distance_limit != "window" and not heeds_limit(asked):
            yield f"the distance limit did nothing: {policies[asked.pic].label} bounds distances by itself"
        trained = self.runner.capabilities.training_length
        total = len(self.ids) + self.response.tokens
        if trained and total > trained:
            yield f"{total:,} tokens are beyond the model's training length of {trained:,}"
        if self.asked.specials:
            read = "special tokens" if self.settings.special_tokens else "text"
            yield f"{', '.join(self.asked.specials)} in the prompt was read as {read}"
        if self.response.closed(budget := self.settings.thinking_budget):
            yield f"the thinking was ended after its budget of {budget:,} tokens"
        if reason == "cap" and self.response.thinking:
            yield "the cap came while the model was thinking: raise it, or switch thinking off"
        if self.response.thought and not self.settings.thinking and not switches(self.response.tokenizer):
            yield "the model's template cannot switch thinking off"
