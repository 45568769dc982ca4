"""What people get to read instead of what they asked for."""


class Refused(ValueError):
    """What was asked for cannot be had; the message is a sentence that says what to do.

    Any other ValueError, but for those of pydantic's settings, is a mistake of the program.
    """
