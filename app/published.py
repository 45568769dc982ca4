"""Figures the papers publish, as they print them: other models, other data, there to compare with."""

from __future__ import annotations

from app.results import UNKNOWN, Table
from backend.evaluation.answers import SUMMARIES

COUNTDOWN = "003 table 1, RPE on BART-L: MAE 1.6 ± 3.6 (CNN/DM), 0.7 ± 1.1 (XSum)"
COUNTDOWN_BEYOND = "003 table 3, RPE: > 20 off 10.8 % at 300–350 to 95.8 % at 950–1,000"

# 001 table 4, English Gigaword: variance of headlines about these targets, in characters.
HEADLINES = (30, 50, 75)
VARIANCES = {
    "LenInit": (0.114, 0.112, 0.091),
    "LC": (0.445, 0.521, 0.871),
    "Transformer": (193.119, 138.566, 620.887),
    "LDPE": (0.015, 0.012, 0.013),
    "LRPE": (0.082, 0.071, 0.187),
}

# Which method and range of lengths a paper's figures belong to.
LENGTH: dict[tuple[str, str], tuple[str, ...]] = {
    ("none", "10-200"): ("003 table 1, BART-L without control: MAE 19.2 ± 17 (CNN/DM), 5.8 ± 5 (XSum)",),
    ("prompted_tuned", SUMMARIES): ("000 §5.1.2, summaries, Mistral: mean error 24.8 tokens",),
    ("ldpe", "10-200"): ("000 abstract: mean error < 3 tokens", COUNTDOWN),
    ("ldpe", SUMMARIES): ("000 §5.1.2, summaries: mean error 2.8 (Mistral), 2.4 (Llama)",),
    ("orpe", "10-200"): ("000 table 1, one prompt, Llama: 12, 89, 149, 197 for 10, 90, 150, 200", COUNTDOWN),
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

SUMMARISED = Table(
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

# 004 tables 5 to 7: ratio, then of each model length, tokens, quality and per cent of corrupted responses.
MODELS = ("LLaMA-3.1-8B", "Qwen-2.5-7B", "GLM-4-9B")
COMPRESSION = {
    "naive": """
        0.25 0 0 0 100 0 0 0 100 0 0 0 100
        0.33 0 0 0 100 0 0 0 100 0 0 0 100
        0.5 779.26 806.91 73.91 43.09 824.68 850.16 69 59.35 802.42 850.29 77.82 6.5
        0.67 904.13 947 77.91 6.5 841.76 869.94 77.8 13.01 896.15 945.18 78.87 1.63
        0.75 959.35 998.88 78.52 4.07 832.16 860.22 77.65 11.38 946.47 994.15 79.64 0.81
        1 1001.86 1055.42 79.85 1.63 958.33 990.54 80.17 4.07 990.09 1039.23 81.07 2.44
        2 691.76 725.72 71.96 13.01 858.95 905.18 71.51 54.47 1120.43 1109.97 71.17 46.34
        3 593.78 618.3 43.9 43.9 876.75 917.61 66.44 77.24 1233.74 1288.02 60.05 65.85
        4 266.61 279.64 10.72 77.24 1660 1721.57 54.1 94.31 2304.38 2453.56 24.3 84.55
        8 27.67 28.76 0 22.76 0 0 0 100 5937.6 6642.4 0 95.12
        16 6.63 7.88 0 2.44 72.27 85.45 0 91.06 1923.5 2076 0 98.37
    """,
    "NTK": """
        0.25 693.05 721.01 76.45 0.81 812.38 837.8 77.14 4.07 866.12 909.25 79.39 0.81
        0.33 770.85 806.58 77.54 0 797.55 823.27 78.95 4.88 869.17 914.07 79.18 0
        0.5 849.8 888.56 78.97 0.81 890.93 922.84 78.91 6.5 909.26 954.31 79.62 0.81
        0.67 882.79 925.79 79.49 0 962.98 997.83 78.67 5.69 944.34 989.4 80.02 0.81
        0.75 924.98 972.79 80.79 0.81 866.75 897.66 78.89 5.69 980.88 1025.65 80.86 0.81
        1 1020.8 1071.84 80.97 1.63 954.75 988.72 80.98 4.07 986.97 1031.88 81.03 2.44
        2 1259.69 1326.76 81.59 0 1042.36 1080.24 80.22 3.25 1051.68 1096.56 81.62 2.44
        3 1381.08 1454.8 82.34 6.5 1092.58 1128.23 80.29 8.13 1106.7 1156.73 81.52 0
        4 1522.97 1604.71 82.38 7.32 1140.97 1178.38 80.98 6.5 1154.25 1203.4 82.16 1.63
        8 1675.86 1765.35 81.67 22.76 1256.05 1303.24 81.13 9.76 1245.97 1294.94 82.88 0.81
        16 1802.11 1902.17 81.05 34.15 1391.56 1436.65 81.77 13.01 1352.04 1404.38 82.52 1.63
        32 1811.1 1917.76 80.77 41.46 1519.52 1573.89 81.27 22.76 1453.24 1505.29 83.98 2.44
        64 1676.64 1812.77 77.61 61.79 1585.94 1651.06 80.71 47.15 1605.64 1666.28 84.03 4.07
        128 1493.38 1583.02 77.86 61.79 1761.41 1832.64 80.11 46.34 1701.72 1765.42 83.98 9.76
        256 1312.87 1382.3 73.13 81.3 1776.43 1867.52 77.41 62.6 1798.69 1865.31 83.05 23.58
        512 1066.64 1118.73 73.45 91.06 1900.31 2006.42 74.84 70.73 1880.8 1953.73 81.86 31.71
    """,
    "dynamic": """
        0.25 816.65 857.19 79.3 0 823.67 854.88 78.88 4.88 930.33 973.37 79.92 3.25
        0.33 858.72 902.11 79.84 1.63 858.68 889.78 78.36 4.07 899.69 941.86 80.5 0.81
        0.5 893.25 940.46 79.15 0 864.46 895.39 79.25 5.69 937.21 980.22 79.4 1.63
        0.67 945.2 994.1 80.16 1.63 883.42 916.3 78.91 5.69 931.02 974.52 81.11 1.63
        0.75 982.13 1033.77 80.23 0.81 902 933.7 79.13 5.69 951.4 993.65 80.63 0.81
        1 1024.05 1076.16 81.07 1.63 966.61 1001.67 80.19 4.07 984.5 1029.95 80.86 2.44
        2 1155.42 1211.42 81.89 1.63 1075.7 1112.8 80.12 8.13 1051.12 1101.73 81.11 1.63
        3 1283.81 1346.92 81.54 0.81 1104.83 1144.6 79.55 13.01 1130.18 1179.9 82 0.81
        4 1380.63 1444.02 81.31 0.81 1125.13 1164.26 81.58 17.07 1154.62 1206.48 81.75 0.81
        8 1656.45 1734.45 81.88 6.5 1282.11 1324.32 82.35 13.82 1234.58 1288.33 82.27 5.69
        16 1938.24 2028.61 81.12 24.39 1520.81 1569.01 80.93 22.76 1347.92 1406.73 82.72 4.88
        32 1919.77 2022.68 76.68 47.15 1479.34 1530.09 81.58 30.08 1428.65 1487.96 82.88 5.69
        64 1817.23 1916.1 76.08 60.98 1454.23 1501.58 79.96 31.71 1441.52 1502.96 83.45 4.88
        128 1961.89 2101.06 75.31 61.79 1490.53 1543.54 81.96 35.77 1478.12 1538.12 83.43 4.07
        256 1737.69 1858.37 74.45 71.54 1471.03 1526.04 79.8 38.21 1462.22 1523.08 82.91 4.07
        512 1576.7 1691.36 75.23 73.17 1460.7 1510.07 80.89 38.21 1507.17 1572.32 83.4 4.07
    """,
}
NUMBERS = {"naive": 5, "NTK": 6, "dynamic": 7}


def compression(kind: str) -> Table:
    """004's table of a kind of position-id compression, of which table 1 has a part."""
    measures = ("length", "tokens", "quality", "% corrupted")
    columns = ["ratio", *(f"{model}: {measure}" for model in MODELS for measure in measures)]
    caption = f"Published: HelloBench under {kind} PIC by its ratio (004 tables 1 and {NUMBERS[kind]})"
    return Table(caption, columns, list(ratios(kind).values()))


def compressed(kind: str, ratio: str) -> str:
    """Mean tokens (per cent corrupted) of 004's models at a ratio; "–" where it has none."""
    found = ratios(kind).get(ratio, [])
    of_each = zip(MODELS, found[2::4], found[4::4], strict=False)
    return ", ".join(f"{model} {float(tokens):,.0f} ({bad})" for model, tokens, bad in of_each) or UNKNOWN


def ratios(kind: str) -> dict[str, list[str]]:
    """Rows of 004's table of a kind of position-id compression by their ratio, in the order of `compression`."""
    rows = [line.split() for line in COMPRESSION.get(kind, "").strip().splitlines()]
    return {row[0]: row for row in rows}


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
    "dynamic contiguous s=4": "LLaMA-3.1-8B 27.73 (ratio not given)",
    "dynamic contiguous s=4, no initial part": "LLaMA-3.1-8B 29.32",
    "dynamic contiguous s=4, no recent part": "LLaMA-3.1-8B 2.14",
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
    "Published: perplexity on ArXiv by tokens read (of 002 table 1)",
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
    "Published: BLEU, ROUGE-Lsum of 100 tokens written on ArXiv, by tokens read (of 002 table 2)",
    ("model", "attention", "4k", "8k", "12k", "16k", "32k"),
    (
        ("MPT-7B", "plain", "0.0, 5.6", "0.2, 3.6", "0.0, 5.9", "0.0, 1.7", "0.4, 1.4"),
        ("MPT-7B", "Λ", "16.1, 23.8", "20.2, 24.9", "12.6, 24.1", "23.9, 29.0", "19.7, 26.6"),
        ("Llama-2", "plain", "26.6, 31.4", "0.0, 0.2", "0.0, 0.0", "0.0, 0.0", "0.0, 0.0"),
        ("Llama-2", "Λ", "26.9, 31.8", "23.6, 30.9", "23.9, 28.2", "24.8, 29.2", "18.4, 20.4"),
    ),
)
