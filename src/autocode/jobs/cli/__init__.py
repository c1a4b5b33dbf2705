"""The command line: each command is a thin face of the rooms below."""
