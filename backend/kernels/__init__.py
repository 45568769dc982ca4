"""Machine code for one decoded token on the CPU, compiled on first use and kept (numba).

Elements of bfloat16 arrays travel as uint16; all arithmetic is float32. Functions with `member, members` as their
first parameters are run by every thread of a team at once, and each does its own share.
"""
