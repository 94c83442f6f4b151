"""A finding: what is wrong, how bad it is, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from attrs import frozen

from holdfast.config import Config


class Weight(Enum):
    """How bad a finding is."""

    PROBLEM = "problem"  #: it loses data, lets strangers in, or will stop the broker
    ADVICE = "advice"  #: it is less urgent


@frozen
class Finding:
    """One finding. ``subject`` is a file, a key of the configuration, or a part of the machine."""

    weight: Weight
    subject: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.weight.value}: {self.subject}: {self.message}; {self.remedy}"


#: looks at one thing, and yields what is wrong with it
Check = Callable[[Config], Iterator[Finding]]


def problem(subject: object, message: str, remedy: str) -> Finding:
    """Return a finding that the operator must act on."""
    return Finding(Weight.PROBLEM, str(subject), message, remedy)


def advice(subject: object, message: str, remedy: str) -> Finding:
    """Return a finding that is less urgent."""
    return Finding(Weight.ADVICE, str(subject), message, remedy)
