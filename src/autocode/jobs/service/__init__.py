"""One light process that starts the parts of the service, restarts what dies, and stops them in order.

It never imports Prefect. It knows its parts by what they do in the open: a process that lives, a file in
``run/`` that says where it answers, a lock that the kernel drops with its holder.
"""
