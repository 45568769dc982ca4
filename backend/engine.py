"""Prompt → prefill → decode loop → a `Step` a token → one `Finish`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from backend.failure import advice
from backend.inference import chunks
from backend.inference.base_model import BaseModel
from backend.inference.beginnings import Beginning, Seen
from backend.inference.control import Control
from backend.inference.embedding import SignalContext
from backend.inference.kv_cache import FramedCache, Stopped
from backend.inference.landing import Fork, Landing, widest
from backend.inference.probes import Probe
from backend.inference.scheduler import Asks, Read
from backend.inference.signal import prompt_norms
from backend.methods import methods
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.capabilities import Capabilities
from backend.models.checks import check
from backend.models.embedded import BUILDING
from backend.models.pool import Loaded, Models
from backend.positions import heeds_limit, policies, policy_of
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Finish, Logits, Prefilling, Progress, Reading, Reason, Step
from backend.text.prompt import Prompt, TextStream, end_ids, planned, prompt
from backend.text.sampling import Choice, Chooser
from backend.text.template import switches
from backend.text.thinking import Response, begun
from backend.text.units import characters, in_tokens, length, words

if TYPE_CHECKING:
    from backend.inference.model_runner import Runner


log = logging.getLogger("length_lab")


class Lab:
    """The laboratory: models, and runs on them. Safe to share between threads; runs do not see each other.

    models: which models may be asked for; None takes the lab's own list. adapter: one for its method, in the place of
    the lab's own.
    """

    def __init__(self, models: Models | None = None, adapter: Adapter | None = None):
        self.models = models or Models()
        self._adapter = adapter

    def capabilities(self, model: str = "embedded", precision: str = "bf16") -> Capabilities:
        """What a model is and which controls it allows; loads it if need be. Raises ModelError with a sentence."""
        return self.models.capabilities(model, precision)

    def runner(self, settings: RunSettings) -> Runner:
        """The forward pass these settings ask for, adapter merged in. Raises ValueError with a sentence."""
        return _runner(self._prepared(settings)[0])

    @overload
    def stream(
        self, settings: RunSettings, control: Control | None = None, progress: Literal[False] = False
    ) -> Iterator[Step | Finish]: ...
    @overload
    def stream(
        self, settings: RunSettings, control: Control | None = None, progress: bool = False
    ) -> Iterator[Progress | Step | Finish]: ...
    def stream(
        self, settings: RunSettings, control: Control | None = None, progress: bool = False
    ) -> Iterator[Progress | Step | Finish]:
        """Run; yields a `Step` a token and at last one `Finish`.

        progress: yields before them, as it changes, its place among those that wait and how far the prompt was read.

        Settings that cannot run raise ValueError with a sentence that says what to do, before the first step. Whatever
        else goes wrong ends the run with a `Finish` whose reason is 'error', and keeps what was written.
        """
        loaded, adapter = self._prepared(settings)
        if loaded.capabilities.encoder_decoder:
            from backend.encoder_decoder.run import stream

            yield from stream(loaded, adapter, settings, control or Control(), progress)
            return
        asked, ends = prompt(settings, loaded.tokenizer), end_ids(loaded)
        if not ends and (methods[settings.method].writes_end or (settings.landing and settings.steered)):
            raise Refused(
                "the model's files name no token that ends a response, which the decay and landing write: "
                "choose another method and no landing, or name one as eos_token_id in its generation_config.json"
            )
        ids = asked.ids
        run = _Run(
            settings=settings,
            control=control or Control(),
            runner=_runner(loaded),
            ids=ids,
            chooser=Chooser(settings, len(ids), ends),
            response=begun(loaded.tokenizer, asked.tail),
            asked=asked,
            tells=progress,
        )
        if adapter is not None and adapter.settings is not None:
            norms = prompt_norms(adapter.settings.scale, loaded.model.get_input_embeddings().weight, [ids])
            run.signal = SignalContext(adapter.settings, [len(ids)], [run.goal(run.wanted()) or 1], norms=norms)
        if settings.lands:
            asked_for = {"method": "none", "prompt": planned(settings)}
            unaimed = prompt(settings.model_copy(update=asked_for), loaded.tokenizer).ids
            base = BaseModel(
                run.runner, policy_of(settings), loaded.tokenizer, ends, unaimed,
                len(unaimed) + settings.max_new_tokens, lambda: run.control.stopped,
            )  # fmt: skip
            run.landing = Landing(
                loaded.tokenizer, run.chooser.ends, base, settings.landing, settings.seed, settings.goal_unit,
                settings.max_new_tokens, lambda: run.control.stopped,
            )
        # The base model has a cache of its own, and each ending that is tried goes on from a copy.
        caches = 2 + widest(settings.landing) if run.landing else 1
        room = len(ids) + settings.max_new_tokens
        needed = caches * run.runner.cache_bytes(policy_of(settings), room)
        yield from run.runner.scheduler.stream(run.asks(), needed, lambda: run.control.stopped, progress)

    def _prepared(self, settings: RunSettings) -> tuple[Loaded, Adapter | None]:
        """The loaded model, and the method's adapter where it has one."""
        adapter = self._adapter
        if adapter is None or adapter.method != settings.method:
            adapter = adapters.required(settings.method, settings.model)
        loaded = self.models.load(settings.model, settings.precision, adapter.path if adapter else None)
        if adapter is not None:
            adapter.check_width(loaded.capabilities.width)
        check(settings, loaded.capabilities)
        return loaded, adapter


def _runner(loaded: Loaded) -> Runner:
    return _makes_runners()(loaded)


@cache
def _makes_runners() -> Callable[[Loaded], Runner]:
    # It brings transformers' models and the kernels' compiler: seconds that a page of the lab opens without. No model
    # is loaded meanwhile: of a module that two threads import at once, one may see half.
    with BUILDING:
        from backend.inference.model_runner import runner
    return runner


@dataclass
class _Run:
    """State of one run. tells: whether it yields how far the prompt was read."""

    settings: RunSettings
    control: Control
    runner: Runner
    ids: Tensor
    chooser: Chooser
    response: Response
    asked: Prompt
    tells: bool = False
    signal: SignalContext | None = None
    landing: Landing | None = None
    cache: FramedCache | None = None
    started: float = 0.0
    prefilled: float = 0.0

    def asks(self) -> Asks:
        """The run as the scheduler takes it: what it wants read, its steps, and how it ended. Raises ValueError before
        the first step only."""
        self.started = self.prefilled = time.perf_counter()
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
        try:
            logits, reading = yield from self._prefill(cache, probe)
        except Stopped:
            logits = reading = None
        self.prefilled = time.perf_counter()
        reason: Reason = "stopped"
        last: Choice | None = None
        read = self.ids.tolist()
        while not self.control.stopped and logits is not None:
            wanted = self.wanted()
            goal = self.goal(wanted)
            planned = yield from self._planned(logits, cache, read)
            if self.control.stopped:
                break
            choice = self.chooser.choose(logits, read, self._end_goal(goal), planned)
            if choice.token in self.chooser.ends:
                reason, last = "eos", choice
                break
            read.append(choice.token)
            yield self._step(choice, cache, probe, reading, wanted, goal)
            reading = None
            if self.response.tokens >= settings.max_new_tokens:
                reason = "eos" if self.landing is not None and self.landing.done else "cap"
                break
            if self.control.stopped:
                break
            if self.signal is not None:
                aim = self.landing.aim if self.landing is not None else None
                self.signal.retarget(aim or self.goal(self.wanted()) or 1)
                if not self.text.tokens:
                    self.signal.postpone()
            logits = yield Read(torch.tensor([choice.token]), cache, probe, self.signal)
        yield self._finish(reason, last)

    @property
    def text(self) -> TextStream:
        """The answer so far."""
        return self.response.answer

    def wanted(self) -> int | None:
        """The target in force, in the unit of the settings' goal."""
        return self.control.goal(self.settings) if self.settings.steered else None

    def goal(self, wanted: int | None) -> int | None:
        """The target `wanted` in tokens, by the response so far."""
        if wanted is None:
            return None
        return in_tokens(wanted, self.settings.goal_unit, self.text.text, len(self.text.tokens))

    def _end_goal(self, goal: int | None) -> int | None:
        """The goal in tokens of the whole response; None while the model thinks."""
        return None if goal is None or self.response.thinking else goal + self.response.thought

    def _planned(
        self, logits: Tensor, cache: FramedCache, read: list[int]
    ) -> Generator[Read | list[Read], Any, int | None]:
        if self.landing is None or self.response.thinking:
            return None
        self.landing.cap = self.settings.max_new_tokens - self.response.thought
        written, goal = self.text.tokens, self.control.goal(self.settings)
        thought = read[len(self.ids) : len(read) - len(written)]
        return (yield from self.landing.token(Fork(logits, cache, self.signal, written, thought, goal)))

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
        for ids in [rest] if whole else rest.split(chunks.sizes(begins, len(rest), self.settings.window)):
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
            error=None if wanted is None else length(settings.goal_unit, text, tokens) - wanted,
            prompt_tokens=len(self.ids),
            prefill_seconds=self.prefilled - self.started,
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
        )

    def _notes(self, reason: Reason) -> Iterator[str]:
        if self.landing is not None and reason in ("eos", "cap") and not self.landing.planned:
            yield "landing found no sentence that ends near the target"
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
        if reason == "cap" and self.response.thinking:
            yield "the cap came while the model was thinking: raise it, or switch thinking off"
        if self.response.thought and not self.settings.thinking and not switches(self.response.tokenizer):
            yield "the model's template cannot switch thinking off"
