"""What a model is and which of the lab's controls it allows, with the reason where it does not."""
from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from backend.families import encoder_decoders, families, head_dim
from backend.settings import Precision

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Position = Literal["rope", "alibi", "other"]

LEARNED_POSITION_FAMILIES = frozenset({"gpt2", "gpt_neo", "gpt_bigcode", "opt", "biogpt"})
FIXED_ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn"})
# Weights of a model that may be held twice, as transformers has them and as the fused path does.
LARGEST = 2_000_000_000
_OF_A_SOURCE = {
    **dict.fromkeys(("pic", "ntk"), "A model with an encoder has no RoPE whose positions could be compressed."),
    "window": "A model with an encoder reads its whole source: there is no window.",
    **dict.fromkeys(("int8", "int4", "4bit"), "Models with an encoder run at bf16 or fp32: choose one of these."),
}
# Widths of heads that the compiled kernels take are multiples of this.
HEAD_STEP = 16


@dataclass(frozen=True)
class Capabilities:
    """One loaded model, described.

    family: transformers' model_type. heads, kv_heads: query and key heads of a layer. width: size of the hidden state.
    parameters: number of weights, shared ones once. training_length: tokens of context the model was trained for,
    None where its config does not say. rope_type, rope_base: as in its config, None without RoPE.
    unsupported: a sentence saying why not, by control (pic, ntk, window, signals, int8, int4, 4bit, probes); under
    "model" where the engine cannot run the model at all. encoder_decoder: whether it reads a source and writes another
    text; layers and heads are its decoder's.
    """

    model: str
    family: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    parameters: int
    training_length: int | None
    position: Position
    rope_type: str | None
    rope_base: float | None
    precision: str
    device: str
    unsupported: dict[str, str]
    encoder_decoder: bool = False


def describe(
    name: str, model: PreTrainedModel, precision: str, reasons: dict[str, str] | None = None
) -> Capabilities:
    """The capabilities of `model`, known to the user as `name` and loaded at `precision`.

    reasons: what is unsupported, by the config as stored; by the model's own, which tells of its quantisation, without.
    """
    config = model.config
    heads, width = config.num_attention_heads, config.hidden_size
    # What an encoder-decoder calls its decoder's.
    layers = getattr(config, "decoder_layers", None) or getattr(config, "num_decoder_layers", None)
    family = families.get(config.model_type)
    rope = family.rotation(config) if family else None
    return Capabilities(
        model=name,
        family=config.model_type,
        layers=layers or config.num_hidden_layers,
        heads=getattr(config, "decoder_attention_heads", None) or heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=head_dim(config),
        width=width,
        vocab=config.vocab_size,
        parameters=model.num_parameters(),
        training_length=_training_length(config),
        position=family.positions if family else "other",
        rope_type=rope.kind if rope else None,
        rope_base=rope.base if rope else None,
        precision=precision,
        device=str(model.device),
        unsupported=unsupported(config, model.device) if reasons is None else reasons,
        encoder_decoder=writes_of_a_source(config),
    )


def unsupported(config: PreTrainedConfig, device: torch.device) -> dict[str, str]:
    """Why a control cannot work with this model on this device; controls that work are absent."""
    if writes_of_a_source(config):
        return dict(_OF_A_SOURCE)
    return _unsupported_positions(config) | _unsupported_precisions(config, device)


def writes_of_a_source(config: PreTrainedConfig) -> bool:
    """Whether a model is an encoder-decoder that the lab knows."""
    return bool(config.is_encoder_decoder) and config.model_type in encoder_decoders


def unrunnable(config: PreTrainedConfig) -> str | None:
    """Why the engine cannot run a model at all, and what to do instead; None where it can."""
    name, choose = config.model_type, f"choose a model of {', '.join(sorted(families.names()))}."
    family = families.get(name)
    if name in LEARNED_POSITION_FAMILIES:
        return f"{name} adds a learned vector for each absolute position, so distances cannot be bent: {choose}"
    if family is None:
        return f"The lab does not know how {name} tells positions apart: {choose}"
    if _slides(config):
        return "This model slides its own attention window: choose one without (for Mistral, v0.2 or later)."
    rotation = family.rotation(config)
    if rotation is not None and rotation.kind not in FIXED_ROPE_TYPES:
        return (
            f"The model's RoPE frequencies ({rotation.kind}) change with the length, so keys cannot be rotated once "
            f"and kept: choose a model whose rope_type is one of {', '.join(sorted(FIXED_ROPE_TYPES))}."
        )
    if rotation is not None and not family.rotatable(config):
        return (
            f"The config rotates {rotation.width} of {head_dim(config)} dimensions of a head ({rotation.kind}), which "
            f"{name} cannot do: correct it, or choose another model."
        )
    return None


def fusable(config: PreTrainedConfig) -> bool:
    """Whether the fused path on the CPU covers such a model, with int8 and int4 weights of the lab's own."""
    return (
        _llama_shaped(config)
        and config.hidden_act == "silu"
        and head_dim(config) % HEAD_STEP == 0
        and _weights(config) <= LARGEST
    )


def stored_precision(config: PreTrainedConfig) -> str | None:
    """The precision of weights that a folder stores quantised, None for plain ones.

    4bit and int8 by bitsandbytes; other kinds by their own name, which is no precision of the lab's.
    """
    stored = getattr(config, "quantization_config", None)
    if not stored:
        return None
    how = stored if isinstance(stored, dict) else stored.to_dict()
    if how.get("load_in_4bit"):
        return "4bit"
    return "int8" if how.get("load_in_8bit") else str(how.get("quant_method", "an unknown kind"))


def _llama_shaped(config: PreTrainedConfig) -> bool:
    family = families.get(config.model_type)
    return family is not None and family.fused


def _weights(config: PreTrainedConfig) -> int:
    """Weights of a Llama-shaped model's matrices."""
    heads = 2 * (config.num_attention_heads + config.num_key_value_heads)
    layer = config.hidden_size * (heads * head_dim(config) + 3 * config.intermediate_size)
    tables = 1 if config.tie_word_embeddings else 2
    return config.num_hidden_layers * layer + tables * config.vocab_size * config.hidden_size


def _unsupported_positions(config: PreTrainedConfig) -> dict[str, str]:
    if why := unrunnable(config):
        return dict.fromkeys(("model", "pic", "ntk", "window", "probes"), why)
    return families[config.model_type].unsupported(config)


def _unsupported_precisions(config: PreTrainedConfig, device: torch.device) -> dict[str, str]:
    missing = importlib.util.find_spec("bitsandbytes") is None
    if kind := stored_precision(config):
        return _others_than(kind, missing)
    reasons, packed = {}, device.type != "cuda" and fusable(config)
    if missing:
        instead = "bf16 or int8" if packed else "bf16"
        reasons["4bit"] = f"4-bit weights need bitsandbytes, which has no build here: choose {instead}."
        if not packed:
            reasons["int8"] = "int8 needs bitsandbytes for this model, which has no build here: choose bf16."
    if device.type == "cuda":
        reasons["int4"] = f"The lab's int4 weights are for the CPU: choose {'bf16' if missing else '4bit'} on a GPU."
    elif not packed:
        instead = "bf16" if missing else "4bit or int8"
        what = "its size or shape" if _llama_shaped(config) else f"the layers of {config.model_type}"
        reasons["int4"] = f"The lab's int4 weights do not cover {what}: choose {instead}."
    return reasons


def _others_than(kind: str, missing: bool) -> dict[str, str]:
    """Why weights that are stored quantised run at their own precision alone. missing: bitsandbytes."""
    precisions = get_args(Precision)
    if kind not in precisions:
        why = f"The weights are stored quantised by {kind}, which the lab does not run"
    elif missing:
        why = f"The weights are stored as {kind} of bitsandbytes, which has no build here"
    else:
        return dict.fromkeys(set(precisions) - {kind}, f"The weights are stored as {kind} and stay so: choose {kind}.")
    return dict.fromkeys(precisions, f"{why}: choose a copy of the model that is not quantised.")


def _slides(config: PreTrainedConfig) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return "sliding_attention" in kinds
    return getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)


def _training_length(config: PreTrainedConfig) -> int | None:
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        length = getattr(config, name, None)
        if isinstance(length, int):
            return length
    return None
