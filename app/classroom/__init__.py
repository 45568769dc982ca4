"""A class: whoever opens the lab by its code is a student, and each run becomes a dot on the teacher's screen."""
