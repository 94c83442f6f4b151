"""Texts that try to be more than text: in HTML, JSON, CSV, a shell, a terminal, a log, SQL, a path or a format string.

One set for all tests. ``TEXTS`` may be payloads, User Properties, Reason Strings, filters and search texts. ``NAMES``
are those of them that MQTT allows as Topic Names, Client Identifiers and User Names.
"""

from __future__ import annotations

import unicodedata

#: would stand in the page's global object, if one of the texts ran
RUN = "window.broken = 1"

_MARKUP = (
    f"<script>{RUN}</script>",
    f"</script></style></textarea><script>{RUN}</script>",
    f"<img src=x onerror='{RUN}'>",
    f'"><svg onload="{RUN}">',
    f"' autofocus onfocus='{RUN}' x='",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"javascript:{RUN}",
    "data:text/html,<script>1</script>",
    "<!--",
    "]]><x>",
    "&lt;b&gt; &amp;amp;",
)
_TEMPLATES = (
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    "<%= 7*7 %>",
    "#{7*7}",
    "{0.__class__}{text}{log_failure}{}",
    "%s%n%(asctime)s%",
    "__proto__",
    "constructor",
)
_CELLS = (
    '=HYPERLINK("evil.example")',
    "+1+1",
    "-1+1",
    "@SUM(1+1)",
    "\t=1+1",
    "  =1+1",
    "|calc",
    "\uff1d1\uff0b1",
)
_SHELL = (
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "x && touch owned | cat",
    "--help",
    "-rf",
    "'\"$HOME\\",
    "*",
)
_TERMINAL = (
    "\x1b[31mred\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b31mred",
    "\x9d0;title\x9c",
    "\x07\x08\x08\x7f",
    "\u202egpj.exe",
    "\u2066a\u2069\u200f",
    "in\u200bvisi\ufeffble\u2060",
    "\U000e0041\U000e0042",
)
_LINES = (
    "a\r\nSet-Cookie: evil=1\r\n\r\nbody",
    "a\n12:00:00 the broker is ready",
    'a\n{"event":"operated","operator":"root"}',
    "a\n\nevent: retained\ndata: {}\n\n",
    "a\rb",
    "a\x0bb\x0cc\x1cd\x1ee",
    "a\x85b",
    "a\u2028b\u2029c",
    "# HELP evil_total x\nevil_total 1",
)
_JSON = ('"}],"x":[{"y":"', "\\", '\\"', "\\ud800", "\\u0000", "null", "NaN", "1e999", "[" * 50)
_STORES = ("'; DROP TABLE retained_messages; --", "%_\\", "' OR '1'='1", "\\x00", "$$")
_PATHS = (
    "../../etc/passwd",
    "..\\..\\x",
    "%2e%2e%2f%00",
    "/",
    "//evil.example/x",
    "q?topic=x&limit=1#y",
    "C:\\NUL",
    ".",
)
_LETTERS = (
    "שלום עולם",
    "\U0001d4b3\U0001f468\u200d\U0001f469",
    "e\u0301" + "\u0351\u036b\u0363" * 40,
    "\ufb01\u212a\u0130",
    "z" * 900,
)
_WITHOUT_A_NAME = (
    "",
    " ",
    "a\0b",
    "\ud800",
    "a\udc00b",
    "\ufffe",
    "\uffff",
    "sport/+/#",
    "#",
    "+",
    "$share/x/#",
    "a#b",
)

NAMES_WITH_WILDCARDS = (
    *_MARKUP, *_TEMPLATES, *_CELLS, *_SHELL, *_TERMINAL, *_LINES, *_JSON, *_STORES, *_PATHS, *_LETTERS,
)  # fmt: skip
TEXTS = (*NAMES_WITH_WILDCARDS, *_WITHOUT_A_NAME)
NAMES = tuple(text for text in NAMES_WITH_WILDCARDS if not set(text) & set("+#"))

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINER = "\u200d"


def obeyed(text: str) -> set[str]:
    """Return the characters that a terminal, a browser or a reader of lines would obey, or not show."""
    return {one for one in set(text) if unicodedata.category(one) in _OBEYED and one != _JOINER}


def has_control(text: str) -> bool:
    """Tell whether MQTT brokers may refuse a name for its control characters, as this one does by default."""
    return any(unicodedata.category(one) == "Cc" for one in text)
