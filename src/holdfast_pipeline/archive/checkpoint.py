"""The progress of the stream that writes an archive, read from Spark's checkpoint.

The checkpoint says which batches are complete, also after the driver was killed.
"""

from __future__ import annotations

import json

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import CHECKPOINT


def committed_seq(folder: Folder) -> int | None:
    """Return the ``seq`` of the last entry in the last complete batch; None before the first batch.

    ``folder`` is the archive that contains the checkpoint. Raises :class:`PipelineError`.
    """
    batches = [int(name) for name in folder.names(f"{CHECKPOINT}/commits") if name.isdigit()]
    if not batches:
        return None
    file = f"{CHECKPOINT}/offsets/{max(batches)}"
    try:
        # Line 1 is a version, line 2 Spark's description of the batch, then one line per source. There is one source.
        return int(json.loads(folder.read(file).splitlines()[2])["seq"])
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise PipelineError(f"{folder.below(file)}: is not an offset of a history ({error!r})") from error
