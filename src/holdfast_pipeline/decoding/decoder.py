"""The base class of decoders, their reasons against payloads, and the frame of schema registries before payloads."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: The bytes of a frame: a byte 0, then the number of the schema in four bytes. Confluent's serializers write it, and
#: those of compatible registries.
_FRAME = 5
#: The numbers that a schema can have.
NUMBERS = range(2**31)
#: The parts in which two reasons of one kind may differ: quoted values and numbers. For Python and Java.
VARIED = r"""'.*'|".*"|\d+"""


class BadPayload(ValueError):
    """The decoder cannot read a payload. The text says why; it is stored beside the payload."""


class Decoder(ABC):
    """Turns messages into rows. Spark sends the decoder to the executors, so all its fields can be pickled.

    ``patterns`` are the default topics, such as ``site/{site}/dev/{device}/temp``; () if the user must name them.
    ``schema`` is the schema of the rows, as Spark's DDL ("value double, unit string") or as a StructType; None if it
    must be inferred. A field outside the schema makes a payload bad. With ``leaves_out`` it is left out instead.
    """

    patterns: tuple[str, ...] = ()
    schema: str | StructType | None = None
    leaves_out: bool = False

    @abstractmethod
    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a message: none, one or several. A row has the present fields.

        Raises :class:`BadPayload` for a payload that cannot be read. Any other exception, and a value that does not fit
        the schema, make the payload bad, too: no payload ends a job.
        """

    def infer(self, sample: Sequence[bytes]) -> StructType:
        """Return the schema of a sample of payloads, some of which may be bad.

        It is called once, if ``schema`` is None, in the process that started the job.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither a schema nor a way to infer one")

    def complete(self, rows: DataFrame, order: str) -> DataFrame:
        """Return the final rows of all messages. A decoder may add values here that depend on several messages.

        ``rows`` has the fields of the schema, ``topic`` and other columns. ``order`` is the column that orders the
        messages by time. By default the rows do not change.
        """
        return rows


def unframed(payload: bytes) -> tuple[int, memoryview]:
    """Return the number of the schema, and what follows the frame. Raises :class:`BadPayload`."""
    if len(payload) < _FRAME or payload[0] != 0:
        raise BadPayload("it does not begin with the frame of a schema registry: 0, and the number of the schema")
    return int.from_bytes(payload[1:_FRAME], "big"), memoryview(payload)[_FRAME:]


def alike(reason: str) -> str:
    """Return what a reason has in common with others of its kind, which differ only in values."""
    return re.sub(VARIED, "", reason)
