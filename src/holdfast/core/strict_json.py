"""JSON that means one thing only: what other programs read differently, or cannot read, is refused.

How it works. Python's reader takes more than RFC 8259 allows: of equal names in an object the last one wins, NaN is a
number, 1e999 is infinity, and ``"\\ud800"`` is text that no UTF-8 can hold. Its hooks are told of objects and numbers,
but not where they are. So a hook leaves a *fault* in the place of a bad value, and the reader goes on. If there is one,
or if the text may have lone surrogates, a walk finds the path that the refusal names:
``[3].properties.message_expiry_interval``.

Python's fast reader holds the interpreter until it is done: a tenth of a second for megabytes of short values. So
:func:`read_long_json` is for a thread, and uses the slower reader in Python: other threads run in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]  # typeshed leaves them out
from json.scanner import py_make_scanner  # type: ignore[attr-defined]  # the same
from math import isinf
from typing import Any

#: characters of the longest number
LONGEST_NUMBER = 40
#: levels of objects and lists in each other
MOST_LEVELS = 32
#: values in one text, with all parts of objects and lists
MOST_VALUES = 100_000
#: characters of a path that an error shows
_LONGEST_PATH = 100
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAYBE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BadJSON(ValueError):
    """A text is not JSON, or not strictly. ``field`` is the path of the value at fault; ``allowed`` what it may be."""

    def __init__(self, problem: str, field: str = "", allowed: str = "JSON in UTF-8 (RFC 8259)") -> None:
        field = field.encode("ascii", "backslashreplace").decode()[:_LONGEST_PATH]
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.allowed = allowed


def read_json(source: bytes) -> Any:
    """Return the value in a short text. Raises :class:`BadJSON`."""
    if source.count(b",") > MOST_VALUES:
        raise _too_many()
    reading = _Reading()

    def decode(text: str) -> Any:
        return json.loads(
            text,
            object_pairs_hook=reading.object,
            parse_float=reading.float,
            parse_int=reading.int,
            parse_constant=reading.constant,
        )

    return _read(source, reading, decode)


def read_long_json(source: bytes) -> Any:
    """Return the value in a text of any length, slowly: for a thread. Raises :class:`BadJSON`."""
    reading = _Reading()
    return _read(source, reading, _PatientDecoder(reading).decode)


def _read(source: bytes, reading: _Reading, decode: Callable[[str], Any]) -> Any:
    try:
        value = decode(source.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadJSON(f"this is not JSON: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadJSON(f"this is not JSON: {str(error)[:100]}") from None
    except RecursionError:
        raise _too_deep() from None
    surrogates = _MAYBE_SURROGATE.search(source) is not None
    if source.count(b"[") + source.count(b"{") > MOST_LEVELS:
        _check_depth(value)
    if reading.has_faults or surrogates:
        _check(value, surrogates)
    return value


class _Fault:
    """Stands for a value that is refused. The ``name`` is that of its part at fault, if it is an object."""

    def __init__(self, problem: str, allowed: str, name: str = "") -> None:
        self.problem = problem
        self.allowed = allowed
        self.name = name


class _Reading:
    """The hooks of one text."""

    def __init__(self) -> None:
        self.has_faults = False

    def object(self, pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        names = set()
        for name, _ in pairs:
            if name in names:
                return self._fault("occurs twice in its object", "one value for each name", name)
            names.add(name)
        return found

    def int(self, text: str) -> Any:
        return int(text) if len(text) <= LONGEST_NUMBER else self._too_long()

    def float(self, text: str) -> Any:
        if len(text) > LONGEST_NUMBER:
            return self._too_long()
        number = float(text)
        return number if not isinf(number) else self._fault("is too large", "a number of 64 bits (IEEE 754)")

    def constant(self, text: str) -> Any:
        return self._fault(f"{text} is not JSON", "a number")

    def _too_long(self) -> Any:
        return self._fault("is a number with too many digits", f"a number of at most {LONGEST_NUMBER} characters")

    def _fault(self, problem: str, allowed: str, name: str = "") -> _Fault:
        self.has_faults = True
        return _Fault(problem, allowed, name)


class _PatientDecoder(json.JSONDecoder):
    """Python's reader in Python. It counts values while it reads, so that few bytes do not become much memory."""

    def __init__(self, reading: _Reading) -> None:
        super().__init__(
            object_pairs_hook=reading.object,
            parse_float=reading.float,
            parse_int=reading.int,
            parse_constant=reading.constant,
        )
        self.parse_object = self._object
        self.parse_array = self._array
        self.scan_once = py_make_scanner(self)
        self._left = MOST_VALUES
        self._levels = 0

    def _object(self, begin: Any, strict: Any, scan: Any, hook: Any, pairs_hook: Any, memo: Any) -> Any:
        with _Level(self):
            return JSONObject(begin, strict, self._counted(scan), hook, pairs_hook, memo)

    def _array(self, begin: Any, scan: Any) -> Any:
        with _Level(self):
            return JSONArray(begin, self._counted(scan))

    def enter(self) -> None:
        """Begin a level."""
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise _too_deep()

    def leave(self) -> None:
        """End a level."""
        self._levels -= 1

    def _counted(self, scan: Any) -> Any:
        def counted(text: str, position: int) -> Any:
            self._left -= 1
            if self._left < 0:
                raise _too_many()
            return scan(text, position)

        return counted


class _Level:
    """One level of a text."""

    def __init__(self, decoder: _PatientDecoder) -> None:
        self._decoder = decoder

    def __enter__(self) -> None:
        self._decoder.enter()

    def __exit__(self, *_error: object) -> None:
        self._decoder.leave()


def _check_depth(value: Any) -> None:
    """Raise :class:`BadJSON` if there are too many levels. It looks at one level after the other, which is fast."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        insides = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not insides:
            return
        level = [each for inside in insides for each in inside]
    raise _too_deep()


def _check(value: Any, surrogates: bool) -> None:
    """Raise :class:`BadJSON` for the first fault or lone surrogate."""
    parts: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    while parts:
        path, found = next(parts[-1], (None, None))
        if path is None:
            parts.pop()
            continue
        if isinstance(found, _Fault):
            raise BadJSON(found.problem, f"{path}.{found.name}".strip(".") if found.name else path, found.allowed)
        if surrogates and isinstance(found, str) and _SURROGATE.search(found):
            raise BadJSON("is not Unicode text: it has a lone surrogate", path, "Unicode text")
        if isinstance(found, dict):
            if surrogates and any(_SURROGATE.search(name) for name in found):
                raise BadJSON("a name in it is not Unicode text: it has a lone surrogate", path, "Unicode text")
            parts.append(_parts_of_object(path, found))
        elif isinstance(found, list):
            parts.append(_parts_of_list(path, found))


def _parts_of_object(path: str, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{path}.{name}" if path else name, each) for name, each in found.items())


def _parts_of_list(path: str, found: list[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{path}[{index}]", each) for index, each in enumerate(found))


def _too_deep() -> BadJSON:
    return BadJSON("this is nested too deep", allowed=f"at most {MOST_LEVELS} levels")


def _too_many() -> BadJSON:
    return BadJSON("this has too many values", allowed=f"at most {MOST_VALUES} values")
