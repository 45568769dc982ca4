"""The headline model's own parts: a small Marian that reads subwords and writes characters (001 §4) or subwords.

Its folder holds `config.json`, `model.safetensors` (or `model.int8.safetensors`) and `generation_config.json` as
transformers writes them, the source's `tokenizer.json`, and the target's in `characters/` or `bpe/`. Lengths are of
characters in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from backend.models.eight_bits import EIGHT, readable

if TYPE_CHECKING:
    from transformers import MarianConfig, PreTrainedTokenizerFast

NAME = "headlines"
FOLDER = Path(__file__).parents[2] / "assets" / "headlines"
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SPECIAL = (PAD, END, UNKNOWN)
SOURCE_TOKENS, RARE = 8_000, 20
# What the tokens of a target are, and the name of its tokenizer's folder.
TargetTokens = Literal["characters", "bpe"]


def place(model: str) -> str:
    """Where transformers finds a model of that name: the lab's own folder, or what the name says; of a folder with
    weights in eight bits, one that has them whole."""
    folder = FOLDER if model == NAME else Path(model)
    return str(readable(folder)) if model == NAME or (folder / EIGHT).is_file() else model


def target_tokens(folder: Path) -> TargetTokens | None:
    """What the model of a folder writes; None where the folder has no tokenizer for it alone."""
    return next((name for name in get_args(TargetTokens) if (folder / name).is_dir()), None)


def config(
    written: int,
    width: int = 256,
    layers: int = 3,
    shared: bool = False,
    read: int = SOURCE_TOKENS,
) -> MarianConfig:
    """A Marian with sinusoids as positions, of so many layers on each side, and so many tokens that are written and
    read. shared: they are the same, and one table embeds both and tells what comes next."""
    from transformers import MarianConfig

    return MarianConfig(
        vocab_size=written if shared else read,
        decoder_vocab_size=written,
        share_encoder_decoder_embeddings=shared,
        tie_word_embeddings=shared,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        # A table that also tells what comes next begins as wide as fits both.
        init_std=width**-0.5 if shared else 0.02,
        max_position_embeddings=512,
        pad_token_id=SPECIAL.index(PAD),
        eos_token_id=SPECIAL.index(END),
        decoder_start_token_id=SPECIAL.index(PAD),
        forced_eos_token_id=None,
    )


def tokenizers(folder: Path) -> tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast]:
    """Those of sources and of what is written, out of a model's folder."""
    from transformers import PreTrainedTokenizerFast

    written = folder / (target_tokens(folder) or "characters")
    source, target = (PreTrainedTokenizerFast.from_pretrained(each) for each in (folder, written))
    return source, target


def subwords(texts: Iterable[str], size: int = SOURCE_TOKENS) -> PreTrainedTokenizerFast:
    """A byte-level BPE for sources, learnt from them, that closes each with the end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, SPECIAL.index(END))]
    )
    return _fast(bpe)


def whole(subwords: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The same tokens for what is written: every text comes back as it was. Adds no end, and reads none."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

    bpe = Tokenizer.from_str(subwords.backend_tokenizer.to_str())
    # Always one space more, so that the first word is a word like others, which is taken away again.
    bpe.normalizer = normalizers.Prepend(" ")
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return _fast(bpe, split_special_tokens=True)


def characters(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token for each character that is not rare in the texts; others are the unknown one. Adds no end."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    counts = Counter(character for text in texts for character in text)
    known = [*SPECIAL, *sorted(character for character, count in counts.items() if count >= RARE)]
    single = Tokenizer(models.WordLevel({token: number for number, token in enumerate(known)}, unk_token=UNKNOWN))
    single.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    single.decoder = decoders.Fuse()
    return _fast(single)


def _fast(tokenizer: object, **more: bool) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": PAD, "eos_token": END, "unk_token": UNKNOWN}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **special, **more
    )
