"""Length signals against the papers' formulas, written out here as loops over math.sin and math.cos."""
import dataclasses
import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, LlamaConfig, LlamaForCausalLM

from backend import Lab, RunSettings, Step
from backend.inference.control import Control
from backend.inference.embedding import SignalContext, add_signal, attach, signalling
from backend.inference.signal import constant, prompt_norms, signal_rows
from backend.methods.lrpe import lrpe
from backend.methods.orpe import orpe
from backend.methods.pre import noisy, pre
from backend.methods.shifts import MntSettings, shifts, sigma
from backend.methods.signal import SignalSettings
from backend.methods.sinusoid import sinusoid
from backend.models import adapters, embedded
from backend.models.pool import Models
from backend.record.trace import Trace
from backend.settings import Watch
from backend.splits import prompts
from backend.text.prompt import token_ids
from backend.text.units import in_tokens, length

KINDS = ("ldpe", "orpe", "lrpe", "pre")


def settings_of(kind, constant=1.0, **more):
    return SignalSettings(kind, gain=1.0, constant=constant, lengths=(10, 200), **more)


def reference_sinusoid(number, d):
    row = []
    for k in range(d // 2):
        angle = number / math.pow(10000.0, 2 * k / d)
        row += [math.sin(angle), math.cos(angle)]
    return row


def reference(kind, position, n, target, d):
    """The row of one 0-based input position, from the papers' definitions."""
    i, end = position + 1, n + target
    t = i - n
    if kind == "ldpe":
        return reference_sinusoid(max(end + 1 - i, 1), d)
    if kind == "orpe":
        return reference_sinusoid(max(end + 1 - i, 1), d) if i > n else [0.0] * d
    if kind == "lrpe":
        row = []
        for k in range(d // 2):
            angle = min(t, target) / math.pow(target, 2 * k / d)
            row += [math.sin(angle), math.cos(angle)]
        return row if i > n else [0.0] * d
    omega = min(max(t, 0) / target, 1.0) * d / 2
    row = []
    for k in range(d // 2):
        x = 2 * k / d
        row += [math.cos(omega * x), math.sin(omega * x)]
    return row


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=2, pad_token_id=2, bos_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def table():
    """Token embeddings of the embedded model."""
    model = AutoModelForCausalLM.from_pretrained(embedded.folder(), dtype=torch.bfloat16)
    return model.get_input_embeddings().weight.detach()


# Formulas


@given(
    kind=st.sampled_from(KINDS),
    half=st.integers(1, 40),
    n=st.integers(0, 60),
    target=st.integers(1, 5000),
    positions=st.lists(st.integers(0, 8000), min_size=1, max_size=6),
    scale=st.floats(-3, 3),
)
def test_rows_are_the_papers(kind, half, n, target, positions, scale):
    rows = signal_rows(settings_of(kind, scale), torch.tensor(positions), n, target, 2 * half)
    expected = torch.tensor(
        [[scale * x for x in reference(kind, p, n, target, 2 * half)] for p in positions], dtype=torch.float64
    )
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows, expected.float(), atol=1e-6, rtol=1e-6)


@given(half=st.integers(1, 300), counts=st.lists(st.integers(1, 200_000), min_size=1, max_size=5))
def test_counts_in_float64(half, counts):
    expected = torch.tensor([reference_sinusoid(c, 2 * half) for c in counts], dtype=torch.float64)
    for encode in (sinusoid, orpe):
        torch.testing.assert_close(encode(torch.tensor(counts), 2 * half), expected, atol=1e-9, rtol=0)


def test_orpe_and_lrpe_show_nothing_at_zero():
    assert not orpe(torch.tensor([0]), 8).any()
    assert not lrpe(torch.tensor([0]), 10, 8).any()


def test_lrpe_in_float64():
    rows = lrpe(torch.tensor([3, 7]), torch.tensor([10, 400]), 12)
    for row, (pos, target) in zip(rows, [(3, 10), (7, 400)], strict=True):
        expected = [f(pos / target ** (2 * k / 12)) for k in range(6) for f in (math.sin, math.cos)]
        torch.testing.assert_close(row, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)


def test_lrpe_is_equal_at_equal_ratios_in_its_last_limit():
    """001 §2: at the exponent 1 the encoding depends on pos / len alone; at 2k/d → 1 it nearly does."""
    wide = 4000
    short, long = lrpe(torch.tensor([5, 10]), torch.tensor([10, 20]), wide)[:, -2:]
    torch.testing.assert_close(short, long, atol=1e-3, rtol=0)


def test_pre_starts_at_one_and_ends_below_the_nyquist_bound():
    assert pre(torch.tensor([0.0]), 8).tolist() == [[1, 0, 1, 0, 1, 0, 1, 0]]
    end = pre(torch.tensor([1.0], dtype=torch.float64), 576)[0]
    torch.testing.assert_close(end[0::2], torch.arange(288).double().cos(), atol=1e-12, rtol=0)
    torch.testing.assert_close(end[1::2], torch.arange(288).double().sin(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 7, 0, 577])
def test_odd_widths_are_refused(kind, width):
    with pytest.raises(ValueError, match="even embedding width"):
        signal_rows(settings_of(kind), torch.tensor([3]), 2, 10, width)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [200, 100_000])
def test_one_row_is_made_alone_in_few_calls(kind, target):
    """Of torch's operations, and of the numbers they make."""
    with Made() as made:
        signal_rows(settings_of(kind), torch.tensor([150]), 100, target, 576)
    assert 0 < made.calls <= 30 and made.numbers <= 12 * 576


class Made(TorchDispatchMode):
    """Operations done inside, and numbers that came out of them."""

    calls = numbers = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        self.calls += 1
        self.numbers += made.numel()
        return made


# The convention: training, inference and metric agree


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_content_token_shows_one_and_the_next_output_is_the_end_mark(kind):
    """What a training sample shows before its EOS is what a run shows when `produced − target` becomes 0."""
    n, target, d = 5, 9, 64
    s = settings_of(kind)
    whole = signal_rows(s, torch.arange(n + target), n, target, d)
    others = {"pre": pre(torch.tensor(1.0), d), "lrpe": lrpe(torch.tensor(target), target, d)}
    last = others.get(kind, sinusoid(torch.tensor(1), d))
    torch.testing.assert_close(whole[-1], last.float())
    context = SignalContext(s, [n], [target])
    context.offset = n + target - 1
    assert torch.equal(context.rows(1, d, torch.device("cpu"))[0], whole[-1:])
    beyond = signal_rows(s, torch.arange(n + target, n + target + 40), n, target, d)
    assert torch.equal(beyond, whole[-1:].expand(40, d))


def test_ldpe_counts_through_the_prompt():
    rows = signal_rows(settings_of("ldpe"), torch.arange(14), 5, 9, 16)
    torch.testing.assert_close(rows, sinusoid(torch.arange(14, 0, -1), 16).float())


def test_pre_shows_the_prompt_no_progress():
    assert signal_rows(settings_of("pre"), torch.arange(5), 5, 9, 6).tolist() == [[1, 0, 1, 0, 1, 0]] * 5


# Max New Tokens++


def test_sigma_runs_from_start_to_maximum():
    m = MntSettings(0.1, 2048, 4096)
    assert sigma(0, 50, m) == pytest.approx(0.1)
    assert sigma(50, 50, m) == pytest.approx(2048)
    assert sigma(20, 50, m) == pytest.approx(0.1 * math.exp(20 / 50 * math.log(2048 / 0.1)))


@given(scale=st.floats(0.01, 1e5), most=st.integers(0, 10_000))
@settings(max_examples=60)
def test_shifts_stay_in_range(scale, most):
    drawn = shifts(scale, torch.full((500,), most), torch.Generator().manual_seed(1))
    assert drawn.dtype == torch.int64 and drawn.min() >= min(most, 1) and drawn.max() <= most


def test_shifts_are_half_normal_and_truncated_without_an_atom():
    # Rounded up, so half a token more than what was drawn, on average.
    free = shifts(100.0, torch.full((200_000,), 100_000), torch.Generator().manual_seed(2)).double() - 0.5
    assert free.mean() == pytest.approx(100 * math.sqrt(2 / math.pi), rel=0.01)
    assert (free <= 100).double().mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.005)
    cut = shifts(100.0, torch.full((200_000,), 50), torch.Generator().manual_seed(3)).double()
    inside = math.erf(49 / 100 / math.sqrt(2)) / math.erf(50 / 100 / math.sqrt(2))
    assert (cut == 50).double().mean() == pytest.approx(1 - inside, abs=0.003)


def test_shifts_to_the_nearest_number_are_those_of_000():
    most, seed = torch.full((200_000,), 100_000), torch.Generator()
    up, nearest = (shifts(0.5, most, seed.manual_seed(5), nearest=way) for way in (False, True))
    assert set((up - nearest).tolist()) == {0, 1} and nearest.min() == 0 and up.min() == 1
    assert (nearest == 0).double().mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.005)
    assert shifts(100.0, torch.tensor([0, 3]).repeat(500), nearest=True).max() == 3


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0, 8.0, 64.0, 512.0])
def test_how_often_a_count_is_shown_as_it_is(scale):
    """By eq. 7, rounded, always at σ = 0.1 and ever more seldom; rounded up, the lab's own way, never."""
    most = torch.full((200_000,), 100_000)
    up, nearest = (shifts(scale, most, torch.Generator().manual_seed(6), way) for way in (False, True))
    share = (nearest == 0).double().mean().item()
    print(f"σ {scale}: shift 0 in {share:.4f} to the nearest number, {(up == 0).double().mean():.4f} up")
    assert share == pytest.approx(math.erf(0.5 / scale / math.sqrt(2)), abs=0.005)
    assert not (up == 0).any() and (share > 0.9999) == (scale == 0.1)


def test_each_sample_has_a_largest_shift_of_its_own():
    most = torch.tensor([0, 3, 50]).repeat(1000)
    drawn = shifts(100.0, most, torch.Generator().manual_seed(4))
    assert [int(drawn[most == each].max()) for each in (0, 3, 50)] == [0, 3, 50]


def test_a_shift_is_added_to_every_count():
    plain = signal_rows(settings_of("ldpe"), torch.arange(10), 4, 6 + 17, 32)
    expected = [reference_sinusoid(4 + 6 + 1 - i + 17, 32) for i in range(1, 11)]
    torch.testing.assert_close(plain, torch.tensor(expected))


@pytest.mark.parametrize("bad", [(0, 1, 1), (2, 1, 1), (1, math.inf, 1), (1, 2, 0), (math.nan, 1, 1)])
def test_bad_mnt_settings_are_refused(bad):
    with pytest.raises(ValueError):
        MntSettings(*bad)


def test_pre_noise_has_the_papers_spread_and_spares_the_prompt():
    ratio = torch.cat([torch.zeros(1000), torch.full((100_000,), 0.5)])
    drawn = noisy(ratio.double(), 64, torch.Generator().manual_seed(4))
    assert not drawn[:1000].any()
    assert drawn[1000:].std().item() == pytest.approx(2 / 64, rel=0.02)
    assert drawn.min() >= 0 and drawn.max() <= 1


# Settings and scale


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "rope"}, {"gain": math.nan}, {"constant": math.inf}, {"lengths": (0, 5)}, {"lengths": (9, 5)},
        {"kind": "pre", "mnt": MntSettings()}, {"convention": 99}, {"scale": "text"},
    ],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        SignalSettings(**{"kind": "ldpe", "gain": 1.0, "constant": 1.0, "lengths": (10, 200), **wrong})


def test_scale_on_the_embedded_model(table):
    """At gain 1 the signal has the norm of a token of the table, on average."""
    rows = [sum(x * x for x in row) for row in table[::400].double().tolist()]
    c = constant(table, 1.0)
    assert c == pytest.approx(math.sqrt(sum(rows) / len(rows)) / math.sqrt(576 / 2), rel=0.03)
    everything = math.sqrt(float((table.double() ** 2).sum()) / len(table))
    signal = signal_rows(settings_of("ldpe", c), torch.arange(300), 100, 200, 576)
    assert signal.norm(dim=-1).mean().item() == pytest.approx(everything, rel=1e-5)
    assert constant(table, 0.25) == pytest.approx(c / 4)


def eq_5(ids, table):
    """|E|_F / |R|_F of 000 eq. 5 for a prompt's embeddings E and as many rows of LDPE, R."""
    width = table.shape[1]
    e = sum(x * x for i in ids for x in table[i].double().tolist())
    r = sum(x * x for number in range(1, len(ids) + 1) for x in reference_sinusoid(number, width))
    return math.sqrt(e) / math.sqrt(r)


def test_the_scale_of_a_sequence_is_that_of_000(table):
    ids = torch.tensor([5, 900, 17, 30_000])
    signal = settings_of("ldpe", constant(table, 1.0, "sequence"), scale="sequence")
    rows = signal_rows(signal, torch.arange(4), 4, 9, 576, prompt_norms("sequence", table, [ids])[0])
    plain = signal_rows(settings_of("ldpe"), torch.arange(4), 4, 9, 576)
    torch.testing.assert_close(rows, plain * eq_5(ids.tolist(), table), rtol=1e-5, atol=1e-7)


def test_one_constant_for_the_table_is_stronger_than_000s_for_each_prompt(table, embedded):
    asked = [prompt.text for prompt in prompts("validation", kinds=["questions", "stories"])]
    ids = [token_ids(RunSettings(prompt=text), embedded.tokenizer) for text in asked]
    of_each = constant(table, 1.0, "sequence") * prompt_norms("sequence", table, ids)
    ratios = constant(table, 1.0) / of_each
    print(f"over {len(ratios)} prompts: {ratios.mean():.3f} times, {ratios.min():.3f} to {ratios.max():.3f}")
    assert len(ratios) >= 50 and ratios.min() > 1.1 and ratios.max() < 1.2
    assert ratios.mean().item() == pytest.approx(1.14, abs=0.005)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_scaled_by_their_sequences_are_those_of_single_runs(llama, kind):
    attach(llama)
    signal = settings_of(kind, 0.3, scale="sequence")
    texts = [torch.randint(3, 128, (n + 4,)) for n in (3, 8)]
    table = llama.get_input_embeddings().weight
    norms = prompt_norms("sequence", table, [texts[0][:3], texts[1][:8]])
    batch = torch.stack([torch.cat([torch.full((5,), 2), texts[0]]), texts[1]])
    with signalling(SignalContext(signal, [3, 8], [4, 9], [5, 0], norms=norms)):
        seen = hidden(llama, batch)
    for row, (text, n, target, pad) in enumerate(zip(texts, (3, 8), (4, 9), (5, 0), strict=True)):
        with signalling(SignalContext(signal, [n], [target], norms=norms[row : row + 1])):
            assert torch.equal(seen[row, pad:], hidden(llama, text[None])[0])
    assert norms[0] != norms[1]


def test_a_signal_scaled_by_its_sequence_needs_its_prompt():
    signal = settings_of("ldpe", 0.3, scale="sequence")
    with pytest.raises(ValueError, match="give prompt_norms"):
        SignalContext(signal, [5], [7])
    with pytest.raises(ValueError, match="give prompt_norms"):
        signal_rows(signal, torch.arange(5), 5, 7, 32)


# The hook


def hidden(model, ids, **more):
    with torch.no_grad():
        return model(ids, output_hidden_states=True, **more).hidden_states[0]


def test_without_a_context_the_hook_does_nothing(llama):
    ids = torch.randint(3, 128, (2, 9))
    before = llama(ids).logits
    attach(llama)
    attach(llama)
    assert torch.equal(llama(ids).logits, before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_hook_adds_the_rows_once(llama, kind):
    attach(llama)
    attach(llama)
    ids = torch.randint(3, 128, (1, 12))
    with signalling(SignalContext(settings_of(kind, 0.3), [5], [7])):
        seen = hidden(llama, ids)
    rows = [[0.3 * x for x in reference(kind, p, 5, 7, 32)] for p in range(12)]
    expected = llama.get_input_embeddings().weight[ids] + torch.tensor([rows])
    torch.testing.assert_close(seen, expected.detach(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_padded_batch_are_those_of_single_runs(llama, kind):
    attach(llama)
    s = settings_of(kind, 0.3)
    prompts, targets = [3, 8, 5], [4, 9, 30]
    texts = [torch.randint(3, 128, (n + 4,)) for n in prompts]
    pads = [max(prompts) - n for n in prompts]
    batch = torch.stack([torch.cat([torch.full((p,), 2), t]) for p, t in zip(pads, texts, strict=True)])
    with signalling(SignalContext(s, prompts, targets, pads)):
        seen = hidden(llama, batch)
    for row, (text, n, target, pad) in enumerate(zip(texts, prompts, targets, pads, strict=True)):
        with signalling(SignalContext(s, [n], [target])):
            alone = hidden(llama, text[None])
        assert torch.equal(seen[row, pad:], alone[0])
        assert torch.equal(seen[row, :pad], llama.get_input_embeddings().weight[batch[row, :pad]])


@pytest.mark.parametrize("kind", KINDS)
def test_any_chunking_gives_the_same_sum(llama, kind):
    attach(llama)
    ids = torch.randint(3, 128, (1, 20))
    with signalling(SignalContext(settings_of(kind, 0.3), [11], [5])):
        whole = hidden(llama, ids)
    context = SignalContext(settings_of(kind, 0.3), [11], [5])
    parts = []
    for chunk in ids.split([7, 1, 4, 1, 1, 6], dim=1):
        with signalling(context):
            parts.append(hidden(llama, chunk))
    assert context.offset == 20
    assert torch.equal(torch.cat(parts, dim=1), whole)


def test_bf16_is_cast_last():
    embeddings = torch.randn(1, 6, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
    context = SignalContext(settings_of("ldpe", 0.7), [2], [3000])
    summed = add_signal(embeddings, context)
    rows = torch.tensor([[0.7 * x for x in reference("ldpe", p, 2, 3000, 64)] for p in range(6)])
    assert summed.dtype == torch.bfloat16
    assert torch.equal(summed[0], (embeddings[0].float() + rows).bfloat16())
    assert not torch.equal(summed[0], embeddings[0] + rows.bfloat16())


def test_a_float64_model_stays_float64():
    summed = add_signal(torch.zeros(1, 1, 8, dtype=torch.float64), SignalContext(settings_of("orpe"), [0], [5]))
    assert summed.dtype == torch.float64


@pytest.mark.parametrize("kind", KINDS)
def test_gain_zero_is_no_signal_bit_for_bit(llama, kind):
    attach(llama)
    ids = torch.randint(3, 128, (1, 12))
    silent = SignalSettings(kind, gain=0.0, constant=0.0, lengths=(10, 200))
    with signalling(SignalContext(silent, [5], [7])) as context:
        seen = hidden(llama, ids)
    assert context.offset == 12
    plain = hidden(llama, ids)
    assert torch.equal(seen.view(torch.int32), plain.view(torch.int32))


def test_gain_zero_keeps_negative_zeros():
    silent = SignalSettings("ldpe", gain=0.0, constant=0.0, lengths=(10, 200))
    summed = add_signal(torch.full((1, 2, 4), -0.0), SignalContext(silent, [2], [3]))
    assert summed.signbit().all()


def test_the_target_can_change_while_writing(llama):
    attach(llama)
    context = SignalContext(settings_of("ldpe"), [4, 4], [50, 60])
    ids = torch.randint(3, 128, (2, 9))
    with signalling(context):
        first = hidden(llama, ids)
        context.retarget(13)
        second = hidden(llama, torch.full((2, 1), 9))
    table = llama.get_input_embeddings().weight.detach()
    for row, (before, after) in enumerate([(50, 13), (60, 60)]):
        shown = torch.cat([first[row] - table[ids[row]], second[row] - table[9]])
        expected = [reference("ldpe", p, 4, before, 32) for p in range(9)] + [reference("ldpe", 9, 4, after, 32)]
        torch.testing.assert_close(shown, torch.tensor(expected), atol=1e-5, rtol=0)


def test_generate_shows_every_step_its_count(llama):
    attach(llama)
    ids = torch.randint(3, 128, (1, 6))
    seen = []
    watch = llama.model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        with signalling(SignalContext(settings_of("ldpe"), [6], [8])):
            written = llama.generate(ids, max_new_tokens=10, min_new_tokens=10, do_sample=False)
    finally:
        watch.remove()
    inputs = torch.cat(seen, dim=1)[0] - llama.get_input_embeddings().weight[written[0, :-1]]
    counts = [max(14 - p, 1) for p in range(15)]
    expected = torch.tensor([reference_sinusoid(c, 32) for c in counts])
    torch.testing.assert_close(inputs.detach(), expected, atol=1e-5, rtol=0)


def test_threads_do_not_see_each_other(llama):
    attach(llama)
    ids = torch.randint(3, 128, (1, 16))
    plain = hidden(llama, ids)
    expected = {}
    for target in (5, 400):
        with signalling(SignalContext(settings_of("ldpe"), [4], [target])):
            expected[target] = hidden(llama, ids)
    expected[None] = plain
    barrier, wrong = threading.Barrier(3), []

    def run(target):
        for _ in range(30):
            barrier.wait()
            if target is None:
                seen = hidden(llama, ids)
            else:
                with signalling(SignalContext(settings_of("ldpe"), [4], [target])):
                    seen = hidden(llama, ids)
            if not torch.equal(seen, expected[target]):
                wrong.append(target)

    threads = [threading.Thread(target=run, args=(target,)) for target in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_inside_switches_the_signal_off(llama):
    attach(llama)
    ids = torch.randint(3, 128, (2, 5))
    plain = hidden(llama, ids)
    with pytest.raises(ValueError, match="set up for 1 rows, the batch has 2"):
        with signalling(SignalContext(settings_of("ldpe"), [4], [9])):
            hidden(llama, ids)
    assert torch.equal(hidden(llama, ids), plain)


@pytest.mark.parametrize(
    ("prompts", "targets", "pads"), [([], [], None), ([1], [1, 2], None), ([1], [0], None), ([1], [5], [-1])]
)
def test_bad_contexts_are_refused(prompts, targets, pads):
    with pytest.raises(ValueError):
        SignalContext(settings_of("ldpe"), prompts, targets, pads)


def test_with_slack_a_target_is_shown_as_the_longest_length_that_it_accepts_and_an_end_as_itself():
    context = SignalContext(dataclasses.replace(settings_of("ldpe"), slack=True), [4], [50])
    exact = SignalContext(settings_of("ldpe"), [4], [53])
    assert torch.equal(context.rows(9, 32, torch.device("cpu")), exact.rows(9, 32, torch.device("cpu")))
    context.retarget(200)
    exact.retarget(210)
    assert torch.equal(context.rows(9, 32, torch.device("cpu")), exact.rows(9, 32, torch.device("cpu")))
    context.end_at(60)
    exact.retarget(60)
    assert torch.equal(context.rows(9, 32, torch.device("cpu")), exact.rows(9, 32, torch.device("cpu")))


def test_a_target_below_one_is_refused():
    with pytest.raises(ValueError):
        SignalContext(settings_of("ldpe"), [1], [5]).retarget(0)

# The whole path: an adapter, through the lab, on the embedded model

PROMPT = "Why is the sky blue?"
FEW = 16


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A lab with random LoRAs for ldpe (gain 0.25), orpe (gain 0) and pre, trained on nothing."""
    torch.manual_seed(7)
    base = AutoModelForCausalLM.from_pretrained(embedded.folder(), dtype=torch.float32)
    lora = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj"]))
    for name, weight in lora.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.02)
    table = base.get_input_embeddings().weight
    root = tmp_path_factory.mktemp("adapters")
    for kind, gain in (("ldpe", 0.25), ("orpe", 0.0), ("pre", 0.25)):
        adapters.save(root / kind, lora, SignalSettings(kind, gain, constant(table, gain), (10, 200)), "embedded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapters, "ROOT", root)
        yield Lab(Models())


@pytest.fixture(scope="module")
def reference_model(adapted):
    """transformers' model with the same LoRA merged by peft, and the hook."""
    base = AutoModelForCausalLM.from_pretrained(embedded.folder(), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(adapters.ROOT / "ldpe")).merge_and_unload(safe_merge=True).eval()
    attach(model)
    return model


def ask(method, **more):
    given = {"precision": "fp32", "target": 30, "max_new_tokens": FEW, **more}
    return RunSettings(prompt=PROMPT, method=method, **given)


def prompt_ids(text=PROMPT):
    tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )["input_ids"]


def written(lab, settings):
    *steps, finish = lab.stream(settings)
    return [step.token for step in steps], steps, finish


def generated(model, ids, tokens=FEW):
    """What transformers writes greedily, without EOS."""
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=2
    )
    return [token for token in out[0, ids.shape[1]:].tolist() if token != 2]


@pytest.fixture(scope="module")
def unsignalled(reference_model):
    """What transformers writes with the LoRA and no signal."""
    return generated(reference_model, prompt_ids())


@pytest.mark.parametrize(("kind", "most"), [("ldpe", 40), ("pre", FEW)])
def test_the_lab_writes_what_transformers_writes(adapted, reference_model, unsignalled, kind, most):
    ids = prompt_ids()
    with signalling(SignalContext(adapters.find(kind, "embedded").settings, [ids.shape[1]], [30])):
        expected = generated(reference_model, ids, most)
    tokens, _, finish = written(adapted, ask(kind, max_new_tokens=most))
    assert tokens == expected and len(tokens) > FEW // 2
    assert tokens[:FEW] != unsignalled
    assert (finish.tokens, finish.error) == (len(tokens), len(tokens) - 30)


def test_gain_zero_is_the_plain_adapter(adapted, unsignalled):
    assert written(adapted, ask("orpe"))[0] == unsignalled


def test_a_count_of_one_is_shown_before_the_end_mark_is_due(adapted):
    """Metric and signal agree: the token after which `remaining` is 0 is the one that showed the count 1."""
    shown = []
    seen = SignalContext.rows

    def rows(context, columns, width, device):
        shown.append((context.offset, int(context._targets[0])))
        return seen(context, columns, width, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SignalContext, "rows", rows)
        _, steps, _ = written(adapted, ask("ldpe", target=12))
    n = prompt_ids().shape[1]
    counts = {offset - n + 1: n + target + 1 - (offset + 1) for offset, target in shown[1:]}
    assert shown[0] == (0, 12)
    assert steps[11].remaining == 0 and counts[12] == 1
    assert all(counts[step.index] == step.remaining + 1 for step in steps[:-1])


def test_a_new_target_is_read_from_the_next_token_on(adapted, reference_model):
    ids = prompt_ids()
    context = SignalContext(adapters.find("ldpe", "embedded").settings, [ids.shape[1]], [30])
    expected, feed, cache = [], ids, DynamicCache()
    for index in range(1, FEW + 1):
        with signalling(context), torch.no_grad():
            token = int(reference_model(feed, past_key_values=cache).logits[0, -1].argmax())
        if token == 2:
            break
        expected.append(token)
        feed = torch.tensor([[token]])
        if index == 8:
            context.retarget(3000)
    control, steps = Control(), []
    for event in adapted.stream(ask("ldpe"), control):
        if isinstance(event, Step):
            steps.append(event)
            if event.index == 8:
                control.retarget(3000)
    assert [step.token for step in steps] == expected
    assert [step.goal for step in steps] == [30] * 8 + [3000] * (len(steps) - 8)
    assert event.error == len(steps) - 3000


@pytest.mark.parametrize(("unit", "goal"), [("words", 25), ("characters", 120)])
def test_words_and_characters_are_estimated_from_what_was_written(adapted, unit, goal):
    _, steps, finish = written(adapted, ask("ldpe", unit=unit, target=goal))
    text = ""
    for step in steps:
        assert step.goal == in_tokens(goal, unit, text, step.index - 1)
        assert step.remaining == step.goal - step.index
        text += step.text
    assert len({step.goal for step in steps}) > 1
    assert finish.error == length(unit, text, len(steps)) - goal


def test_the_prompted_baseline_is_a_prompt(adapted):
    tokens, _, _ = written(adapted, ask("prompted", target=20, unit="words"))
    question = f"Answer the following question in 20 words:\n{PROMPT}"
    assert tokens == written(adapted, RunSettings(prompt=question, precision="fp32", max_new_tokens=FEW))[0]


def test_two_runs_at_once_keep_their_targets(adapted):
    alone = {target: written(adapted, ask("ldpe", target=target, max_new_tokens=12))[0] for target in (3, 90)}
    runs = {target: adapted.stream(ask("ldpe", target=target, max_new_tokens=12)) for target in alone}
    together = {target: [] for target in alone}
    while runs:
        for target, run in list(runs.items()):
            event = next(run)
            if isinstance(event, Step):
                together[target].append(event.token)
            else:
                del runs[target]
    assert together == alone and alone[3] != alone[90]


def test_a_recorded_run_comes_back_and_its_exports_make_it_again(adapted, tmp_path):
    settings = ask("ldpe", watch=Watch(layer=2, head=3, every=3))
    trace = Trace(settings, dataclasses.asdict(adapted.capabilities("embedded", "fp32")))
    for event in adapted.stream(settings):
        trace.append(event)
    again = Trace.load(trace.save(tmp_path / "run.json.gz"))
    assert [step.token for step in again.steps] == [step.token for step in trace.steps]
    assert again.finish == trace.finish and again.capabilities == trace.capabilities
    for one, other in zip(again.steps, trace.steps, strict=True):
        np.testing.assert_allclose(one.entropy, other.entropy, rtol=1e-3, atol=1e-3)
        assert np.array_equal(one.state, other.state)
        assert (one.logits is None) == (other.logits is None)
    cells = [cell["source"] for cell in trace.to_notebook()["cells"] if cell["cell_type"] == "code"]
    for source in (trace.to_script(), "\n".join(cells)):
        names = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("backend.Lab", lambda: adapted, raising=False)
            exec(compile(source, "export", "exec"), names)
        assert names["event"].text == trace.finish.text
    assert len(names["figure"].data[0].z) == adapted.capabilities("embedded", "fp32").layers


def stands_out(kind: str, targets: range, d: int = 576) -> tuple[float, float]:
    """The least that the best linear map of a signal gives for the last row of a target, the most for any other."""
    rows = [
        signal_rows(settings_of(kind), torch.arange(1, n + 1)[None], torch.tensor([[1]]), torch.tensor([[n]]), d)[0]
        for n in targets
    ]
    known = torch.cat([torch.cat(rows), torch.ones(sum(targets), 1)], 1).double()
    last = torch.cat([torch.arange(n) == n - 1 for n in targets])
    normal = known.T @ known + 1e-6 * torch.eye(d + 1, dtype=torch.float64)
    readout = known @ torch.linalg.solve(normal, known.T @ last.double())
    return float(readout[last].min()), float(readout[~last].max())


@pytest.mark.parametrize("kind", KINDS)
def test_one_direction_shows_the_end_at_every_target_except_with_lrpe(kind):
    end, others = stands_out(kind, range(5, 201, 3))
    if kind == "lrpe":
        assert end < 0.2 and others > 0.4
    else:
        assert end > 0.99 and others < 0.02
