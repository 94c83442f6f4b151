"""Why a change of users or rules is refused; the texts are for operators."""

from __future__ import annotations


class BadValue(ValueError):
    """A name, a password or a rule cannot be used."""


class Unknown(Exception):
    """There is no such user, or no such rule."""


class AlreadyThere(Exception):
    """There is a user of this name."""


class Contended(Exception):
    """Other nodes changed the rules meanwhile, again and again."""
