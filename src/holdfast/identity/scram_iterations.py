"""The number of iterations of SCRAM-SHA-256: the work for each login, and for each guess at a password."""

from __future__ import annotations

#: the numbers of iterations that the mechanism allows
ITERATIONS = range(4096, 10_000_000 + 1)
DEFAULT_ITERATIONS = 15_000
