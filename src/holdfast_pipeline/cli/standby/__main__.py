"""``python -m holdfast_pipeline.cli.standby FOLDER PROCESS [rehearse]``, for ``holdfast-pipeline server start``."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast_pipeline.cli.standby.listener import listen

if __name__ == "__main__":
    listen(Path(sys.argv[1]), int(sys.argv[2]), rehearses=sys.argv[3:] == ["rehearse"])
