"""One call of the API: its path, its arguments, its scope and its handler."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen

from holdfast.admin.callers.caller import Scope
from holdfast.admin.calls.call import JSON, Handler
from holdfast.admin.calls.problems import Refusals
from holdfast.admin.routing.schemas import ANYTHING, Schema


class Where(Enum):
    """The place of an argument."""

    PATH = "path"
    QUERY = "query"


@frozen(kw_only=True)
class Parameter:
    """An argument. A ``rest`` is the whole end of the path, with the slashes in it."""

    name: str
    where: Where
    schema: Schema
    description: str
    required: bool = False
    rest: bool = False


def query(name: str, schema: Schema, description: str, *, required: bool = False) -> Parameter:
    """Return an argument of the query string."""
    return Parameter(name=name, where=Where.QUERY, schema=schema, description=description, required=required)


def in_path(name: str, schema: Schema, description: str, *, rest: bool = False) -> Parameter:
    """Return a value in the path."""
    return Parameter(
        name=name, where=Where.PATH, schema=schema, description=description, required=True, rest=rest
    )  # fmt: skip


#: bytes of the longest body, unless a call says otherwise
USUAL_BODY = 1 << 16
#: bytes of a body with the largest message, unless the configuration says otherwise
LONGEST = 1 << 24


@frozen
class Content:
    """The content of a body or an answer. An answer may have one of the types ``also`` instead.

    A body has at most ``most_bytes``; None: as many as the largest message needs.
    """

    schema: Schema = ANYTHING
    description: str = "done"
    content_type: str = JSON
    required: bool = True
    also: tuple[str, ...] = ()
    most_bytes: int | None = USUAL_BODY


#: an answer of status 204
NOTHING: Content | None = None


@frozen(kw_only=True)
class Route:
    """A call.

    The ``path`` has names of values in braces: ``/api/v5/clients/{clientid}``. The handler finds these values among
    the arguments. ``refusals`` says how to refuse when the handler fails with one of these exceptions. A call that
    ``finishes`` goes on if its caller leaves: a change that has begun is not left half done. One that is
    ``open_on_loopback`` needs no scope from this machine. One that is ``control_only`` cannot be made over HTTP. One
    that ``stores`` changes the database, and is refused while it is away. Without ``has_deadline``, a change may take
    any time, and so may the pieces of an answer: a stream of events.
    """

    method: str
    path: str
    handler: Handler
    scope: Scope
    summary: str
    parameters: tuple[Parameter, ...] = ()
    body: Content | None = None
    answers: Mapping[int, Content | None] = field(factory=lambda: {200: Content()})
    refusals: Refusals = field(factory=dict)
    finishes: bool = False
    open_on_loopback: bool = False
    control_only: bool = False
    stores: bool = False
    has_deadline: bool = True

    @property
    def in_query(self) -> tuple[Parameter, ...]:
        """The arguments of the query string."""
        return tuple(each for each in self.parameters if each.where is Where.QUERY)

    @property
    def in_path(self) -> tuple[Parameter, ...]:
        """The values in the path."""
        return tuple(each for each in self.parameters if each.where is Where.PATH)
