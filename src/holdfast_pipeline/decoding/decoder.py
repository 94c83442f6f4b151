"""The base class of decoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


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
