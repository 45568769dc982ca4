"""Figures the papers publish, as they print them: other models, other data, there to compare with."""

from __future__ import annotations

from app.results import Table

COUNTDOWN = "003 table 1, RPE on BART-L: MAE 1.6 ± 3.6 (CNN/DM), 0.7 ± 1.1 (XSum)"
COUNTDOWN_BEYOND = "003 table 3, RPE: > 20 off 10.8 % at 300–350 to 95.8 % at 950–1,000"
VARIANCE = "001 table 4, headlines of 30, 50, 75 characters: variance"

# Which method and range of lengths a paper's figures belong to.
LENGTH: dict[tuple[str, str], tuple[str, ...]] = {
    ("none", "10-200"): (
        "003 table 1, BART-L without control: MAE 19.2 ± 17 (CNN/DM), 5.8 ± 5 (XSum)",
        f"{VARIANCE} 193.119, 138.566, 620.887 without control",
    ),
    ("prompted_tuned", "10-200"): ("000 §5.1.2, summaries, Mistral: mean error 24.8 tokens",),
    ("ldpe", "10-200"): (
        "000 abstract: mean error < 3 tokens; §5.1.2, summaries: 2.8 (Mistral), 2.4 (Llama)",
        COUNTDOWN,
        f"{VARIANCE} 0.015, 0.012, 0.013",
    ),
    ("orpe", "10-200"): ("000 table 1, one prompt, Llama: 12, 89, 149, 197 for 10, 90, 150, 200", COUNTDOWN),
    ("lrpe", "10-200"): (f"{VARIANCE} 0.082, 0.071, 0.187",),
    ("pre", "10-200"): (
        "003 table 1, BART-L: MAE 0.5 ± 0.3 (CNN/DM), 0.1 ± 0.2 (XSum); table 4, questions: 0.0 ± 0.1",
    ),
    ("ldpe", "300-1000"): (COUNTDOWN_BEYOND,),
    ("orpe", "300-1000"): (COUNTDOWN_BEYOND,),
    ("pre", "300-1000"): ("003 table 3, PRE: > 20 off 0.4 % at 300–350 to 19.8 % at 950–1,000",),
}

# 003 table 3: per cent of summaries more than 20 tokens off, targets 300–350, 350–400, … 950–1,000 (CNN/DM, BART-L).
BUCKETS = tuple(range(325, 1000, 50))
OUTLIERS = {
    "RPE": (10.8, 15.4, 22.3, 28.0, 37.0, 50.1, 51.4, 53.9, 64.8, 70.3, 75.1, 81.3, 84.9, 95.8),
    "PRE": (0.4, 1.0, 1.5, 3.4, 4.3, 5.4, 4.0, 7.4, 10.9, 9.9, 9.0, 8.4, 8.9, 19.8),
}

SUMMARIES = Table(
    "Published: summaries against those of GPT-3.5, by target in tokens (000 table 2)",
    ("model", "target", "BERT score", "R-1", "R-2", "R-Lsum"),
    (
        ("Llama-LDPE", "0 to 100", "0.715", "0.522", "0.304", "0.420"),
        ("Llama-LDPE", "100 to 200", "0.690", "0.497", "0.231", "0.331"),
        ("Llama-LDPE", "200 to 300", "0.713", "0.554", "0.264", "0.380"),
        ("Llama-LDPE", "300 to 400", "0.695", "0.544", "0.242", "0.403"),
        ("Llama-LDPE", "400 to 500", "0.680", "0.531", "0.230", "0.403"),
        ("Mistral-LDPE", "0 to 100", "0.712", "0.516", "0.303", "0.416"),
        ("Mistral-LDPE", "100 to 200", "0.692", "0.501", "0.232", "0.330"),
        ("Mistral-LDPE", "200 to 300", "0.701", "0.530", "0.248", "0.351"),
        ("Mistral-LDPE", "300 to 400", "0.696", "0.531", "0.233", "0.388"),
        ("Mistral-LDPE", "400 to 500", "0.690", "0.537", "0.238", "0.405"),
        ("Mistral-Prompted", "0 to 100", "0.714", "0.513", "0.301", "0.415"),
        ("Mistral-Prompted", "100 to 200", "0.690", "0.497", "0.230", "0.328"),
        ("Mistral-Prompted", "200 to 300", "0.706", "0.540", "0.260", "0.362"),
        ("Mistral-Prompted", "300 to 400", "0.696", "0.530", "0.233", "0.380"),
        ("Mistral-Prompted", "400 to 500", "0.686", "0.522", "0.233", "0.398"),
    ),
)

SPEED = "002 appendix D, Llama-2-7B at 32k on an A100: Λ reads 3.16× and decodes 2.72× as fast as plain."

# 004 tables 5 to 7, HelloBench: mean tokens and per cent of corrupted responses by policy and ratio.
COMPRESSED = {
    "plain": "LLaMA-3.1-8B 1,076 (1.63), Qwen-2.5-7B 1,002 (4.07), GLM-4-9B 1,030 (2.44)",
    "naive s=2": "LLaMA-3.1-8B 726 (13.01), Qwen-2.5-7B 905 (54.47), GLM-4-9B 1,110 (46.34)",
    "naive s=4": "LLaMA-3.1-8B 280 (77.24), Qwen-2.5-7B 1,722 (94.31), GLM-4-9B 2,454 (84.55)",
    "NTK s=4": "LLaMA-3.1-8B 1,605 (7.32), Qwen-2.5-7B 1,178 (6.5), GLM-4-9B 1,203 (1.63)",
    "NTK s=16": "LLaMA-3.1-8B 1,902 (34.15), Qwen-2.5-7B 1,437 (13.01), GLM-4-9B 1,404 (1.63)",
    "NTK s=64": "LLaMA-3.1-8B 1,813 (61.79), Qwen-2.5-7B 1,651 (47.15), GLM-4-9B 1,666 (4.07)",
    "dynamic s=0.25": "LLaMA-3.1-8B 857 (0), Qwen-2.5-7B 855 (4.88), GLM-4-9B 973 (3.25)",
    "dynamic s=4": "LLaMA-3.1-8B 1,444 (0.81), Qwen-2.5-7B 1,164 (17.07), GLM-4-9B 1,206 (0.81)",
    "dynamic s=16": "LLaMA-3.1-8B 2,029 (24.39), Qwen-2.5-7B 1,569 (22.76), GLM-4-9B 1,407 (4.88)",
}

# 004 tables 2 and 8, HelloBench: mean length and per cent of corrupted responses, by training and reading.
TRAINED = {
    "w/o SFT, plain": "LLaMA-3.1-8B 1,041 (1.63), Qwen-2.5-7B 966 (4.07), GLM-4-9B 967 (2.44)",
    "SFT, plain": "LLaMA-3.1-8B 4,342 (3.25), Qwen-2.5-7B 4,071 (3.25), GLM-4-9B 4,058 (14.63)",
    "SFT, NTK s=16": "LLaMA-3.1-8B 5,166 (21.14)",
    "SFT, dynamic s=4": "LLaMA-3.1-8B 4,632 (3.25)",
    "NTK PIC-SFT, plain": "LLaMA-3.1-8B 3,718 (12.2)",
    "NTK PIC-SFT, NTK s=16": "LLaMA-3.1-8B 4,737 (4.07), Qwen-2.5-7B 3,965 (8.13), GLM-4-9B 3,910 (30.08)",
    "dynamic PIC-SFT, plain": "LLaMA-3.1-8B 4,414 (3.25)",
    "dynamic PIC-SFT, dynamic s=4": "LLaMA-3.1-8B 5,033 (4.07), Qwen-2.5-7B 4,282 (0.81), GLM-4-9B 4,358 (3.25)",
}

# 004 tables 2, 8 and 3, LongBench-Write: S_l by training and reading, or by policy without training.
S_L = {
    "w/o SFT, plain": "LLaMA-3.1-8B 18.87, Qwen-2.5-7B 41.59, GLM-4-9B 27.03",
    "SFT, plain": "LLaMA-3.1-8B 78.06, Qwen-2.5-7B 81.92, GLM-4-9B 77.86",
    "SFT, NTK s=16": "LLaMA-3.1-8B 74.03",
    "SFT, dynamic s=4": "LLaMA-3.1-8B 80.02",
    "NTK PIC-SFT, plain": "LLaMA-3.1-8B 80.29",
    "NTK PIC-SFT, NTK s=16": "LLaMA-3.1-8B 77.71, Qwen-2.5-7B 81.13, GLM-4-9B 77.52",
    "dynamic PIC-SFT, plain": "LLaMA-3.1-8B 75.34",
    "dynamic PIC-SFT, dynamic s=4": "LLaMA-3.1-8B 82.08, Qwen-2.5-7B 84.15, GLM-4-9B 76.48",
    "plain": "LLaMA-3.1-8B 18.87, Qwen-2.5-7B 41.59, GLM-4-9B 27.03",
    "dynamic contiguous s=4": "LLaMA-3.1-8B 27.73",
    "dynamic contiguous s=4, no initial part": "LLaMA-3.1-8B 29.32",
}

LEFT_OUT = Table(
    "Published: dynamic PIC of LLaMA-3.1-8B without its initial or recent part (004 table 3)",
    ("part left out", "HelloBench length", "quality", "% corrupted", "S_l", "S_q", "S", "LongBench-Write % corrupted"),
    (
        ("none", "1401.97", "81.13", "0.81", "27.73", "4.36", "16.05", "5.83"),
        ("initial", "1400.53", "81.45", "1.63", "29.32", "4.44", "16.88", "6.67"),
        ("recent", "306.11", "15.3", "78.05", "2.14", "1.39", "1.76", "48.33"),
    ),
)

DECOUPLING = Table(
    "Published: accuracy of LLaMA-3.1-8B by training and reading (004 figure 3, table 4)",
    ("training, reading", "MMLU", "GSM8K"),
    (
        ("w/o SFT, plain", "66.17", "80.64"),
        ("SFT, plain", "46.48", "64.82"),
        ("NTK PIC-SFT, plain", "50.33", "65.73"),
        ("NTK PIC-SFT, NTK", "47.82", "61.71"),
        ("dynamic PIC-SFT, plain", "54.77", "66.57"),
        ("dynamic PIC-SFT, dynamic", "50.10", "59.21"),
    ),
)

FLUENCY = Table(
    "Published: perplexity on ArXiv by tokens read (002 table 1)",
    ("model", "attention", "2k", "4k", "8k", "16k", "32k"),
    (
        ("LLaMA", "plain", "3.84", "10k", "60k", "68k", "49k"),
        ("LLaMA", "Λ", "4.38", "4.54", "3.68", "4.20", "1.02"),
        ("Llama-2", "plain", "3.37", "3.76", "8,461", "NaN", "NaN"),
        ("Llama-2", "Λ", "4.33", "3.63", "3.33", "4.18", "6.49"),
        ("GPT-J-6B", "plain", "3.90", "1,285", "1,011", "1,617", "278"),
        ("GPT-J-6B", "Λ", "3.84", "3.13", "3.00", "3.06", "2.14"),
        ("MPT-7B", "plain", "5.49", "247.6", "1,122", "1,672", "1,601"),
        ("MPT-7B", "Λ", "5.69", "6.76", "5.79", "5.98", "4.60"),
    ),
)

CONTINUATIONS = Table(
    "Published: BLEU, ROUGE-Lsum of 100 tokens written on ArXiv, by tokens read (002 table 2)",
    ("model", "attention", "4k", "8k", "12k", "16k", "32k"),
    (
        ("MPT-7B", "plain", "0.0, 5.6", "0.2, 3.6", "0.0, 5.9", "0.0, 1.7", "0.4, 1.4"),
        ("MPT-7B", "Λ", "16.1, 23.8", "20.2, 24.9", "12.6, 24.1", "23.9, 29.0", "19.7, 26.6"),
        ("Llama-2", "plain", "26.6, 31.4", "0.0, 0.2", "0.0, 0.0", "0.0, 0.0", "0.0, 0.0"),
        ("Llama-2", "Λ", "26.9, 31.8", "23.6, 30.9", "23.9, 28.2", "24.8, 29.2", "18.4, 20.4"),
    ),
)
