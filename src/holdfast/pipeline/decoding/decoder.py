"""What a decoder is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class BadPayload(ValueError):
    """A payload is not what its decoder reads. The text says why; it is kept beside the payload."""


class Decoder(ABC):
    """Makes rows of messages. It is sent to the executors: what it holds can be pickled.

    ``patterns`` are the topics it reads where none are asked for, such as ``site/{site}/dev/{device}/temp``; () where
    they have to be asked for. ``schema`` is what its rows have, as Spark's DDL ("value double, unit string") or as a
    StructType; None where it has to be inferred. A field that the schema does not have makes a payload bad, unless
    ``leaves_out`` is set: then it is left out.
    """

    patterns: tuple[str, ...] = ()
    schema: str | StructType | None = None
    leaves_out: bool = False

    @abstractmethod
    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a message: none, one or several, of the fields that are there.

        Raises :class:`BadPayload` for a payload that cannot be read. Any other exception counts as that too, so that
        no payload ends a job; values that do not fit the schema do as well.
        """

    def infer(self, sample: Sequence[bytes]) -> StructType:
        """Return the schema of what is in a sample of payloads; bad ones may be among them.

        Called where ``schema`` is None, once and where the job was started.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither a schema nor a way to infer one")

    def complete(self, rows: DataFrame, order: str) -> DataFrame:
        """Return the rows once all are decoded, for what takes more than one message to know.

        ``rows`` has the fields of the schema, and ``topic`` and others; ``order`` is the column that tells which
        message was stored first. By default they stay as they are.
        """
        return rows
