"""Which model runs, and what is watched in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from backend.settings.on_page import OnPage, Part

Precision = Literal["bf16", "fp32", "int8", "int4", "4bit"]


class ModelSettings(Part):
    """The model, by its name on the allow-list, and how its weights are held."""

    title = "Model and probes"
    hint = "what runs, and what is watched"

    model: str = Field(
        "embedded", max_length=300, description="'embedded', a hub id or a local folder from the allow-list"
    )
    precision: Precision = Field(
        "bf16", description="weights as bf16, fp32, weight-only int8 or int4 (CPU), or 4-bit by bitsandbytes"
    )


class Watch(BaseModel):
    """What the probes record while the model writes (002 §3).

    Of the embedded model's heads the default one tells near from far most clearly; a model without such a layer or head
    shows its last.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="record attention entropy, logits and first-layer states")
    layer: int = Field(12, ge=0, le=1000, description="layer whose attention logits are binned by distance")
    head: int = Field(6, ge=0, le=1000, description="head whose attention logits are binned by distance")
    every: Annotated[int, OnPage("Every n tokens", "How often scores are recorded.")] = Field(
        4, ge=1, le=1000, description="tokens between two recordings of the attention logits"
    )
