"""Random files of mosquitto's dynamic security, and mosquitto's documented algorithm in plain steps."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from holdfast.core.topics import matches

USERS, GROUPS, ROLES = ("ann", "bob", "cid"), ("g", "h"), ("r", "s", "t")
TOPICS = ("a", "b", "a/b", "a/c", "a/b/c", "b/c", "$SYS/x")
FILTERS = (*TOPICS, "#", "+", "a/#", "a/+", "+/b", "a/b/#", "b/#", "$SYS/#")
PATTERNS = ("publishClientSend", "publishClientReceive", "subscribePattern")


def _priorities() -> st.SearchStrategy[int]:
    return st.integers(-1, 2)


def _acls() -> st.SearchStrategy[list[dict[str, Any]]]:
    patterns = st.builds(
        lambda kind, topic, allow, priority: {
            "acltype": kind, "topic": topic, "allow": allow, "priority": priority,
        },
        st.sampled_from(PATTERNS), st.sampled_from(FILTERS), st.booleans(), _priorities(),
    )  # fmt: skip
    literals = st.builds(
        lambda topic, allow: {"acltype": "subscribeLiteral", "topic": topic, "allow": allow, "priority": 0},
        st.sampled_from(TOPICS), st.booleans(),
    )  # fmt: skip
    # mosquitto keeps one ACL for each kind and topic of a role
    return st.lists(st.one_of(patterns, literals), max_size=5, unique_by=lambda acl: (acl["acltype"], acl["topic"]))


def _references(key: str, names: tuple[str, ...]) -> st.SearchStrategy[list[dict[str, Any]]]:
    each = st.builds(lambda name, priority: {key: name, "priority": priority}, st.sampled_from(names), _priorities())
    return st.lists(each, max_size=3, unique_by=lambda one: one[key])


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Return a file with three users, two groups and three roles."""
    defaults = {key: draw(st.booleans()) for key in ("publishClientSend", "publishClientReceive", "subscribe")}
    return {
        "defaultACLAccess": {**defaults, "unsubscribe": True},
        "clients": [{"username": user, "roles": draw(_references("rolename", ROLES))} for user in USERS],
        "groups": [
            {
                "groupname": group,
                "roles": draw(_references("rolename", ROLES)),
                "clients": draw(_references("username", USERS)),
            }
            for group in GROUPS
        ],
        "roles": [{"rolename": role, "acls": draw(_acls())} for role in ROLES],
        **draw(st.sampled_from([{}, {"anonymousGroup": "g"}])),
    }


def verdict(tree: dict[str, Any], user: str | None, question: str, topic: str) -> bool:
    """Return mosquitto's verdict; the question is ``publishClientSend``, ``publishClientReceive`` or ``subscribe``."""
    roles = {role["rolename"]: role for role in tree["roles"]}
    groups = {group["groupname"]: group for group in tree["groups"]}
    asked: list[list[dict[str, Any]]] = []
    if user is None:
        if "anonymousGroup" in tree:
            asked.append(groups[tree["anonymousGroup"]]["roles"])
    else:
        asked += [client["roles"] for client in tree["clients"] if client["username"] == user]
        joined = [
            (-member["priority"], name)
            for name, group in groups.items()
            for member in group["clients"]
            if member["username"] == user
        ]
        asked += [groups[name]["roles"] for _, name in sorted(joined)]
    for references in asked:
        for reference in sorted(references, key=lambda one: (-one["priority"], one["rolename"])):
            acls = sorted(roles[reference["rolename"]]["acls"], key=lambda acl: -acl["priority"])
            if question == "subscribe":
                for acl in acls:
                    if acl["acltype"] == "subscribeLiteral" and acl["topic"] == topic:
                        return bool(acl["allow"])
            kind = "subscribePattern" if question == "subscribe" else question
            for acl in acls:
                if acl["acltype"] == kind and matches(acl["topic"], topic):
                    return bool(acl["allow"])
    return bool(tree["defaultACLAccess"][question])
