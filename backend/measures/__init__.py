"""Measures of texts and of lengths, without a model's run."""
