"""The PostgreSQL of a home: our own child, on a socket that nobody else can reach, alive while it is needed.

:func:`client.running <autocode.jobs.postgres.client.running>` is the way in.
"""
