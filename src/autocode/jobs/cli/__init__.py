"""The command line: each command is a thin face of the rooms below.

``main`` imports nothing but the standard library, ``commands`` nothing but the parser: so ``--help`` and
Ctrl-C answer at once, and a command imports what it needs when it runs.
"""
