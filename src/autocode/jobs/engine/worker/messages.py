"""What the worker, the zygote and the children say to each other.

Worker and zygote exchange frames of one fixed, small size, so that neither ever waits for the other to read.
Everything that can be large, the order of a run, goes over that run's own socket, the *lifeline*. Its other
end stays with the worker: when the worker dies, however it dies, the child reads the end of the stream.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final, Self

__all__ = ["CANCEL", "FENCED", "HAND_BACK", "Frame", "Op", "Order", "receive", "send"]

HAND_BACK: Final = b"h"
"""To a child: end the attempt without using budget, tell Prefect, and leave."""

CANCEL: Final = b"c"
"""To a child: somebody cancelled the run in Prefect."""

FENCED: Final = b"f"
"""To a child: the attempt was ended by somebody else; leave without a word to Prefect."""

_FRAME: Final = struct.Struct("!BQii")


class Op(IntEnum):
    """What a frame is about."""

    READY = 1
    SPAWN = 2
    STARTED = 3
    EXITED = 4
    SIGNAL = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """One message between worker and zygote.

    Args:
        op: what it is about.
        number: the run, as the worker numbers its children; 0 where none is meant.
        pid: the child's process id, where it is known.
        value: the exit status of ``EXITED``, the signal that is to be sent.
    """

    op: Op
    number: int = 0
    pid: int = 0
    value: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to do.

    Args:
        flow_run: Prefect's flow run, as JSON values.
        entrypoint: an absolute ``file:function``; ``None``: Prefect finds the flow, with pull steps if any.
        environment: the variables of the run; a ``None`` removes one.
        directory: the working folder; ``None``: the worker's.
        niceness: added to the nice value.
        home: the home's folder.
        worker: the worker's process id.
        worker_began: the mark of that very process; see ``registry.started_at``.
        related: what the run belongs to; see ``related.Named``.
    """

    flow_run: dict[str, Any]
    entrypoint: str | None
    environment: Mapping[str, str | None]
    directory: str | None
    niceness: int
    home: str
    worker: int
    worker_began: str
    related: list[dict[str, Any]] = field(default_factory=list)

    def encode(self) -> bytes:
        """Return it as one line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        return cls(**json.loads(line))


def send(control: socket.socket, frame: Frame, descriptors: Sequence[int] = ()) -> None:
    """Send one frame, and open files with it.

    Raises:
        OSError: the other side is gone, or has not read for so long that there is no room.
    """
    data = _FRAME.pack(frame.op, frame.number, frame.pid, frame.value)
    sent = socket.send_fds(control, [data], list(descriptors)) if descriptors else control.send(data)
    if sent != len(data):
        raise OSError("the other process does not read")


def receive(control: socket.socket) -> tuple[Frame, list[int]] | None:
    """Receive one frame, and the open files that came with it; ``None`` when the other side is gone.

    Raises:
        BlockingIOError: the socket does not block, and nothing has come.
    """
    data, descriptors = b"", []
    while len(data) < _FRAME.size:
        try:
            more, files, _flags, _address = socket.recv_fds(control, _FRAME.size - len(data), 1)
        except ConnectionError:
            more, files = b"", []
        descriptors += files
        if not more:
            for each in descriptors:
                os.close(each)
            return None
        data += more
    op, number, pid, value = _FRAME.unpack(data)
    return Frame(Op(op), number, pid, value), descriptors
