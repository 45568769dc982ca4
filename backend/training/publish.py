"""`python -m backend publish --to NAMESPACE`: each adapter in assets/adapters as a folder for the hub.

A folder holds the LoRA, what it was trained with, a model card, and for those with a signal `length_signal.py`, with
which transformers and peft need nothing of this lab. Without `--really` nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.methods import methods
from backend.models import adapters
from backend.models.adapters import CONFIG, SIGNAL, WEIGHTS, Adapter
from backend.models.embedded import cache
from backend.record.results import RESULTS
from backend.refused import Refused
from backend.training import length_signal
from backend.training.card import renewed

KEPT = (WEIGHTS, CONFIG, SIGNAL, "training.json")
HOOK = "length_signal.py"
USE = """
## Use

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
{imports}
tokenizer = AutoTokenizer.from_pretrained("{base}")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "{name}")
chat = [{{"role": "user", "content": "Why do people travel?"}}]
asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
{attaching}print(tokenizer.decode(model.generate(**asked, max_new_tokens=200, do_sample=False)[0]))
```
"""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `python -m backend`."""
    command = commands.add_parser("publish", help="make hub folders of the adapters", allow_abbrev=False)
    command.set_defaults(run=_publish)
    command.add_argument("--to", required=True, metavar="NAMESPACE", help="the hub's account or organisation")
    command.add_argument("--out", type=Path, default=cache() / "publish", help="where the folders are written")
    command.add_argument("--really", action="store_true", help="upload them too; HF_TOKEN must allow that")


def _publish(options: argparse.Namespace) -> int:
    if not options.to.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise Refused(f"--to {options.to}: give the name of an account or organisation on the hub")
    for folder in folders(options.to, options.out):
        files = ", ".join(sorted(file.name for file in folder.iterdir()))
        print(f"{options.to}/{folder.name}: {files}")
        if options.really:
            _upload(f"{options.to}/{folder.name}", folder)
    if not options.really:
        print(f"Nothing was uploaded: look at {options.out}, then add --really.")
    return 0


def folders(namespace: str, out: Path) -> Iterator[Path]:
    """Writes a folder for each adapter in the place of an older one."""
    for method in methods:
        if (adapters.ROOT / method.name / SIGNAL).is_file():
            yield _folder(Adapter.load(adapters.ROOT / method.name), namespace, out)


def _folder(adapter: Adapter, namespace: str, out: Path) -> Path:
    folder = out / f"{adapter.base.split('/')[-1]}-{adapter.method}".replace("_", "-")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name in KEPT:
        shutil.copy(adapter.path / name, folder / name)
    if adapter.settings is not None:
        (folder / HOOK).write_text(inspect.getsource(length_signal), "utf-8")
    (folder / "README.md").write_text(card(adapter, f"{namespace}/{folder.name}"), "utf-8")
    return folder


def card(adapter: Adapter, name: str, results: Path = RESULTS) -> str:
    """The adapter's card with its measurements in the hub's form and first in the text, and how it is used."""
    text = renewed((adapter.path / "README.md").read_text("utf-8"), adapter, results)
    _, matter, body = text.split("---\n", 2)
    title, rest = body.split("\n", 1)
    found = measured(adapter.method, results)
    lines = [f"- {words}: {said}" for words, _, said in found]
    source = f"By the validation prompts, none of them trained on (`{_file(adapter.method)}`):\n\n"
    figures = f"\n{source}" + "\n".join(lines) + "\n" if lines else "\nNo joint rate was recorded for it yet.\n"
    return f"---\n{matter}{_index(name, found)}---\n{title}\n{figures}{rest.rstrip()}\n{_use(adapter, name)}"


def measured(method: str, results: Path = RESULTS) -> list[tuple[str, float, str]]:
    """What was recorded of the answers' ends, the joint rate first: what it is, its number, the same in words."""
    file = results / "joint_rate" / "validation" / f"{method}.json"
    if not file.is_file():
        return []
    summary = json.loads(file.read_text("utf-8"))["summary"]["validation"]
    shares = {"joint": "Joint rate", "length": "Of the length asked for", "all_three": "Of it, and ended at a real end"}
    said = [_share(words, summary[key], summary["counted"]) for key, words in shares.items() if summary.get(key)]
    error = summary.get("mae")
    return said if error is None else [*said, ("Mean absolute length error", error, f"{error:.2f} tokens")]


def _share(words: str, found: float | list[float], counted: int) -> tuple[str, float, str]:
    """found: a share, or one with the ends of its interval of 95 %."""
    rate, *interval = found if isinstance(found, list) else [found]
    around = f"{interval[0]:.0%} to {interval[1]:.0%}; " if interval else ""
    return words, rate, f"{rate:.0%} ({around}{counted} prompts)"


def _file(method: str) -> str:
    return f"assets/results/joint_rate/validation/{method}.json"


def _index(name: str, found: list[tuple[str, float, str]]) -> str:
    """model-index of the front matter; JSON is YAML."""
    if not found:
        return ""
    metrics = [{"type": words.lower().replace(" ", "_"), "name": words, "value": value} for words, value, _ in found]
    about = {"task": {"type": "text-generation"}, "dataset": {"name": "Length Lab validation", "type": "own"}}
    return f"model-index: {json.dumps([{'name': name.split('/')[-1], 'results': [about | {'metrics': metrics}]}])}\n"


def _use(adapter: Adapter, name: str) -> str:
    imports = attaching = ""
    if adapter.settings is not None:
        imports = "from length_signal import attach  # the file beside this card\n"
        attaching = 'hook = attach(model, prompt=asked["input_ids"].shape[1], target=60)\n'
    if adapter.longform is not None and adapter.longform.kind != "none":
        attaching = "# It was trained under compressed positions, which transformers alone does not have.\n"
    return USE.format(base=adapter.base, name=name, imports=imports, attaching=attaching)


def _upload(name: str, folder: Path) -> None:
    from huggingface_hub import HfApi

    hub = HfApi()
    hub.create_repo(name, exist_ok=True)
    hub.upload_folder(repo_id=name, folder_path=folder)
