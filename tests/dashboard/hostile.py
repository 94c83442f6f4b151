"""The hostile texts that the stand-in of the API has as names: as levels of topics, and everywhere else."""

from __future__ import annotations

from tests.hostile_strings import NAMES

_FIRST = (
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    '"><svg onload="window.broken = 1">',
    "javascript:window.broken = 1",
    "{{constructor.constructor('window.broken = 1')()}}",
    "&lt;b&gt; &amp;amp;",
    "\u202egpj.exe",
)

#: tests that need a certain one take it by its place
HOSTILE = (*_FIRST, *(name for name in NAMES if name not in _FIRST and "/" not in name))
