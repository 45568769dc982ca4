"""What of a page has stayed English in another language, and what may stay."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

import pytest
from playwright.sync_api import Page

from app import languages
from backend.methods import methods

OTHERS = [language for language in languages.LANGUAGES if language != "en"]
# The language whose letters and direction differ from English stands for all, but where a change is tested in full.
READ = ["ar"]
LANGUAGES = [
    pytest.param(READ, id="ar"),
    pytest.param([each for each in OTHERS if each not in READ], id="others", marks=pytest.mark.ui),
]
DICTIONARIES = {each: json.loads((languages.FOLDER / f"{each}.json").read_text("utf-8")) for each in OTHERS}
PLACE = re.compile(r"\{n?\}")
# Words of the field, of their units and signs, that another language may have from English.
SHARED = {
    "Prompt", "prompt", "Text", "Policy", "Cache", "Notebook", "Position", "Logits", "logit", "literal", "nats",
    "{n} nats", "token", "tokens", "{n} token", "{n} tokens", "{} {n} tokens", "Token {n}: {}", "{} ({n} s)", "{} · {}",
    "{} × {n}", "☐ {}", "{n} KiB", "{n} MiB", "{n} GiB", "{n} ms", ".", ";", ":",
}  # fmt: skip
# Names, which are the same in every language.
NAMES = {
    "Length Lab", "PNG", "SVG", "HTML", "JSON", "CSV", "Python", "LDPE", "ORPE", "LRPE", "PRE", "MNT++ LDPE",
    "MNT++ ORPE", "PIC-SFT NTK", "NTK", "NTK PIC", "StreamingLLM", "ReRoPE", "Leaky ReRoPE", "Self-Extend", "YaRN",
    "bf16", "fp32", "int8", "int4", "MiB", "Top k", "Top p", "p(end)", "transformers", "Han et al. (2024), LM-Infinite",
    "Butcher, O'Keefe and Titchener (2024), Precise Length Control in Large Language Models",
    "Anonymous (ACL submission, undated), Position ID Compression", "LOG.md", "API", "transformers bf16",
    "transformers fp32", "llama.cpp Q4_1", "float32", "bfloat16", "ldpe", "orpe", "lrpe", "pre", "mnt ldpe", "mnt orpe",
    "LLaMA", "Llama-2", "GPT-J-6B", "MPT-7B", "Transformer", "LenInit", "LC", "LDPE+PE", "LRPE+PE", "RPE", "NaN",
    "Llama-LDPE", "Mistral-LDPE", "Mistral-Prompted", "BERT score", "BERTScore", "BLEU", "R-Lsum", "CNN/DM", "XSum",
    "SQuAD", "MMLU", "GSM8K", "SmolLM2-135M-Instruct",
    # As whoever measured it called a reader.
    "a large language model, not told which is which",
}  # fmt: skip
# Names with numbers: of policies, of models in papers' tables, of texts, and of what made a result.
NAMED = re.compile(
    r"NTK s=[\d.]+|(?:NTK PIC|Leaky ReRoPE|Self-Extend|YaRN), s = \d+|llama-3\.1-8b[:：]|ENG\d+_\w+|pydoc|R-[\dL]|"
    r"\w+\.json|"
    r"(?:(?:LLaMA-3\.1-8B|Qwen-2\.5-7B|GLM-4-9B) [\d.,]+(?: \([\d.]+\))?(?:, )?)+|"
    r"\([0-9a-f]{10}, \d{4}-\d\d-\d\d, (?:AMD EPYC|Intel\(R\) Xeon\(R\) Processor|NVIDIA H200)\)"
)
# What stays as it is: what people and models write, numbers, names of files, and the log below the evidence.
ENGLISH = """[translate=no], textarea, code, script, style, .katex, .ll-text, .ll-saying, .ll-written :is(dd, li),
  .ll-tip b, a[href*="lab/results/"], .js-plotly-plot :is(.xtick, .ytick)"""
# What is made anew: drawings, and tables of charts.
ANEW = "svg text, .ll-table :is(th, td)"
# Remembers every text that is seen, where it stands; of what is made anew, the words alone.
LOOK = f"""() => {{
  const seen = (element) => !element.closest(`{ENGLISH}`) && element.checkVisibility();
  const worded = (words) => /\\p{{L}}{{2}}/u.test(words);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  window.places = []; window.drawings = () => [...document.querySelectorAll("{ANEW}")].filter(seen)
    .map((text) => text.textContent).filter(worded);
  for (let node; (node = texts.nextNode());) {{
    const place = node;
    if (worded(node.data) && seen(node.parentElement) && !node.parentElement.closest("svg, .ll-table"))
      places.push([node.data, () => place.isConnected ? place.data : ""]);
  }}
  for (const name of ["placeholder", "title", "aria-label"])
    for (const element of document.querySelectorAll(`[${{name}}]`))
      if (worded(element.getAttribute(name)) && seen(element.parentElement))
        places.push([element.getAttribute(name), () => element.isConnected ? element.getAttribute(name) : ""]);
  window.drawn = new Set(drawings());
}}"""
# What is as it was, or has no letter of the language's own script.
SAME = """(script) => {
  const own = script && new RegExp(`\\\\p{Script=${script}}`, "u"), worded = (words) => /\\p{L}{2}/u.test(words);
  const foreign = (words) => own && worded(words) && !own.test(words);
  const stayed = ([before, now]) => now === before || foreign(now);
  const shown = places.map(([before, now]) => [before, now()]).filter(stayed);
  return [...new Set([
    ...shown.map(([, now]) => now.trim().replace(/\\s+/g, " ")),
    ...drawings().filter((words) => drawn.has(words) || foreign(words))])];
}"""
SCRIPTS = {"zh": "Han", "ar": "Arabic"}
LETTERS = {"zh": re.compile("[\u4e00-\u9fff]"), "ar": re.compile("[\u0620-\u064a]")}
# What lets words run from right to left in a drawing.
ISOLATES = "\u2066\u2067\u2069"
CHANGED = "() => places.map(([before, now]) => [before, now()]).filter(([before, now]) => now && now !== before)"


def chooses(page: Page, language: str) -> None:
    page.select_option(".ll-language", language)
    speaks(page, language)


def speaks(page: Page, language: str) -> None:
    """Waits until the page is in a language."""
    page.wait_for_function("(language) => document.documentElement.lang === language", arg=language)


def may_stay(words: str, language: str) -> bool:
    """Whether a text is a name, or the language says it in the same words, or in no letters of its own."""
    own = LETTERS.get(language)
    said = [
        other
        for english, other in DICTIONARIES[language].items()
        if (english == other or (own and not own.search(other))) and re.search(r"\w", PLACE.sub("", other))
    ]
    forms = ["(.+)".join(map(re.escape, PLACE.split(other))) for other in said]
    bare = words.strip(ISOLATES)
    if bare in NAMES or bare in methods or NAMED.fullmatch(bare):
        return True
    return any(re.fullmatch(form, words) for form in forms)


def left(page: Page, language: str) -> list[str]:
    """The texts of the page that have not changed; drawings have a while for it."""
    until = time.monotonic() + 60
    while True:
        found = [words for words in page.evaluate(SAME, SCRIPTS.get(language)) if not may_stay(words, language)]
        if not found or time.monotonic() > until:
            return found
        page.wait_for_timeout(500)


def lacking(page: Page, place: str, spoken: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """What stays English of what shows there, by place and language; all of it is English again afterwards."""
    page.evaluate(LOOK)
    missing = {}
    for language in spoken:
        chooses(page, language)
        missing[place, language] = left(page, language)
    chooses(page, "en")
    assert page.evaluate(CHANGED) == []
    return missing


def alone(page: Page) -> set[str]:
    """What a page that is in one language for good shows."""
    page.evaluate(LOOK)
    return {words.strip() for words in page.evaluate("() => [...places.map(([words]) => words), ...drawings()]")}


def stays(english: set[str], other: set[str], language: str) -> set[str]:
    """What two pages that differ in their language alone have in common, and should not."""
    own = LETTERS.get(language)
    foreign = {words for words in other if own and not own.search(words)}
    return {words for words in (english & other) | foreign if not may_stay(words, language)}
