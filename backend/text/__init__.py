"""Text: prompts, tokens, units and sentences."""
