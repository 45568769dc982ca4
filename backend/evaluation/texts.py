"""Long texts to be read: those of a folder, or the documentation that comes with Python."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path

from pydantic import Field
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.experiment import ModelFlags
from backend.evaluation.perplexity import tokenise
from backend.refused import Refused
from backend.settings import RunSettings

# The Λ window of what is shown, and the policy that reads anew what such a window holds.
WINDOW = 2048
PLAIN, LAMBDA, TRUNCATION = "plain", "Λ", "truncation"


def documents(folder: Path | None, most: int) -> dict[str, str]:
    """Texts by name: the *.txt of a folder, at most `most`, or Python's documentation. ValueError for none."""
    if folder is None:
        return {"pydoc": "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))}
    files = sorted(folder.glob("*.txt"))[:most]
    if not files:
        raise Refused(f"there is no .txt file in {folder}: give a folder with texts")
    return {file.stem: file.read_text("utf-8") for file in files}


class TextFlags(ModelFlags):
    """Those of an experiment on long texts."""

    data: Path | None = Field(None, description="folder with *.txt, in the place of Python's documentation")
    documents: int = Field(6, ge=1, description="texts of the folder to read")

    def texts(self) -> dict[str, str]:
        """The texts by name."""
        return documents(self.data, self.documents)

    def ids(self, lab: Lab, most: int) -> dict[str, Tensor]:
        """The first `most` token ids [n] of each text."""
        settings = RunSettings(prompt="-", model=self.model)
        return {name: tokenise(lab, text, settings, most) for name, text in self.texts().items()}
