"""The length signal of the adapter beside this file, for transformers and peft alone.

`attach(model, prompt, target)` adds it to the input embeddings until the hook it returns is removed: prompt, target in
tokens, for one sequence, read from its beginning. signal.json is read from `folder`.
"""

import json
from pathlib import Path

import torch


def attach(model, prompt, target, folder=Path(__file__).parent):
    signal, place = json.loads((Path(folder) / "signal.json").read_text())["signal"], 0
    # With slack the countdown goes to the longest length that meets the target.
    longest = target + (int(max(3, 0.05 * target)) if signal.get("slack") else 0)

    def add(module, inputs, embeddings):
        nonlocal place
        response = torch.arange(place, place + embeddings.shape[1], device=embeddings.device).double() + 1 - prompt
        place += embeddings.shape[1]
        scale = signal["constant"]
        if signal.get("scale", "table") == "sequence":
            raise ValueError("this adapter's scale is its prompt's: use the lab")
        rows = ROWS[signal["kind"]](response, longest, embeddings.shape[-1])
        return (embeddings + (rows * scale).float()).to(embeddings.dtype)

    return model.get_input_embeddings().register_forward_hook(add)


def wave(phase, first=torch.sin, second=torch.cos):
    return torch.stack((first(phase), second(phase)), -1).flatten(-2)


def ldpe(response, target, width):
    count = (target + 1 - response).clamp(min=1)[:, None]
    return wave(count * 10_000.0 ** (-pairs(response, width)))


def orpe(response, target, width):
    return ldpe(response, target, width) * (response > 0)[:, None]


def lrpe(response, target, width):
    position = response.clamp(0, target)[:, None]
    return wave(position * float(target) ** (-pairs(response, width))) * (position > 0)


def pre(response, target, width):
    progress = (response / target).clamp(0, 1)[:, None]
    return wave(progress * pairs(response, width) * width / 2, torch.cos, torch.sin)


def pairs(response, width):
    return 2 * torch.arange(width // 2, device=response.device).double() / width


ROWS = {"ldpe": ldpe, "orpe": orpe, "lrpe": lrpe, "pre": pre}
