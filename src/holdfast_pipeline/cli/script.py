"""``holdfast-pipeline`` for spark-submit: ``spark-submit "$(holdfast-pipeline --script)" asof ...``."""

from __future__ import annotations

from holdfast_pipeline.cli import main

if __name__ == "__main__":
    main()
