"""Session capsules: everything nondeterministic at a session's boundaries in one file, and the engine run on it again.

`tape` keeps, `file` is the format, `player` answers in place of what was outside, `replay` runs the engine and compares.
"""
