"""The page's look as far as Gradio's theme decides it: colours and fonts, all served from this machine."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils.fonts import LocalFont

INK = gr.themes.Color(
    "#f7f9fb",
    "#eef1f5",
    "#e2e7ed",
    "#cbd3dc",
    "#98a2ae",
    "#66717f",
    "#4a5563",
    "#343e4a",
    "#212a35",
    "#151b23",
    "#0d1218",
    name="ink",
)
BLUE = gr.themes.Color(
    "#eef7fc",
    "#d9edf8",
    "#b5dcf1",
    "#82c4e6",
    "#3fa3d6",
    "#0072b2",
    "#00639b",
    "#00527f",
    "#004368",
    "#003553",
    "#00253b",
    name="blue",
)


def make() -> gr.themes.Base:
    """The theme, light and dark."""
    sans: list[gr.themes.Font | str] = [
        LocalFont("IBM Plex Sans", (400, 700)),
        "ui-sans-serif",
        "system-ui",
        "sans-serif",
    ]
    mono: list[gr.themes.Font | str] = [LocalFont("IBM Plex Mono", (400, 700)), "ui-monospace", "monospace"]
    return gr.themes.Base(
        primary_hue=BLUE,
        secondary_hue=BLUE,
        neutral_hue=INK,
        font=sans,
        font_mono=mono,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_sm,
    ).set(
        body_background_fill="#f3f5f8",
        body_background_fill_dark="#0d1218",
        body_text_color_subdued="#5b6674",
        body_text_color_subdued_dark="#9aa7b5",
        block_background_fill="#ffffff",
        block_background_fill_dark="#151b23",
        block_border_color="#e2e7ed",
        block_border_color_dark="#26303b",
        block_shadow="none",
        block_shadow_dark="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_title_text_weight="500",
        input_background_fill="#f7f9fb",
        input_background_fill_dark="#0f151c",
        input_border_color="#d9dfe6",
        input_border_color_dark="#2c3743",
        button_primary_background_fill="#0072b2",
        button_primary_background_fill_hover="#00639b",
        button_primary_background_fill_dark="#0a78b8",
        button_primary_background_fill_hover_dark="#0072b2",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        checkbox_label_background_fill="#f7f9fb",
        checkbox_label_background_fill_dark="#10161d",
        checkbox_label_background_fill_hover="#eef1f5",
        checkbox_label_background_fill_hover_dark="#1c242e",
        checkbox_label_border_color="#d9dfe6",
        checkbox_label_border_color_dark="#2c3743",
        checkbox_label_border_width="1px",
        checkbox_label_padding="5px 10px",
        button_secondary_background_fill="#e9edf2",
        button_secondary_background_fill_dark="#26303b",
        slider_color="#0072b2",
        slider_color_dark="#56b4e9",
    )
