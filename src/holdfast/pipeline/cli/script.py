"""``holdfast-pipeline`` for spark-submit: ``spark-submit "$(holdfast-pipeline --script)" export ...``."""

from __future__ import annotations

from holdfast.pipeline.cli import main

if __name__ == "__main__":
    main()
