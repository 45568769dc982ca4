"""Forward passes for many runs at once."""
