"""Texts that clients may choose, and that try to be more than text on a page, in a table or on a terminal."""

from __future__ import annotations

HOSTILE = (
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    '"><svg onload="window.broken = 1">',
    "javascript:window.broken=1",
    "{{constructor.constructor('window.broken = 1')()}}",
    "&lt;b&gt; &amp;amp;",
    "\u202egpj.exe",
    "in\u200bvisible\u2066",
    "\x1b[31mred\x07",
    '=HYPERLINK("http://evil.example")',
    "@SUM(1+1)",
    "__proto__",
    "constructor",
    "%2e%2e%00%",
    "q?topic=x&limit=1",
    "שלום עולם",
    "z" * 300,
)
