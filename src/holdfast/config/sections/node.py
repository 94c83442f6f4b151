"""``[node]``: this broker itself."""

from __future__ import annotations

from attrs import field, frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Integer, Refused, Text


@frozen
class Folder:
    """The kind of an option that holds the path of a folder."""

    allowed: str = field(default="the path of a folder, relative or absolute", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises Refused."""
        path = Text(allowed=self.allowed, empty=False).read(value)
        if path.startswith("~"):
            raise Refused(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class NodeConfig(Section):
    """Where this broker keeps its data, and its number."""

    data_dir: str = option(
        Folder(),
        "data",
        help="Folder of everything this broker keeps. A relative path begins at the folder of this file.",
        effect="The broker starts with what the other folder holds; nothing is moved. The default database follows.",
        example="/var/lib/holdfast",
    )
    id: int = option(
        Integer(1, 255),
        1,
        help="Number of this broker, recorded with every change to a retained message.",
        effect="Brokers that share a database need different numbers; keep it once it has been used.",
        example=2,
    )
