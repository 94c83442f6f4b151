"""The report of a move: an entry for each setting of the old broker, in three sections.

An entry names the place of the setting, the setting, and what it became. No entry shows a secret: a reader that finds
one writes :data:`HIDDEN` in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from attrs import define, field, frozen

from holdfast.core.terminal import printable

#: stands for a secret
HIDDEN = "***"


class Outcome(Enum):
    """What became of a setting. The values are the headings of the sections."""

    TAKEN = "Taken over"
    SAME = "The same by default"
    MISSING = "Has no equal"


@frozen
class Entry:
    """One setting. ``origin`` is its place, as in ``mosquitto.conf:12``, and empty for a setting that is not there.

    ``remark`` tells the new option, or what to do.
    """

    outcome: Outcome
    origin: str
    setting: str
    remark: str

    @property
    def place(self) -> tuple[str, int]:
        """The file and the line; 0 without a line."""
        file, _, line = self.origin.rpartition(":")
        return (file, int(line)) if line.isdigit() else (self.origin, 0)

    def __str__(self) -> str:
        place = f"{self.origin}: " if self.origin else ""
        return printable(f"{place}{self.setting}: {self.remark}")


@define
class Report:
    """The entries, in the order of their writing. ``title`` names the old broker and its files."""

    title: str
    entries: list[Entry] = field(factory=list)

    def taken(self, origin: str, setting: str, remark: str) -> None:
        """Note a setting that Holdfast has an option for."""
        self.entries.append(Entry(Outcome.TAKEN, origin, setting, remark))

    def same(self, origin: str, setting: str, remark: str) -> None:
        """Note a setting for which nothing needs to be written."""
        self.entries.append(Entry(Outcome.SAME, origin, setting, remark))

    def missing(self, origin: str, setting: str, remark: str) -> None:
        """Note a setting without a counterpart; the remark tells what to do."""
        self.entries.append(Entry(Outcome.MISSING, origin, setting, remark))

    def of(self, outcome: Outcome) -> list[Entry]:
        """Return the entries of one section, in the order of the files and their lines."""
        files = {file: number for number, file in enumerate(dict.fromkeys(each.place[0] for each in self.entries))}
        entries = [entry for entry in self.entries if entry.outcome is outcome]
        return sorted(entries, key=lambda entry: (not entry.origin, files[entry.place[0]], entry.place[1]))

    def counts(self) -> dict[str, int]:
        """Return the number of entries by outcome: ``taken``, ``same``, ``missing``."""
        return {outcome.name.lower(): len(self.of(outcome)) for outcome in Outcome}

    def lines(self) -> Iterator[str]:
        """Yield the report for a terminal."""
        for outcome in Outcome:
            entries = self.of(outcome)
            yield f"{outcome.value}: {len(entries)}"
            yield from (f"  {entry}" for entry in entries)

    def markdown(self) -> str:
        """Return the report as a page."""
        parts = [f"# {printable(self.title)}"]
        for outcome in Outcome:
            parts.append(f"## {outcome.value}")
            parts.append(_listed(self.of(outcome)) or "Nothing.")
        return "\n\n".join(parts) + "\n"


def _listed(entries: Iterable[Entry]) -> str:
    return "\n".join(
        f"- {f'{entry.origin}: ' if entry.origin else ''}{_code(entry.setting)}: {printable(entry.remark)}"
        for entry in entries
    )


def _code(text: str) -> str:
    """Return a text as code in Markdown. Its own backticks end no code."""
    shown = printable(text)
    marks = "`"
    while marks in shown:
        marks += "`"
    space = " " if "`" in shown else ""
    return f"{marks}{space}{shown}{space}{marks}"
