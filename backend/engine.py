"""The laboratory: models, and runs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal, overload

from backend.inference.base_model import BaseModel
from backend.inference.causal_run import CausalRun
from backend.inference.control import Control
from backend.inference.embedding import SignalContext
from backend.inference.landing import Landing, widest
from backend.inference.signal import prompt_norms
from backend.methods import methods
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.capabilities import Capabilities
from backend.models.checks import check
from backend.models.embedded import BUILDING
from backend.models.pool import Loaded, Models
from backend.positions import policy_of
from backend.refused import Refused
from backend.settings import RunSettings
from backend.steps import Finish, Progress, Resumed, Step
from backend.text.prompt import end_ids, planned, prompt
from backend.text.sampling import Chooser
from backend.text.thinking import begun

if TYPE_CHECKING:
    from backend.inference.model_runner import Runner


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
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: Literal[False] = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Step | Finish]: ...
    @overload
    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]: ...
    def stream(
        self,
        settings: RunSettings,
        control: Control | None = None,
        progress: bool = False,
        resumed: Resumed | None = None,
    ) -> Iterator[Progress | Step | Finish]:
        """Run; yields a `Step` a token and at last one `Finish`.

        progress: yields before them, as it changes, its place among those that wait and how far the prompt was read.
        resumed: what the run wrote before it was cut off; yields the steps that follow, as if it had not been.

        Settings that cannot run raise ValueError with a sentence that says what to do, before the first step. Whatever
        else goes wrong ends the run with a `Finish` whose reason is 'error', and keeps what was written.
        """
        loaded, adapter = self._prepared(settings)
        if loaded.capabilities.encoder_decoder:
            yield from _searched(loaded, adapter, settings, control or Control(), progress, resumed or Resumed())
            return
        asked, ends = prompt(settings, loaded.tokenizer), end_ids(loaded)
        if not ends and (methods[settings.method].writes_end or (settings.landing and settings.steered)):
            raise Refused(
                "the model's files name no token that ends a response, which the decay and landing write: "
                "choose another method and no landing, or name one as eos_token_id in its generation_config.json"
            )
        ids = asked.ids
        run = CausalRun(
            settings=settings,
            control=control or Control(),
            runner=_runner(loaded),
            ids=ids,
            chooser=Chooser(settings, len(ids), ends),
            response=begun(loaded.tokenizer, asked.tail),
            asked=asked,
            tells=progress,
            resumed=resumed or Resumed(),
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
                loaded.tokenizer, run.chooser.ends, base, settings.landing, settings.seed, settings.unit,
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


def _searched(
    loaded: Loaded, adapter: Adapter | None, settings: RunSettings, control: Control, progress: bool, resumed: Resumed
) -> Iterator[Progress | Step | Finish]:
    """The run of an encoder-decoder, whose steps come when the search has ended."""
    from backend.encoder_decoder.model import SharedWriter
    from backend.encoder_decoder.run import written

    for event in written(SharedWriter.of(loaded, adapter), settings, control, progress):
        if not isinstance(event, Step) or event.index > len(resumed.written):
            yield event


def _runner(loaded: Loaded) -> Runner:
    return _makes_runners()(loaded)


@cache
def _makes_runners() -> Callable[[Loaded], Runner]:
    # It brings transformers' models and the kernels' compiler: seconds that a page of the lab opens without. No model
    # is loaded meanwhile: of a module that two threads import at once, one may see half.
    with BUILDING:
        from backend.inference.model_runner import runner
    return runner
