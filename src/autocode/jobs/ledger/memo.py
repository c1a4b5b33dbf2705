"""What a step left, and the key under which it is remembered; imports no database."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MemoKey", "Produced"]


@dataclass(frozen=True, slots=True)
class MemoKey:
    """Which step, of which revision, on which inputs."""

    kind: str
    step: str
    revision: int
    inputs: str

    @property
    def holder(self) -> str:
        """The name under which the memo holds its object."""
        return f"memo:{self.kind}:{self.step}:{self.revision}:{self.inputs.removeprefix('sha256:')[:32]}"


@dataclass(frozen=True, slots=True)
class Produced:
    """An object that a step left in the store, and the objects that it names.

    Args:
        digest: the object's digest.
        size: its size in bytes, uncompressed.
        media_type: what it is.
        needs: digests of the objects without which it means nothing.
    """

    digest: str
    size: int
    media_type: str
    needs: tuple[str, ...] = ()
