"""Landing ends a sentence near the target, by an end that the model draws, and changes nothing before."""

import copy

import pytest
import torch

from backend.engine import Lab
from backend.inference.base_model import PROBABLE, BaseModel, End, end_of
from backend.inference.control import Control
from backend.inference.landing import JUDGED, REACH, Ending, Fork, Landing, distinct
from backend.inference.model_runner import Runner
from backend.models.pool import Models
from backend.positions import LambdaWindow, Plain
from backend.settings import RunSettings, Watch
from backend.steps import Step
from backend.text.prompt import end_ids, token_ids
from backend.text.sentences import final
from backend.text.units import length, tolerance
from tests.scripted import scripted

QUIET = Watch(enabled=False)
PROMPT = "Tell me about lighthouses."


def ask(**changes) -> RunSettings:
    settings = {
        "prompt": PROMPT,
        "method": "ldpe",
        # In bf16 processors differ in the last bits, so that samples do as well.
        "precision": "fp32",
        "max_new_tokens": 120,
        "watch": QUIET,
    }
    return RunSettings(**settings | changes)


def run(lab, settings, control=None):
    *steps, finish = lab.stream(settings, control)
    return [step.token for step in steps], finish


def written(tmp_path, pieces, **changes):
    """What a model ends with that writes these pieces."""
    folder = str(scripted(tmp_path, pieces))
    return run(Lab(Models([folder])), ask(prompt="Hm", model=folder, method="prompted", **changes))[1]


@pytest.mark.parametrize("target", [12, 30, pytest.param(45, marks=pytest.mark.scale)])
def test_it_ends_a_sentence_near_the_target_by_an_end_that_the_model_draws(lab, target):
    tokens, finish = run(lab, ask(target=target, landing=12))
    assert finish.reason == "eos" and finish.landed and finish.own_end and final(finish.text)
    # The end that was planned is drawn again as it is written.
    assert abs(finish.error) <= tolerance(target, "tokens") and finish.p_eos_model > 0.5
    base = lab.models.load("embedded", "fp32")
    ids = torch.cat([token_ids(RunSettings(prompt=PROMPT), base.tokenizer), torch.tensor(tokens)])
    with torch.inference_mode():
        expected = base.model(ids[None]).logits[0, -2].softmax(-1)
    assert base.tokenizer.decode(tokens[-1:])[-1:] in ".!?\"" and expected[tokens[-1]] >= PROBABLE


def test_a_run_tells_of_the_endings_it_tried(lab):
    *steps, finish = lab.stream(ask(target=30, landing=12))
    places = [place for place, step in enumerate(steps) if step.tried is not None]
    assert places and not any(ending.chosen for place in places[:-1] for ending in steps[place].tried)
    *_, last = places
    tried, before = steps[last].tried, "".join(step.text for step in steps[:last])
    written, *others = tried
    assert written.chosen and others and not any(ending.chosen for ending in others)
    assert before + written.text == finish.text and written.length == finish.tokens
    assert len({ending.text.strip() for ending in tried}) == len(tried)
    assert all(final(ending.text) and ending.near == (abs(ending.length - 30) <= 3) for ending in tried)
    assert all(step.tried is None for step in lab.stream(ask(target=30)) if isinstance(step, Step))


@pytest.mark.parametrize("worse", [
    {"near": False, "miss": 4.0}, {"own": False}, {"end": End(0.01, 0.9, 0.9)}, {"end": End(None, 0.01, 0.01)},
    {"end": None}, {"text": "Two ways to go:\n1. Walk."}, {"repeats": 1}, {"nats": 9.0}, {"end": End(0.5, 0.05, 0.05)},
])
def test_what_a_reader_would_take_for_no_end_comes_behind(worse):
    good = Ending([1], [1], "It rains.", 2.0, True, 0, True, End(0.5, 0.1, 0.1), 8.0)
    assert good.fits and good.rank < good._replace(**worse).rank
    assert good._replace(**worse).fits == (worse in ({"repeats": 1}, {"nats": 9.0}, {"end": End(0.5, 0.05, 0.05)}))


@pytest.mark.parametrize("before", [[], [58]])
def test_a_target_that_moves_leaves_no_ending_tried_near_the_one_before(before):
    landing = Landing(None, [0], None, 4, 0, "tokens", 400, lambda: False, _goal=60, _tried=before)
    far = Fork(None, None, None, [1] * 60, [], 300)
    with pytest.raises(StopIteration) as over:
        next(landing.token(far))
    assert over.value.value is None and landing.taken() == (() if before else None) and landing.taken() is None


def test_of_more_endings_than_are_judged_each_has_what_was_said_of_it_or_nothing(lab):
    *steps, finish = lab.stream(ask(target=30, landing=32))
    tried = [ending for event in [*steps, finish] for ending in event.tried or ()]
    known = [ending for ending in tried if ending.p_end is not None]
    assert known and all(0 < ending.p_eos < 1 and ending.nats > 0 for ending in known)
    unknown = [ending for ending in tried if ending.p_end is None]
    assert all(ending.p_eos is None and ending.nats is None and not ending.chosen for ending in unknown)


def test_before_its_reach_nothing_changes_and_a_seed_repeats(lab):
    free, landed, again = (run(lab, ask(target=60, landing=tries))[0] for tries in (0, 4, 4))
    assert landed[: 60 - REACH] == free[: 60 - REACH]
    assert landed == again


@pytest.mark.parametrize("unit, target", [("words", 25), pytest.param("characters", 150, marks=pytest.mark.scale)])
def test_words_and_characters_are_counted_as_such(lab, unit, target):
    _, finish = run(lab, ask(target=target, unit=unit, landing=12))
    assert finish.reason == "eos" and finish.landed and final(finish.text)
    assert abs(finish.error) <= tolerance(target, unit)


@pytest.mark.parametrize(("unit", "target"), [("words", 12), ("characters", 60)])
def test_a_try_is_over_soon_after_its_target_whatever_the_cap(lab, monkeypatch, unit, target):
    own, read = Landing._try, []

    def counted(self, *given):
        tried = own(self, *given)
        found, reads = next(tried, None), 0
        while found is not None:
            reads += 1
            logits = yield found
            try:
                found = tried.send(logits)
            except StopIteration as end:
                read.append(reads)
                return end.value

    monkeypatch.setattr(Landing, "_try", counted)
    _, finish = run(lab, ask(target=target, unit=unit, landing=6, max_new_tokens=1000))
    # Without its end a model writes marks that are no words, such as those of turns.
    assert finish.landed and len(read) >= 6 and max(read) < 90


def test_an_end_beyond_the_cap_is_none(lab):
    tokens, finish = run(lab, ask(target=40, landing=12, max_new_tokens=40))
    assert len(tokens) <= 40 and final(finish.text) and finish.reason == "eos" and finish.landed


@pytest.mark.parametrize(
    ("limit", "unit"),
    [(24, "tokens"), (1, "words")]
    + [
        pytest.param(*more, marks=pytest.mark.scale)
        for more in ((20, "words"), (70, "tokens"), (70, "words"), (90, "characters"))
    ],
)
def test_a_limit_is_landed_below(lab, limit, unit):
    tokens, finish = run(lab, ask(method="mnt_orpe", limit=limit, unit=unit, landing=12))
    done = length(unit, finish.text, len(tokens))
    assert not finish.landed or done <= limit
    if limit > 1:
        assert finish.reason == "eos" and final(finish.text) and finish.own_end
        assert not finish.landed or done >= limit - 2 * tolerance(limit, unit)


def test_landing_on_the_cap_is_no_cut(tmp_path):
    finish = written(tmp_path, SCRIPTS["en"].split("|"), target=16, landing=2, max_new_tokens=16)
    assert finish.error == 0 and finish.reason == "eos" and finish.landed


@pytest.mark.parametrize("policy", [Plain(), LambdaWindow(Plain(), 16, 4, 16.0)])
def test_the_base_model_judges_as_transformers_do(lab, policy):
    loaded, runner = lab.models.load("embedded", "fp32"), lab.runner(ask())
    tokenizer, ends = loaded.tokenizer, end_ids(loaded)
    prompt = token_ids(ask(), tokenizer)
    texts = ("It rains.", "Hello there", "Why not? Because it is late.", "", "A.", "Yes, it is one!")
    tails = [tokenizer.encode(text) for text in texts]
    answer = tokenizer.encode("Some words before. ")
    base = BaseModel(runner, policy, tokenizer, ends, prompt, 200)

    def asked():
        # A list would be taken for what it wants read.
        yield tuple((yield from base.judge([], answer, tails)))

    [found] = runner.scheduler.stream(asked())
    assert len(found) == len(tails)
    before = runner.beside(None).cache(policy)
    read = [runner.beside(None).read(token, before) for token in torch.tensor([*prompt.tolist(), *answer]).split(1)]
    for tail, (end, nats) in zip(tails, found, strict=True):
        cache, rows = copy.deepcopy(before), [*read]
        for token in tail:
            rows.append(runner.beside(None).read(torch.tensor([token]), cache))
        if isinstance(policy, Plain):
            with torch.inference_mode():
                logits = loaded.model(torch.cat([prompt, torch.tensor([*answer, *tail])])[None]).logits[0]
            assert (torch.stack(rows) - logits).abs().max() < 2e-3
        expected = torch.log_softmax(torch.stack(rows[-len(tail) - 1 :]), -1)
        assert nats == pytest.approx(-float(sum(expected[place, token] for place, token in enumerate(tail))), abs=1e-2)
        assert end == pytest.approx(end_of(tokenizer, ends, [*answer, *tail], expected, len(answer)), abs=1e-3)


def test_a_base_model_that_is_stopped_reads_no_further(lab):
    loaded, runner = lab.models.load("embedded", "fp32"), lab.runner(ask())
    prompt = torch.full((9_000,), 500)
    base = BaseModel(runner, Plain(), loaded.tokenizer, end_ids(loaded), prompt, 9_100, lambda: True)

    def asked():
        yield tuple((yield from base.judge([], [], [[5, 6]])))

    assert list(runner.scheduler.stream(asked())) == [()]
    assert base._cache.length == 0


def test_an_end_s_mark_is_that_of_its_last_sentence(lab):
    loaded = lab.models.load("embedded", "fp32")
    ids = loaded.tokenizer.encode('It rains. He said: "So it does."\n')
    likely = torch.log_softmax(torch.randn(len(ids) + 1, len(loaded.tokenizer)), -1)
    [place] = [place for place, token in enumerate(ids) if "." in loaded.tokenizer.decode([token])][1:]
    found = end_of(loaded.tokenizer, end_ids(loaded), ids, likely)
    assert found.p_mark == pytest.approx(float(likely[place, ids[place]].exp()))
    assert found.p_eos == pytest.approx(float(likely[-1, end_ids(loaded)].exp().sum()))
    lines = [token for token in range(len(loaded.tokenizer)) if loaded.tokenizer.decode([token]).startswith("\n")]
    assert found.p_line == pytest.approx(found.p_eos + float(likely[-1, lines].exp().sum()))
    assert end_of(loaded.tokenizer, end_ids(loaded), ids[:place], likely[: place + 1]).p_mark is None
    assert end_of(loaded.tokenizer, end_ids(loaded), ids, likely[place + 1 :], place + 1).p_mark is None


# Sentences of eight tokens each, the second ended by an own mark of its script.
SCRIPTS = {
    "en": "Today| the| weather| is| really| very| good|. |We| walk| slowly| in"
    "| a| big| green| park.| Later| on| they| eat",
    "zh": "今天|的|天气|真的|是|非常|好|。|我们|慢慢|走|在|绿色|公园|里|吧。|后来|大家|一起|回",
    "ja": "今日|の|天気|は|とても|いい|です|。|私たち|は、|公園|を|ゆっくり|歩き|ます|よ！|その|後|みんな|で",
    "hi": "आज| मौसम| सच| में| बहुत| ही| अच्छा| है।| हम| धीरे| से| बगीचे| की| ओर| जाते| हैं।| फिर| सब| लोग| घर",
    "ar": "هل| الطقس| جميل| اليوم| في| هذه| المدينة|؟| نعم| نحن| نمشي| ببطء| إلى"
    "| حديقة| خضراء| كبيرة؟| ثم| نعود| معا| الآن",
    "ur": "آج| کا| موسم| واقعی| میں| بہت| اچھا| ہے۔| ہم| آہستہ| چلتے| ہوئے| ہرے| باغ| تک| گئے۔| پھر| سب| لوگ| گھر",
    "am": "ዛሬ| የአየሩ| ሁኔታ| በጣም| እጅግ| ጥሩ| ነው|።| እኛ| ቀስ| ብለን| ወደ| አረንጓዴ| ፓርክ| እንሄዳለን|።\n| ከዚያ| ሁላችንም| ቤት| ውስጥ",
    "de": "Er| sagte| gestern| zu| mir|:| „Komm|!“| Ich| ging| langsam| in| den"
    "| grünen| Park| „Ja.“| Dann| aßen| wir| noch",
    "fr": "Il| dit| alors| à| sa| mère| «\u00a0Oui|.\u00a0»| Elle| rit| et| lui"
    "| donne| du| pain|\u00a0!| Puis| ils| sont| partis",
}


@pytest.mark.parametrize("language", SCRIPTS)
def test_a_sentence_that_ends_on_the_target_by_its_own_mark_is_left_as_it_is(tmp_path, language):
    pieces = SCRIPTS[language].split("|")
    finish = written(tmp_path, pieces, target=16, landing=4)
    assert finish.text == "".join(pieces[:16]) and finish.error == 0 and finish.landed and not finish.own_end


def test_no_stop_is_put_where_the_model_has_none(tmp_path):
    pieces = [f" word{place}" for place in range(40)]
    finish = written(tmp_path, pieces, target=20, landing=4)
    assert finish.text == "".join(pieces) and not finish.landed and finish.own_end
    assert any("no sentence" in note for note in finish.notes)


def test_an_end_that_the_model_draws_by_itself_is_its_own(tmp_path):
    pieces = SCRIPTS["en"].split("|")[:16]
    finish = written(tmp_path, pieces, target=17, landing=2)
    assert finish.text == "".join(pieces) and finish.landed and finish.own_end


def test_a_stop_is_heard_while_endings_are_tried(lab, monkeypatch):
    control, read = Control(), Runner.signalled
    events = lab.stream(ask(target=70, landing=32), control)
    first = next(events)
    tokens = [first.token, *(next(events).token for _ in range(70 - REACH - 1))]
    calls = []

    def stopping(self, *given, **more):
        control.stop()
        calls.append(1)
        return read(self, *given, **more)

    monkeypatch.setattr(Runner, "signalled", stopping)
    rest = list(events)
    assert len(tokens) == 70 - REACH and rest[-1].reason == "stopped" and len(calls) <= 34 + REACH


@pytest.mark.parametrize("moved", [pytest.param(20, marks=pytest.mark.scale), 60])
def test_a_target_moved_while_it_lands_is_landed_on(lab, moved):
    control, tokens, finish = Control(), [], None
    for event in lab.stream(ask(target=30, landing=12), control):
        if isinstance(event, Step):
            tokens.append(event.token)
            if len(tokens) == 10:
                control.retarget(moved)
        else:
            finish = event
    assert finish.landed and finish.own_end and abs(finish.tokens - moved) <= tolerance(moved, "tokens")


def test_a_target_that_was_passed_is_ended_soon(lab):
    control, tokens, finish = Control(), [], None
    for event in lab.stream(ask(target=90, landing=12), control):
        if isinstance(event, Step):
            tokens.append(event.token)
            if len(tokens) == 30:
                control.retarget(20)
        else:
            finish = event
    assert 30 <= finish.tokens <= 90 and finish.reason == "eos"


def test_a_text_that_has_ended_is_ended_where_it_stands(tmp_path):
    pieces = SCRIPTS["en"].split("|")
    folder, control, tokens = str(scripted(tmp_path, pieces)), Control(), []
    for event in Lab(Models([folder])).stream(
        ask(prompt="Hm", model=folder, method="prompted", target=90, landing=2), control
    ):
        if isinstance(event, Step):
            tokens.append(event.token)
            if len(tokens) == 8:
                control.retarget(8)
        else:
            finish = event
    assert finish.text == "".join(pieces[:8]) and finish.landed and finish.error == 0


def test_of_equal_endings_the_one_that_the_model_ended_counts():
    drawn = Ending([1], [1], "It rains.", 0.0, True, 0, True)
    for found in ([drawn, drawn._replace(own=False)], [drawn._replace(own=False), drawn]):
        assert distinct(found) == [drawn]


def test_the_last_tries_judge_no_more_endings_than_they_reserved(lab, monkeypatch):
    """Every sentence's end near a far target is an ending: the base model reads the most hopeful of them alone."""
    judged, judge = [], BaseModel.judge

    def counted(self, thought, answer, tails):
        judged.append(len(tails))
        return judge(self, thought, answer, tails)

    monkeypatch.setattr(BaseModel, "judge", counted)
    run(lab, ask(method="prompted", prompt="Write one word sentences.", target=60, landing=8, max_new_tokens=90))
    assert judged and max(judged) <= JUDGED


def test_it_leaves_free_runs_alone(lab):
    assert (
        run(lab, ask(method="none", landing=8, max_new_tokens=20))[0]
        == run(lab, ask(method="none", max_new_tokens=20))[0]
    )
