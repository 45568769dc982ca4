"""Landing ends a sentence near the target, and changes nothing before."""

from itertools import product

import pytest

from backend.engine import Lab
from backend.inference.control import Control
from backend.inference.landing import NEAR, REACH, Landing
from backend.inference.model_runner import Runner
from backend.models.pool import Models
from backend.settings import RunSettings, Watch
from backend.text.sentences import final
from tests.scripted import scripted

QUIET = Watch(enabled=False)


def ask(**changes) -> RunSettings:
    settings = {
        "prompt": "Write a long story about a lighthouse.",
        "method": "exp_decay",
        # In bf16 processors differ in the last bits, so that samples do as well.
        "precision": "fp32",
        "max_new_tokens": 120,
        "watch": QUIET,
    }
    return RunSettings(**settings | changes)


def run(lab, settings, control=None):
    *steps, finish = lab.stream(settings, control)
    return [step.token for step in steps], finish


@pytest.mark.parametrize("target", [30, 45])
def test_it_ends_a_sentence_near_the_target(lab, target):
    _, finish = run(lab, ask(target=target, landing=8))
    assert finish.reason == "eos" and finish.landed and final(finish.text)
    assert abs(finish.error) <= NEAR


def test_more_tries_find_no_worse_an_end(lab, monkeypatch):
    ranks, best = [], Landing._best

    def looked(self, *given):
        found = yield from best(self, *given)
        ranks.append(found.rank)
        return found

    monkeypatch.setattr(Landing, "_best", looked)
    for target, tries in product((12, 20, 28), (1, 6)):
        run(lab, ask(target=target, landing=tries))
    one, six = ranks[::2], ranks[1::2]
    assert len(ranks) == 6 and all(more <= less for more, less in zip(six, one, strict=True)) and six != one


def test_before_its_reach_nothing_changes_and_a_seed_repeats(lab):
    free, landed, again = (run(lab, ask(target=50, landing=tries))[0] for tries in (0, 4, 4))
    assert landed[: 50 - REACH] == free[: 50 - REACH]
    assert landed == again


def test_words_are_counted_as_words(lab):
    _, finish = run(lab, ask(target=30, unit="words", landing=8))
    assert finish.reason == "eos" and abs(finish.words - 30) <= 4


def test_an_end_beyond_the_cap_is_none(lab):
    tokens, finish = run(lab, ask(target=40, landing=6, max_new_tokens=40))
    assert len(tokens) <= 40 and final(finish.text) and finish.reason == "eos" and finish.landed


def test_landing_on_the_cap_is_no_cut(tmp_path):
    folder = str(scripted(tmp_path, SCRIPTS["en"].split("|")))
    _, finish = run(Lab(Models([folder])), ask(prompt="Hm", model=folder, target=16, landing=2, max_new_tokens=16))
    assert finish.error == 0 and finish.reason == "eos" and finish.landed


def test_full_stops_are_tokens_of_their_own(lab):
    tokenizer = lab.models.load("embedded").tokenizer
    landing = Landing(tokenizer, [0], 1, 0, "tokens", 9, lambda: False)
    word = tokenizer.encode("blue", add_special_tokens=False)
    assert [tokenizer.decode([*word, token]) for token in landing._stops("It is blue")] == ["blue.", "blue!", "blue?"]
    assert all(tokenizer.decode([token]) in "。！？" for token in landing._stops("今天很好"))


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
    folder = str(scripted(tmp_path, pieces))
    _, finish = run(Lab(Models([folder])), ask(prompt="Hm", model=folder, target=16, landing=4))
    assert finish.text == "".join(pieces[:16]) and finish.error == 0 and finish.landed and not finish.own_end


def test_no_stop_is_put_where_the_model_has_none(tmp_path):
    pieces = [f" word{place}" for place in range(40)]
    folder = str(scripted(tmp_path, pieces))
    _, finish = run(Lab(Models([folder])), ask(prompt="Hm", model=folder, target=20, landing=4))
    assert finish.text == "".join(pieces) and not finish.landed and finish.own_end


def test_an_end_that_the_model_draws_by_itself_is_its_own(tmp_path):
    pieces = SCRIPTS["en"].split("|")[:16]
    folder = str(scripted(tmp_path, pieces))
    _, finish = run(Lab(Models([folder])), ask(prompt="Hm", model=folder, target=17, landing=2))
    assert finish.text == "".join(pieces) and finish.landed and finish.own_end


@pytest.mark.parametrize("target", [12, 37])
def test_what_landing_ends_is_a_sentence(lab, target):
    _, finish = run(lab, ask(target=target, landing=8))
    assert finish.reason == "eos" and final(finish.text) and finish.landed


def test_a_stop_is_heard_while_endings_are_tried(lab, monkeypatch):
    control, read = Control(), Runner.signalled
    events = lab.stream(ask(target=30, landing=32), control)
    tokens = [next(events).token for _ in range(30 - REACH)]

    def stopping(self, *given, **more):
        control.stop()
        calls.append(1)
        return read(self, *given, **more)

    calls = []
    monkeypatch.setattr(Runner, "signalled", stopping)
    rest = list(events)
    assert len(tokens) == 30 - REACH and rest[-1].reason == "stopped" and len(calls) <= 34


def test_a_target_moved_while_it_lands_is_landed_on(lab):
    control, tokens, finish = Control(), [], None
    for event in lab.stream(ask(target=30, landing=6), control):
        if hasattr(event, "token"):
            tokens.append(event.token)
            if len(tokens) == 25:
                control.retarget(60)
        else:
            finish = event
    assert finish.error is not None and abs(finish.tokens - 60) <= NEAR


def test_it_can_be_stopped_and_leaves_free_runs_alone(lab):
    assert (
        run(lab, ask(method="none", landing=8, max_new_tokens=20))[0]
        == run(lab, ask(method="none", max_new_tokens=20))[0]
    )
