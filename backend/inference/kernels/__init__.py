"""Machine code for what the model computes on the CPU, compiled on first use and kept (numba).

Elements of bfloat16 arrays travel as uint16, or two by two as float32; sums are float32. Functions that `in_team` runs
are run by every thread of a team at once, and each does its own share.
"""
