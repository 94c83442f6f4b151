"""``[node]``: this broker itself."""

from __future__ import annotations

from attrs import field, frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Integer, InvalidValue, Text


@frozen
class FolderPath:
    """The kind of options with the path of a folder."""

    allowed: str = field(default="the path of a folder, relative or absolute", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises InvalidValue."""
        path = Text(allowed=self.allowed, empty=False).read(value)
        if path.startswith("~"):
            raise InvalidValue(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class NodeConfig(Section):
    """The folder of this broker's data, and its number."""

    data_dir: str = option(
        FolderPath(),
        "data",
        help="Folder of all data of this broker. A relative path begins at the folder of this file.",
        effect="The broker starts with the data in the other folder, also with its default database. Nothing is moved.",
        example="/var/lib/holdfast",
    )
    id: int = option(
        Integer(1, 255),
        1,
        help="Number of this broker, recorded with every change to a retained message.",
        effect="Brokers that share a database need different numbers. Never change the number of a used database.",
        example=2,
    )
