"""What the answer to ``POST /api/v5/reload`` and its line of the audit log tell."""

from __future__ import annotations

import json

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.api.configs import RELOAD_PATH, ReloadAPI
from holdfast.admin.call import Answer, Call
from holdfast.broker.reloading import Outcome


def answered(outcome: Outcome) -> Answer:
    def reload(_by: str) -> Deferred[Outcome]:
        return succeed(outcome)

    answers: list[Answer] = []
    ReloadAPI(reload).reload(Call("POST", RELOAD_PATH, {})).addCallback(answers.append)
    return answers[0]


@pytest.mark.parametrize("warnings", [[], ["no rules are configured any more"]])
def test_warnings_are_in_the_answer_and_in_the_audit_log(warnings: list[str]) -> None:
    """The audit log has them only if there are some."""
    answer = answered(Outcome(files=["users"], warnings=warnings))
    assert json.loads(answer.body)["warnings"] == warnings
    expected = {"changed": [], "files": ["users"], "problems": 0}
    assert answer.note == ({**expected, "warnings": warnings} if warnings else expected)
