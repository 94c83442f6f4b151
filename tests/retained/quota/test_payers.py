"""The retained messages of each user, and of all guests: counted whatever happens to them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import succeed

from holdfast.core.clients import GUESTS, payer_of, payers_of
from holdfast.core.messages import ApplicationMessage, ChangeOrigin, stored_size
from holdfast.retained.importing import ImportJob, Merger
from holdfast.retained.limits import Limit, PayerLimits, PayerQuotas, Quota, RetainerLimits
from holdfast.retained.quota import Budgets, Charge
from holdfast.retained.staging import StagedRows, staged_row
from holdfast.retained.store.values import Usage
from holdfast.retained.verdicts import Merge
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.retained.store.contract import message
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file, result_of

NAMES = [("c0", "alice"), ("c1", "alice"), ("c2", "bob"), ("c3", None), ("c4", None)]
TOPICS = ["a", "b", "c/d", "c/e"]
PAYERS = ["user alice", "user bob", *(f"client c{number}" for number in range(5)), GUESTS]
ROOMY = PayerQuotas(Quota("limits.", 1000), Quota("limits.guests_", 1000))
payloads = st.sampled_from([b"", b"1", b"4444"])


def test_a_payer_is_a_proven_name_and_otherwise_a_client() -> None:
    assert payers_of("alice", "c", True) == ("user alice",)
    assert payers_of("alice", "c", False) == payers_of(None, "c", True) == payers_of("", "c", True)
    assert payers_of(None, "c", True) == ("client c", GUESTS)
    assert payers_of(None, None, True) == ()
    long = payer_of("x" * 60_000, "c", True)
    assert long is not None
    assert len(long) < 100
    assert long != payer_of("x" * 60_001, "c", True)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 4), st.sampled_from(TOPICS), payloads, st.booleans()),
            st.tuples(st.just("operator"), st.sampled_from(TOPICS), payloads),
            st.tuples(st.just("import"), st.sampled_from(TOPICS), st.integers(0, 4)),
            st.sampled_from(["restart", "expire", "commit"]),
        ),
        max_size=25,
    ),
    st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_counts_of_payers_equal_a_recount(steps: list[Any], names_proven: bool) -> None:
    """After any order of messages, replacements, clears, imports, expiry and restarts."""
    limits = RetainerLimits(payers=PayerLimits(names_proven, {}, ROOMY))
    with TemporaryDirectory() as directory:
        broker = RestartableBroker(fresh_file(Path(directory)), retainer=limits)
        clients = connected(broker)
        for step in steps:
            if step == "restart":
                broker = broker.restart(after=1)
                clients = connected(broker)
            elif step == "expire":
                broker.advance(61)
            elif step == "commit":
                broker.commit()
            elif step[0] == "import":
                imported(broker, step[1], *NAMES[step[2]])
            elif step[0] == "operator":
                broker.retained.retain(ApplicationMessage(step[1], step[2]), ChangeOrigin.API)
            else:
                number, topic, payload, expires = step
                properties = Properties(message_expiry_interval=5) if expires and payload else NO_PROPERTIES
                clients[number].publish(topic, payload, 1, True, properties)
        broker.commit()
        found = [one for topic in TOPICS if (one := result_of(broker.store.get(topic))) is not None]
        counted = result_of(broker.store.read_usage((), (), (), PAYERS)).payers
        for payer in PAYERS:
            sizes = [
                stored_size(one.topic, one.properties, len(one.payload))
                for one in found
                if payer in payers_of(one.username, one.client_id, names_proven)
            ]
            assert counted[payer] == Usage(len(sizes), sum(sizes)), payer
        broker.kill()


def connected(broker: MemoryBroker) -> list[Client]:
    return [broker.client(client_id, 5, username=username) for client_id, username in NAMES]


def imported(broker: MemoryBroker, topic: str, client_id: str, username: str | None) -> None:
    """Import one message of a publisher, as an operator."""
    staging = StagedRows()
    staging.add(staged_row(message(topic, b"imported", client_id=client_id, username=username)))
    merger = Merger(broker.retained, broker.store, now=broker.now, pause=lambda: succeed(None))
    job = ImportJob(uuid4().hex, staging, Merge.REPLACE)
    stepping = merger.step(job)
    broker.settle()
    result_of(stepping)


def test_a_message_of_another_user_takes_its_place_and_frees_that_of_the_earlier_one() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(Quota("limits.", 1)))))
    alice, bob = (broker.client(name, 5, username=name) for name in ("alice", "bob"))
    assert said(alice, "t") == said(bob, "u") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert said(bob, "t") == ReasonCode.QUOTA_EXCEEDED
    assert said(bob, "t", b"") == ReasonCode.NO_MATCHING_SUBSCRIBERS  # anybody who may clear frees alice's place
    assert said(alice, "v") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert broker.retained.admission.refusals[Limit.USER_QUOTA] == 1


def test_a_refusal_names_the_option_and_the_user() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(Quota("limits.", 1)))))
    alice = broker.client("c", 5, username="alice")
    alice.publish("a", b"x", 1, True)
    alice.packets()
    alice.publish("b", b"x", 1, True)
    [puback] = alice.got(p.Puback)
    assert puback.properties.reason_string == "limits.max_retained_messages = 1 is reached by 'user alice'"


def test_a_stranger_with_many_client_identifiers_reaches_the_total_of_guests() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(payers=PayerLimits(False, {}, PayerQuotas(guests=Quota("g.", 2)))))
    broker.store.names_proven = False
    answers = [said(broker.client(f"c{number}", 5, username=f"u{number}"), f"t/{number}") for number in range(3)]
    assert answers == [ReasonCode.NO_MATCHING_SUBSCRIBERS] * 2 + [ReasonCode.QUOTA_EXCEEDED]
    assert broker.retained.admission.refusals[Limit.GUESTS_QUOTA] == 1


def test_a_zone_without_quotas_charges_but_does_not_refuse() -> None:
    """What a user retains through an unlimited listener counts when it comes through a limited one."""
    limits = RetainerLimits(payers=PayerLimits(True, {"test": PayerQuotas()}, PayerQuotas(Quota("limits.", 2))))
    broker = MemoryBroker(retainer=limits)
    alice = broker.client("c", 5, username="alice")
    assert [said(alice, topic) for topic in "abc"] == [ReasonCode.NO_MATCHING_SUBSCRIBERS] * 3
    outside = ApplicationMessage("d", b"x", 1, True, "c", "alice", listener="another")
    undecided = broker.retained.admission.undecided(outside)
    assert undecided is not None
    broker.settle()
    with pytest.raises(Exception, match=r"limits\.max_retained_messages = 2"):
        broker.retained.retain(outside, ChangeOrigin.PUBLISH)


def test_a_reload_can_give_a_listener_other_quotas_and_keeps_the_counts() -> None:
    payers = PayerLimits(True, {"test": PayerQuotas(Quota("limits.", 5))})
    broker = MemoryBroker(retainer=RetainerLimits(payers=payers))
    alice = broker.client("c", 5, username="alice")
    assert said(alice, "a") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    broker.retained.admission.change_payers(PayerLimits(False, {"test": PayerQuotas(Quota("limits.", 1))}))
    assert said(alice, "b") == ReasonCode.QUOTA_EXCEEDED
    broker.retained.admission.change_payers(PayerLimits(True, {"test": PayerQuotas(Quota("limits.", 2))}))
    assert said(alice, "b") == ReasonCode.NO_MATCHING_SUBSCRIBERS


def test_a_will_is_charged_to_its_user() -> None:
    broker = MemoryBroker(retainer=RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(Quota("limits.", 1)))))
    alice = broker.client("c", 5, username="alice", will=p.Will("will", b"gone", 0, True))
    alice.publish("t", b"x", 1, True)
    alice.drop()
    assert result_of(broker.store.get("will")) is None
    assert broker.retained.admission.refusals[Limit.USER_QUOTA] == 1


def test_budgets_of_payers_are_released_by_the_replacing_message() -> None:
    limits = RetainerLimits(payers=PayerLimits(True, {}, PayerQuotas(Quota("", 5), Quota("", 5))))
    budgets = Budgets(limits)
    quotas = PayerQuotas(Quota("", 5), Quota("", 5))
    list(budgets.of("t", "c", Charge(("client c", GUESTS), quotas)))
    before = Usage(1, 20, "c", None)
    charge = Charge(("client d", GUESTS), quotas)
    growths = {budget.payer: growth.messages for budget, growth in budgets.growths("t", 30, "d", before, charge)}
    assert growths == {"client d": 1, GUESTS: 0}
    budgets.release("d", before, charge)
    assert {name: each.messages for name, each in budgets.payers.items()} == {"client c": -1, GUESTS: 0, "client d": 0}


def said(client: Client, topic: str, payload: bytes = b"x") -> ReasonCode:
    """Publish with RETAIN 1, and return the Reason Code of PUBACK."""
    client.publish(topic, payload, 1, True)
    [puback] = client.got(p.Puback)
    return ReasonCode(puback.reason_code)
