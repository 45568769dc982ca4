"""The papers by the numbers that docstrings, settings and results give them."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """authors, year: as one cites it; a submission without names is called so."""

    authors: str
    year: str
    title: str

    @property
    def cited(self) -> str:
        """Authors, year and title."""
        return f"{self.authors} ({self.year}), {self.title}"


PAPERS = {
    "000": Paper("Butcher, O'Keefe and Titchener", "2024", "Precise Length Control in Large Language Models"),
    "001": Paper("Takase and Okazaki", "2019", "Positional Encoding to Control Output Sequence Length"),
    "002": Paper("Han et al.", "2024", "LM-Infinite"),
    "003": Paper("Botcazou, Amghar, Lamprier and Saubion", "2025", "Progress Ratio Embeddings"),
    "004": Paper("Anonymous", "ACL submission, undated", "Position ID Compression"),
}
