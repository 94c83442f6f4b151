"""The rules for claims, each broken in turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.interfaces import Accepted, Credentials
from holdfast.identity.tokens import ClaimRefused, ClaimRules, claim_of

NOW = 1000.0
CLIENT = Credentials("sensor-7", "alice", b"", "tls", 5)
GOOD: dict[str, Any] = {"sub": "alice", "exp": 1060}


def accepted(rules: ClaimRules, claims: dict[str, Any], client: Credentials = CLIENT, now: float = NOW) -> Accepted:
    return rules.accepted(claims, client, now)


def refused(rules: ClaimRules, claims: dict[str, Any], why: str, client: Credentials = CLIENT) -> None:
    with pytest.raises(ClaimRefused, match=why):
        rules.accepted(claims, client, NOW)


def test_the_identity_of_a_token() -> None:
    rules = ClaimRules(groups_claim="groups")
    assert accepted(rules, {**GOOD, "groups": ["a", "b"]}) == Accepted("alice", frozenset("ab"), 1060.0)


@pytest.mark.parametrize(("now", "why"), [(1060, "has expired"), (1e9, "has expired"), (899, "not valid yet")])
def test_a_token_counts_in_its_time_only(now: float, why: str) -> None:
    claims = {**GOOD, "nbf": 900}
    for inside in (900, 1059.9):
        accepted(ClaimRules(), claims, now=inside)
    with pytest.raises(ClaimRefused, match=why):
        accepted(ClaimRules(), claims, now=now)


def test_the_leeway_moves_both_ends_and_the_disconnect() -> None:
    rules = ClaimRules(leeway=10)
    for now in (890, 1069.9):
        assert accepted(rules, {**GOOD, "nbf": 900}, now=now).expires_at == 1070


@pytest.mark.parametrize("time", ["1060", True, float("nan"), float("inf"), -1, 10**400, [], {}])
@pytest.mark.parametrize("name", ["exp", "nbf"])
def test_a_time_that_is_none_is_refused(name: str, time: object) -> None:
    refused(ClaimRules(), {**GOOD, name: time}, "is not a time in seconds")


def test_an_expiry_is_required_unless_the_operator_says_otherwise() -> None:
    refused(ClaimRules(), {"sub": "alice"}, "no time of expiry")
    refused(ClaimRules(), {"sub": "alice", "exp": None}, "no time of expiry")
    assert accepted(ClaimRules(requires_expiry=False), {"sub": "alice"}) == Accepted("alice")


def test_the_issuer() -> None:
    rules = ClaimRules(issuer="https://here")
    accepted(rules, {**GOOD, "iss": "https://here"})
    for other in ("https://there", None, ["https://here"]):
        refused(rules, {**GOOD, "iss": other}, "another issuer")


def test_the_audience() -> None:
    rules = ClaimRules(audience=("holdfast", "mqtt"))
    for fine in ("mqtt", ["x", "holdfast"]):
        accepted(rules, {**GOOD, "aud": fine})
    for other in ("x", None, [], ["x", 5], "mqtt holdfast"):
        refused(rules, {**GOOD, "aud": other}, "another audience")


def test_a_token_for_others_is_refused_where_no_audience_is_configured() -> None:
    """RFC 7519, 4.1.3."""
    refused(ClaimRules(), {**GOOD, "aud": "somebody"}, "the option audience is not set")


def test_claims_that_repeat_the_names_of_the_client() -> None:
    rules = ClaimRules(required={"sub": "%u", "client": "%c"})
    accepted(rules, {**GOOD, "client": "sensor-7"})
    refused(rules, {**GOOD, "client": "sensor-8"}, "claim client is not the Client Identifier")
    refused(rules, {**GOOD, "sub": "bob", "client": "sensor-7"}, "claim sub is not the User Name")
    refused(rules, {**GOOD, "client": ["sensor-7"]}, "not the Client Identifier")
    nobody = Credentials("sensor-7", None, b"", "tls", 5)
    refused(rules, {**GOOD, "sub": None, "client": "sensor-7"}, "not the User Name", nobody)
    refused(rules, {**GOOD, "sub": "", "client": "sensor-7"}, "not the User Name", Credentials("c", "", b"", "t", 5))


def test_the_user_name_in_connect_counts_if_a_claim_repeats_it() -> None:
    rules = ClaimRules(username_claim="", required={"preferred_username": "%u"})
    assert accepted(rules, {**GOOD, "preferred_username": "alice"}).username == "alice"
    refused(rules, {**GOOD, "preferred_username": "bob"}, "not the User Name")


def test_claims_with_a_fixed_value() -> None:
    rules = ClaimRules(required={"admin": True, "roles": "device", "level": 1})
    good = {**GOOD, "admin": True, "roles": ["user", "device"], "level": 1}
    accepted(rules, good)
    for name, value in (("admin", 1), ("admin", "true"), ("roles", "devices"), ("roles", []), ("level", True)):
        refused(rules, {**good, name: value}, f"claim {name} has not the required value")
    refused(rules, {**GOOD}, "not the required value")


def test_nested_claims_are_found_by_a_path() -> None:
    claims = {"realm_access": {"roles": ["a"]}, "a.b": 1, "a": {"b": 2}, "deep": {"x": 5}}
    assert claim_of(claims, "realm_access.roles") == ["a"]
    assert claim_of(claims, "a.b") == 1
    assert claim_of(claims, "deep.x.y") is None
    assert accepted(ClaimRules(groups_claim="realm_access.roles"), {**GOOD, **claims}).groups == {"a"}


def test_groups_in_a_string_are_separated_by_spaces() -> None:
    assert accepted(ClaimRules(groups_claim="scope"), {**GOOD, "scope": "read write"}).groups == {"read", "write"}
    assert accepted(ClaimRules(groups_claim="scope"), GOOD).groups == frozenset()
    for other in (5, [5], {"a": 1}):
        refused(ClaimRules(groups_claim="scope"), {**GOOD, "scope": other}, "not a list of strings")


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a\nb", "x" * 256, "a\x00", 5, None, ["alice"], True])
def test_a_user_name_that_is_none_is_refused(name: object) -> None:
    refused(ClaimRules(), {**GOOD, "sub": name}, "user name")


claims_of_all_kinds = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
rules_of_all_kinds = st.builds(
    ClaimRules,
    username_claim=st.sampled_from(["sub", "name", "x.y"]),
    groups_claim=st.sampled_from(["", "groups"]),
    required=st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["%u", "%c", "x", True, 1]), max_size=2),
    issuer=st.sampled_from(["", "i"]),
    audience=st.sampled_from([(), ("aud",)]),
    leeway=st.sampled_from([0.0, 60.0]),
)


@given(
    rules_of_all_kinds,
    st.dictionaries(
        st.sampled_from(["sub", "name", "x", "groups", "a", "b", "iss", "aud", "exp", "nbf"]), claims_of_all_kinds
    ),
)
def test_claims_of_all_kinds_admit_a_named_user_in_time_or_are_refused(
    rules: ClaimRules, claims: dict[str, Any]
) -> None:
    try:
        found = rules.accepted(claims, CLIENT, NOW)
    except ClaimRefused:
        return
    assert found.username
    assert found.username == claim_of(claims, rules.username_claim)
    assert found.expires_at is not None
    assert found.expires_at > NOW
    assert all(isinstance(group, str) for group in found.groups)
    for name, wanted in rules.required.items():
        if wanted in ("%u", "%c"):
            assert claims[name] == {"%u": CLIENT.username, "%c": CLIENT.client_id}[str(wanted)]
