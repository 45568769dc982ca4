"""The sentences with which the lab refuses something on the page, as its source has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from app.view import sentence
from backend.refused import Refused

ROOT = Path(__file__).parents[1]
ERRORS = {"Refused", "AdapterError", "ModelError", "TraceError"}
# Of these modules the page shows the sentences of plain errors too, of pydantic's settings.
VALIDATED = {"backend/settings.py"}
TOASTS = {"refusal", "warn", "inform", "failed", "problems.append"}
# What these return, or keep by a name, are reasons that the page shows.
REASONS = (
    "backend/failure.py", "backend/families/mpt.py", "backend/models/adapters.py", "backend/models/capabilities.py",
)  # fmt: skip
# What speaks in a terminal or to programs alone.
UNSEEN = (
    "app/__main__.py", "app/api.py", "app/chat.py", "app/completions.py", "app/stage.py", "app/toasts.py",
    "backend/__main__.py", "backend/encoder_decoder/pairs.py", "backend/evaluation/", "backend/inference/embedding.py",
    "backend/inference/kv_cache.py", "backend/inference/signal.py", "backend/inference/varlen_plan.py",
    "backend/methods/shifts.py", "backend/methods/signal.py", "backend/methods/sinusoid.py",
    "backend/record/conversation.py", "backend/record/jsonlines.py", "backend/record/results.py", "backend/splits.py",
    "backend/sweep.py", "backend/terminal.py", "backend/training/",
)  # fmt: skip
SEEN = ("backend/evaluation/perplexity.py",)


def refusals() -> dict[str, str]:
    """Each sentence as the page shows it, with {} for what changes, and where it is said."""
    files = sorted(path for folder in ("app", "backend") for path in (ROOT / folder).rglob("*.py"))
    names = ((file.relative_to(ROOT).as_posix(), file) for file in files)
    return {
        words: f"{name}:{line}"
        for name, file in names
        if name in SEEN or not name.startswith(UNSEEN)
        for words, line in _said(ast.parse(file.read_text("utf-8")), name)
    }


def _said(tree: ast.Module, name: str) -> Iterator[tuple[str, int]]:
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    errors = ERRORS | ({"ValueError"} if name in VALIDATED else set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).removeprefix("toasts.")
            parts = node.args if called in errors | TOASTS else []
        else:
            called, parts = "", _kept(node) if name in REASONS else []
        for words in (words for part in parts for words in _words(part, constants) if " " in words):
            yield sentence(Refused(words)) if called in errors else words, node.lineno


def _kept(node: ast.AST) -> list[ast.expr]:
    """What a statement returns, or keeps by a name."""
    if isinstance(node, ast.Dict):
        return node.values
    return [node.value] if isinstance(node, ast.Return | ast.Assign) and node.value else []


def _words(node: ast.expr, constants: dict[str, str]) -> list[str]:
    """What an expression may say; "{}" where it does not tell."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.Name):
        return [constants.get(node.id, "{}")]
    if isinstance(node, ast.IfExp):
        return [*_words(node.body, constants), *_words(node.orelse, constants)]
    if isinstance(node, ast.FormattedValue):
        return [constants.get(node.value.id, "{}") if isinstance(node.value, ast.Name) else "{}"]
    if isinstance(node, ast.JoinedStr):
        return ["".join(_words(part, constants)[0] for part in node.values)]
    return ["{}"]
