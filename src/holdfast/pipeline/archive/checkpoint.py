"""How far a stream has come, from its checkpoint: what is written for good, whether or not its driver lives."""

from __future__ import annotations

import json

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.folder import Folder

CHECKPOINT = "checkpoint"


def committed_seq(folder: Folder) -> int | None:
    """Return the last entry of the last batch that is over, of the stream whose checkpoint is in a folder.

    None if there was no batch yet. Raises :class:`PipelineError`.
    """
    batches = [int(name) for name in folder.names(f"{CHECKPOINT}/commits") if name.isdigit()]
    if not batches:
        return None
    place = f"{CHECKPOINT}/offsets/{max(batches)}"
    try:
        # A version, what Spark says of the batch, and the offset of each source, of which there is one.
        return int(json.loads(folder.read(place).splitlines()[2])["seq"])
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise PipelineError(f"{folder.below(place)}: is no offset of a history ({error!r})") from error
