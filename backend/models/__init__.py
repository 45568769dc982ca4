"""Models: which may be asked for, how they are loaded, what each can do, their adapters."""
