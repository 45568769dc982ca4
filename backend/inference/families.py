"""How each model family is made to use framed attention, without touching its class.

An attached model is still transformers' own outside `attention.framed`: its rotary embedding, attention and masks act
as before. Inside, queries and keys reach the attention function unrotated and the cache is ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import MethodType

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from backend.inference import lora
from backend.inference.attention import NAME, current_frame, framed_attention
from backend.models.capabilities import unrunnable
from backend.refused import Refused

_attaching = threading.Lock()


class FramedRotary(nn.Module):
    """The identity rotation inside `framed`, the model's own outside."""

    def __init__(self, own: nn.Module):
        super().__init__()
        self.own = own

    def forward(self, x: Tensor, position_ids: Tensor, **kwargs) -> tuple[Tensor, Tensor]:
        if current_frame() is None:
            return self.own(x, position_ids, **kwargs)
        width = 2 * self.own.inv_freq.shape[0]
        one = torch.ones(1, 1, width, dtype=x.dtype, device=x.device)
        return one, torch.zeros_like(one)


def attach(model: PreTrainedModel) -> PreTrainedModel:
    """Make a loaded model use framed attention inside `attention.framed`; safe to call again, and from threads.

    Raises ValueError for models that the engine cannot run, with a sentence that says what to do.
    """
    if why := unrunnable(model.config):
        raise Refused(why)
    with _attaching:
        if not getattr(model, "framed_attached", False):
            FAMILIES[model.config.model_type](model)
            model.config._attn_implementation = NAME
            layers(model)[0].register_forward_hook(_first_layer)
            lora.attach(model)
            model.framed_attached = True
    return model


def layers(model: PreTrainedModel) -> nn.ModuleList:
    """The model's decoder layers."""
    base = model.base_model
    found = next(getattr(base, name, None) for name in ("layers", "h", "blocks") if hasattr(base, name))
    assert isinstance(found, nn.ModuleList)
    return found


def _first_layer(module, inputs, output) -> None:
    frame = current_frame()
    if frame is not None and frame.probe is not None:
        hidden = output[0] if isinstance(output, tuple) else output
        frame.probe.state(hidden[0])


def _attach_rotary(model: PreTrainedModel) -> None:
    model.base_model.rotary_emb = FramedRotary(model.base_model.rotary_emb)


def _attach_gptj(model: PreTrainedModel) -> None:
    for block in layers(model):
        _replace_forward(block.attn, _gptj_forward)


def _attach_mpt(model: PreTrainedModel) -> None:
    heads = model.config.n_heads
    slopes = -build_mpt_alibi_tensor(heads, 2, device=model.device)[:, 0, 0]
    for block in layers(model):
        block.attn.framed_slopes = slopes
        _replace_forward(block.attn, _mpt_forward)


def _replace_forward(module: nn.Module, inside: Callable) -> None:
    own = module.forward

    def forward(self, hidden_states, *args, **kwargs):
        return own(hidden_states, *args, **kwargs) if current_frame() is None else inside(self, hidden_states)

    module.forward = MethodType(forward, module)


def _gptj_forward(self, hidden: Tensor) -> tuple[Tensor, None]:
    q, k, v = (_heads(project(hidden), self.head_dim) for project in (self.q_proj, self.k_proj, self.v_proj))
    out, _ = framed_attention(self, q, k, v, None, scaling=self.head_dim**-0.5)
    return self.out_proj(out.flatten(-2)), None


def _mpt_forward(self, hidden: Tensor) -> tuple[Tensor, None]:
    qkv = self.Wqkv(hidden)
    qkv = qkv.clamp(-self.clip_qkv, self.clip_qkv) if self.clip_qkv else qkv
    q, k, v = (_heads(x, self.head_dim) for x in qkv.chunk(3, dim=2))
    out, _ = framed_attention(self, q, k, v, None, scaling=self.softmax_scale)
    return self.out_proj(out.flatten(-2)), None


def _heads(x: Tensor, width: int) -> Tensor:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


FAMILIES: dict[str, Callable[[PreTrainedModel], None]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gpt_neox"), _attach_rotary),
    "gptj": _attach_gptj,
    "mpt": _attach_mpt,
}
