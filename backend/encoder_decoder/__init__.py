"""Models that read a source and write another text (001, 003): signals at the decoder's input, and beam search."""
