"""The authorizer that all parts of the broker share. Operators come first; a reload exchanges what is behind it."""

from __future__ import annotations

from zope.interface import implementer

from holdfast.auth.interfaces import IAuthorizer
from holdfast.authorization.authorizer import Authorizer
from holdfast.authorization.operators import OperatorsFirst


@implementer(IAuthorizer)
class PresentAuthorizer:
    """Answers as the present authorizer does.

    It knows the permissions of operators itself. Its methods are attributes of the object: so a question costs only one
    further call on the live path.
    """

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._spent = 0  #: the effort of earlier authorizers: the sum never falls
        self.authorizer = authorizer
        self.use(authorizer)

    def use(self, authorizer: IAuthorizer) -> None:
        """Answer as this one from now on. Its epoch is another one, unless neither has ever refused anything."""
        before = self.authorizer
        self._spent += before.effort - authorizer.effort
        self.authorizer = authorizer
        judged = OperatorsFirst(authorizer)
        self.may_publish = judged.may_publish
        self.may_subscribe = judged.may_subscribe
        self.may_receive = judged.may_receive
        self.may_keep = authorizer.may_keep
        self.receivable = judged.receivable
        self.receivable_filters = judged.receivable_filters
        if before is not authorizer and isinstance(before, Authorizer):
            before.retire()

    @property
    def epoch(self) -> object:
        """A value that changes whenever any answer may change."""
        return self.authorizer.epoch

    @property
    def keeping(self) -> str | None:
        """What stands for all that may_keep depends on, also in the next process; None if nothing does."""
        keeping: str | None = self.authorizer.keeping
        return keeping

    @property
    def keeps_the_published(self) -> bool:
        """Whether may_keep allows what may_publish allows to retain."""
        return bool(self.authorizer.keeps_the_published)

    @property
    def effort(self) -> int:
        """How much all answers so far have cost."""
        return self._spent + int(self.authorizer.effort)

    @property
    def checks_delivery(self) -> bool:
        """Whether deliveries may need a question."""
        return bool(self.authorizer.checks_delivery)
