"""The explorer of retained messages."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.dashboard.dashboard import Dashboard
from tests.dashboard.data import MANY, message
from tests.dashboard.fake_api import FakeAPI, Refusal
from tests.dashboard.hostile import HOSTILE

ACTIVE = "document.getElementById(document.querySelector('[role=tree]').getAttribute('aria-activedescendant'))"


def active(dashboard: Dashboard) -> tuple[str, str | None, str]:
    """Return the name, the state and the level of the row that the keyboard is at."""
    name, expanded, level = dashboard.page.evaluate(
        "(row => [row.querySelector('.name').textContent, ...['aria-expanded', 'aria-level']"
        f".map(name => row.getAttribute(name))])({ACTIVE})"
    )
    return name, expanded, level


def press(dashboard: Dashboard, *keys: str) -> None:
    for key in keys:
        dashboard.page.keyboard.press(key)
        dashboard.settle()


def test_the_tree_has_the_keys_of_its_pattern(dashboard: Dashboard) -> None:
    """Arrows open, close and move; Home and End, letters, Enter."""
    dashboard.go("retained/tree")
    dashboard.page.get_by_role("tree").focus()
    assert active(dashboard) == ("building", "false", "1")
    press(dashboard, "ArrowRight")
    assert active(dashboard) == ("building", "true", "1")
    press(dashboard, "ArrowRight", "ArrowDown")
    assert active(dashboard) == ("report", None, "2")
    press(dashboard, "Enter")
    dashboard.page.wait_for_url("**topic=building%2Freport")
    press(dashboard, "ArrowLeft", "ArrowLeft")
    assert active(dashboard) == ("building", "false", "1")
    press(dashboard, "End")
    assert active(dashboard) == ("site", "false", "1")
    press(dashboard, "Home", "m")
    assert active(dashboard) == ("many", "false", "1")


def test_a_million_topics_open_level_by_level(dashboard: Dashboard, api: FakeAPI) -> None:
    """A level costs one call for its first part, and the address leads to a topic deep in the tree."""
    topic = "site/site-7/building-63/room-207"
    dashboard.go("retained/tree", topic=topic)
    assert active(dashboard) == ("room-207", None, "4")
    assert len(api.called("GET", "/mqtt/retainer/tree")) <= 6
    dashboard.sees("gateway-07")


def test_values_are_shown_in_the_tree_and_in_the_search(dashboard: Dashboard, api: FakeAPI) -> None:
    """Their beginnings, of those in view, by one call for a level and none for the rows of the search."""
    dashboard.go("retained/tree", topic="building/temperature")
    value = dashboard.page.locator(".row.selected .value")
    value.wait_for()
    assert value.inner_text().startswith('{"volts"') or "{" in value.inner_text()
    dashboard.go("retained/search", q="building/#")
    dashboard.page.get_by_role("cell").filter(has_text="{").first.wait_for()


def test_the_question_mark_lists_the_keys(dashboard: Dashboard) -> None:
    """But not while the user writes."""
    dashboard.go("clients")
    dashboard.page.keyboard.press("?")
    dashboard.page.get_by_role("dialog", name="Keys").wait_for()
    assert dashboard.violations() == []
    dashboard.page.keyboard.press("Escape")
    dashboard.page.get_by_role("dialog").wait_for(state="detached")
    dashboard.page.get_by_label("Search clients").press("?")
    assert dashboard.page.get_by_role("dialog").count() == 0


@pytest.mark.parametrize("topic", ["building/+", "#", "site/#"])
def test_a_topic_with_wildcards_has_no_message_of_its_own(dashboard: Dashboard, api: FakeAPI, topic: str) -> None:
    """A link to one leads to the search; it would show the message of a topic that matches, and offer to change it."""
    dashboard.go("retained/tree", topic=topic)
    dashboard.sees("This is a Topic Filter.")
    assert not {"Set…", "Clear…", "Restore…"} & set(dashboard.page.get_by_role("button").all_inner_texts())
    assert not [given for given, _ in api.called("GET", "/mqtt/retainer/messages") if "payload" in given]
    dashboard.click("Search by it", "link")
    dashboard.page.wait_for_url("**/retained/search?q=**")


def test_a_topic_leads_to_the_levels_above_it(dashboard: Dashboard) -> None:
    dashboard.go("retained/tree", topic="site/site-7/building-63/room-207")
    dashboard.page.locator("h2").get_by_role("link", name="site-7", exact=True).click()
    dashboard.page.wait_for_url("**topic=site%2Fsite-7")


def test_a_topic_of_which_nothing_is_left_is_restored_with_all_below_it(dashboard: Dashboard, api: FakeAPI) -> None:
    """That is what was lost; the topic alone can be chosen."""
    dashboard.go("retained/tree", topic="none/left")
    dashboard.click("Restore…")
    dashboard.click("Dry run")
    dashboard.settle()
    assert api.called("POST", "/mqtt/retainer/restore")[-1][0]["topic"] == "none/left/#"


def test_a_hundred_thousand_children_are_drawn_as_far_as_they_are_seen(dashboard: Dashboard, api: FakeAPI) -> None:
    """Few rows exist at a time; scrolling loads the next part; a jump to the end does not load everything."""
    dashboard.go("retained/tree")
    dashboard.page.get_by_role("tree").focus()
    press(dashboard, "m", "ArrowRight", "ArrowRight")
    assert active(dashboard)[0] == "device-000000"
    rows = "document.querySelectorAll('[role=treeitem]').length"
    assert dashboard.page.evaluate(rows) < 100
    press(dashboard, "End")
    dashboard.page.wait_for_function("() => true")
    assert dashboard.page.evaluate(rows) < 100
    loaded = sum(
        int(given["limit"]) for given, _ in api.called("GET", "/mqtt/retainer/tree") if given.get("topic") == "many"
    )
    assert 1000 <= loaded < MANY / 20


def test_the_tree_that_is_loaded_again_stays_as_it_was_open(dashboard: Dashboard) -> None:
    """By its button, and after the user has set, restored or cleared a message."""
    dashboard.go("retained/tree", topic="building/temperature")
    names = dashboard.page.locator("[role=treeitem] .name")
    shown = names.all_inner_texts()
    for presses in (
        ["Load the tree again"],
        ["Set…", "Set"],
        ["Restore…", "Dry run", "Change 4 topics"],
        ["Clear…", "Clear 3 messages"],
    ):
        with dashboard.page.expect_response("**/retainer/tree?topic=building&**"):
            for name in presses:
                dashboard.click(name)
        dashboard.settle()
        assert names.all_inner_texts() == shown, presses


def test_a_tree_that_was_left_while_it_loaded_does_nothing(dashboard: Dashboard) -> None:
    """Its answer comes when another page is shown."""
    held: list[Any] = []
    dashboard.go("overview")
    dashboard.page.route("**/retainer/tree*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks functions, not methods of lists
    with dashboard.page.expect_request("**/retainer/tree*"):
        dashboard.page.evaluate("() => { location.hash = '#/retained/tree?topic=building'; }")
    dashboard.go("listeners")
    with dashboard.page.expect_response("**/retainer/tree*"):
        held[0].continue_()
    dashboard.page.evaluate("() => new Promise(requestAnimationFrame)")
    dashboard.go("retained/tree", topic="building")
    assert active(dashboard) == ("building", "false", "1")


def test_empty_levels_have_a_name_and_open(dashboard: Dashboard) -> None:
    """The topics "empty//leaf" and "empty" are not mixed up."""
    dashboard.go("retained/tree", topic="empty//leaf")
    assert active(dashboard) == ("leaf", None, "3")
    dashboard.sees("(empty level)")


def test_the_search_keeps_filter_order_and_conditions_in_the_address(dashboard: Dashboard, api: FakeAPI) -> None:
    """So that a search can be sent to a colleague. The slash key leads to the search."""
    dashboard.go("retained/search")
    dashboard.page.get_by_role("heading", name="Retained messages").click()
    dashboard.page.keyboard.press("/")
    dashboard.page.keyboard.type("many/#")
    dashboard.click("Size")
    dashboard.page.wait_for_url("**q=many**")
    dashboard.settle()
    dashboard.click("More")
    dashboard.fill("Publisher", "gateway-07")
    dashboard.page.keyboard.press("Enter")
    dashboard.settle()
    assert "q=many%2F%23" in dashboard.page.url
    given, _ = api.called("GET", "/mqtt/retainer/messages")[-1]
    assert (given["topic"], given["sort"], given["order"], given["publisher"]) == (
        "many/#",
        "size",
        "desc",
        "gateway-07",
    )
    dashboard.click("Next")
    dashboard.sees("Page 2")
    dashboard.settle()
    assert api.called("GET", "/mqtt/retainer/messages")[-1][0]["cursor"] == "100"


def test_a_bad_filter_is_told_with_the_field(dashboard: Dashboard) -> None:
    dashboard.expected.append("status of 400")
    dashboard.go("retained/search", q="a/#/b")
    dashboard.sees("# is the last level only")


def test_json_folds_and_its_paths_and_values_are_copied(dashboard: Dashboard) -> None:
    """Numbers keep all digits, and a name that is no identifier is quoted in the path."""
    dashboard.go("retained/tree", topic="building/temperature")
    clipboard = "navigator.clipboard.readText()"
    dashboard.page.get_by_role("button", name="volts", exact=True).click()
    assert dashboard.page.evaluate(clipboard) == "$.battery.volts"
    dashboard.page.get_by_role("button", name="9007199254740993123").click()
    assert dashboard.page.evaluate(clipboard) == "9007199254740993123"
    dashboard.go("retained/tree", topic=f"hostile/{HOSTILE[0]}")
    dashboard.page.get_by_role("button", name=HOSTILE[0], exact=True).first.click()
    assert dashboard.page.evaluate(clipboard) == f"$['{HOSTILE[0]}']"


def test_a_payload_is_shown_as_text_and_as_bytes(dashboard: Dashboard) -> None:
    dashboard.go("retained/tree", topic="building/temperature")
    dashboard.click("Text", "radio")
    dashboard.sees('{"degrees": 21.0')
    dashboard.go("retained/tree", topic="building/report")
    dashboard.sees("000010  10 11 12 13")
    dashboard.sees("not UTF-8 text")


def test_the_history_draws_values_and_compares_revisions(dashboard: Dashboard, api: FakeAPI) -> None:
    """Numbers at a path of JSON are drawn; a chosen pair is compared; it is shown who has cleared the topic."""
    dashboard.go("retained/tree", topic="building/temperature", tab="history")
    dashboard.page.get_by_label("Values of").select_option("$.battery.volts")
    assert dashboard.page.get_by_role("img", name="$.battery.volts").count() == 1
    dashboard.sees("/degrees")
    dashboard.page.locator("input[name=from]").nth(4).check()
    dashboard.settle()
    given, _ = api.called("GET", "/mqtt/retainer/diff")[-1]
    assert (given["from"], given["to"]) == ("90071992547409927", "90071992547409931")
    dashboard.page.get_by_role("row").filter(has_text="cleared").click()
    dashboard.sees("Cleared by maintenance-laptop")
    dashboard.click("Older changes")
    dashboard.sees("80+ changes")


def test_changes_of_all_topics_lead_to_the_history(dashboard: Dashboard) -> None:
    """Each change has its client and user, and its operator."""
    dashboard.go("retained/changes", q="building/#")
    dashboard.sees("maintenance-laptop")
    dashboard.sees("by gateway-07, user building (the API), operator anna")
    dashboard.page.locator("tbody button.link").first.click()
    dashboard.page.wait_for_url("**tab=history**")


def test_a_restore_counts_first_and_then_changes_that_much(dashboard: Dashboard, api: FakeAPI) -> None:
    """Nothing changes before the dry run; another choice needs another dry run; all parts are done."""
    dashboard.go("retained/tree", topic="building", tab="below")
    dashboard.click("Restore all…")
    apply = dashboard.page.locator("dialog footer button.danger")
    assert apply.is_disabled()
    dashboard.click("yesterday")
    dashboard.click("Dry run")
    dashboard.sees("Change 4 topics")
    dashboard.sees("The history does not know some topics then or now, and they stay: noise/#")
    dashboard.page.get_by_label("Also clear topics").check()
    assert apply.is_disabled()
    dashboard.click("Dry run")
    dashboard.sees("Change 4 topics")
    apply.click()
    dashboard.sees("Restored 4 topics")
    calls = [given for given, _ in api.called("POST", "/mqtt/retainer/restore")]
    assert [given["dry_run"] for given in calls] == ["true"] * 4 + ["false"] * 2
    assert ["limit" in given for given in calls] == [True] * 4 + [False] * 2
    assert {given["topic"] for given in calls} == {"building/#"}
    assert calls[-1]["clear"] == "true"


def test_clearing_names_what_and_how_many(dashboard: Dashboard, api: FakeAPI) -> None:
    """The button has the number of the dry run. Many messages need the number to be typed."""
    dashboard.go("retained/tree", topic="building/temperature")
    dashboard.click("Clear…")
    dashboard.click("Clear 3 messages")
    dashboard.sees("Cleared 3 messages")
    calls = [given for given, _ in api.called("DELETE", "/mqtt/retainer/messages")]
    assert [given.get("dry_run") for given in calls] == ["true", None]
    assert {given["topic"] for given in calls} == {"building/temperature"}
    dashboard.go("retained/search")
    dashboard.click("Clear…")
    button = dashboard.page.get_by_role("button", name="Clear 1,000,132 messages")
    button.wait_for()
    assert button.is_disabled()
    dashboard.page.get_by_label("Type 1000132 to confirm").fill("1000132")
    assert button.is_enabled()
    dashboard.page.keyboard.press("Escape")
    assert len(api.called("DELETE", "/mqtt/retainer/messages")) == 3


def test_what_a_narrowed_search_shows_is_what_its_actions_take(dashboard: Dashboard, api: FakeAPI) -> None:
    """Export, restore and clear get each condition of the search, and the number is told before."""
    conditions = {
        "publisher": "gateway-07", "username": "building", "search": "u", "older_than": "-1s", "newer_than": "-9d",
        "min_size": "1", "max_size": "900",
    }  # fmt: skip
    dashboard.go("retained/search", q="building/#", **conditions)
    dashboard.page.locator("summary", has_text="Export").click()
    with dashboard.page.expect_download():
        dashboard.click("All 3 messages with payloads, as NDJSON", "link")
    dashboard.click("Restore…")
    dashboard.click("Dry run")
    dashboard.sees("Change 4 topics")
    dashboard.click("Change 4 topics")
    dashboard.sees("Restored 4 topics")
    dashboard.click("Clear…")
    dashboard.sees("Clear 3 messages")
    for method, path in (
        ("GET", "messages"), ("GET", "count"), ("GET", "export"), ("POST", "restore"), ("DELETE", "messages"),
    ):  # fmt: skip
        called = api.called(method, f"/mqtt/retainer/{path}")
        assert called
        for given, _ in called:
            assert given["topic"] == "building/#"
            assert {name: given.get(name) for name in conditions} == conditions, path


def test_the_messages_of_an_earlier_time_are_exported_and_restored(dashboard: Dashboard, api: FakeAPI) -> None:
    """A search of the past takes its own time to its actions."""
    at = "2026-11-21T10:00:00.000Z"
    dashboard.go("retained/search", q="building/#", at=at)
    dashboard.page.locator("summary", has_text="Export").click()
    with dashboard.page.expect_download():
        dashboard.click("All 3 messages with payloads, as CSV", "link")
    dashboard.click("Restore…")
    dashboard.click("Dry run")
    dashboard.sees("Change 4 topics")
    assert [given["at"] for given, _ in api.called("GET", "/mqtt/retainer/export")] == [at]
    assert {given["at"] for given, _ in api.called("POST", "/mqtt/retainer/restore")} == {at}


def test_a_job_shows_its_progress_and_can_be_stopped(dashboard: Dashboard, api: FakeAPI) -> None:
    """Stop cancels the job at the broker, and what it has done is told."""
    api.jobs_last = True
    dashboard.go("retained/tree", topic="building/temperature")
    dashboard.click("Clear…")
    dashboard.click("Clear 3 messages")
    dashboard.sees("1 of 3 cleared")
    assert dashboard.page.get_by_role("progressbar", name="Cleared messages").get_attribute("value") == "1"
    dashboard.click("Stop")
    dashboard.sees("Stopped: 1 message cleared")
    assert len(api.called("DELETE", "/jobs/1f")) == 1


def test_a_message_is_set_with_its_properties(dashboard: Dashboard, api: FakeAPI) -> None:
    """A refusal names the field, and keeps what was written."""
    dashboard.go("retained/tree")
    dashboard.click("New message…")
    dashboard.fill("Topic", "a/+")
    dashboard.fill("Payload", '{"a": 1}')
    dashboard.fill("Expires after (seconds)", "60")
    dashboard.click("Add a property")
    dashboard.fill("Name 1", "k")
    dashboard.fill("Value 1", "v")
    dashboard.sees("valid JSON")
    dashboard.expected.append("status of 400")
    dashboard.click("Set")
    dashboard.sees("+ is not allowed in a Topic Name")
    dashboard.fill("Topic", "a/b")
    dashboard.click("Set")
    dashboard.page.wait_for_url("**topic=a%2Fb")
    (_, _), (_, body) = api.called("POST", "/mqtt/retainer/messages")
    assert body == {
        "topic": "a/b", "payload": '{"a": 1}', "payload_encoding": "plain", "qos": 0, "quiet": False,
        "properties": {"message_expiry_interval": 60, "user_properties": [["k", "v"]]},
    }  # fmt: skip


def test_a_change_that_waits_for_the_database_is_not_shown_as_made(dashboard: Dashboard, api: FakeAPI) -> None:
    """The broker has accepted it, and a job will tell its outcome."""
    api.late = True
    dashboard.go("retained/tree")
    dashboard.click("New message…")
    dashboard.fill("Topic", "a/b")
    dashboard.fill("Payload", "1")
    dashboard.click("Set")
    dashboard.sees("The broker makes this change when the database is back: see the job 5e.")


def test_a_topic_is_followed_without_a_gap(dashboard: Dashboard, api: FakeAPI) -> None:
    """The list gives the token, the events begin after it, and a change is shown without a click."""
    dashboard.go("retained/tree", topic="building/temperature")
    with dashboard.page.expect_request(lambda request: "/events?" in request.url) as asked:
        dashboard.page.get_by_label("Live").check()
    assert "retained=building%2Ftemperature" in asked.value.url
    assert "token=1" in asked.value.url
    dashboard.live()
    api.retained["building/temperature"] = {"from_clientid": "another-gateway"}
    api.tell("retained", {"topic": "building/temperature", "op": "set"})
    dashboard.sees("another-gateway")


def test_what_is_shown_is_saved_inert(dashboard: Dashboard) -> None:
    """In CSV, no cell begins like a formula; NDJSON has the exact texts."""
    dashboard.go("retained/search", q="hostile/#")
    dashboard.page.locator("summary", has_text="Export").click()
    with dashboard.page.expect_download() as download:
        dashboard.click(f"The {len(HOSTILE)} rows of this page, as CSV")
    text = download.value.path().read_text()
    assert "\"'=HYPERLINK" in text
    assert ',"=HYPERLINK' not in text
    dashboard.page.locator("summary", has_text="Export").click()
    with dashboard.page.expect_download() as download:
        dashboard.click(f"The {len(HOSTILE)} rows of this page, as NDJSON")
    lines = [json.loads(line) for line in download.value.path().read_text().split("\n") if line]
    assert [line["topic"] for line in lines] == [f"hostile/{name}" for name in HOSTILE]


def test_a_failed_part_of_the_tree_can_be_loaded_again(dashboard: Dashboard, api: FakeAPI) -> None:
    api.fail["/mqtt/retainer/tree"] = Refusal(503, "the database is not available")
    dashboard.expected.append("status of 503")
    dashboard.go("retained/tree")
    dashboard.sees("the database is not available")
    api.fail.clear()
    dashboard.click("Try again")
    dashboard.sees("many")


def test_the_stand_in_makes_messages_like_the_broker() -> None:
    """A message of the stand-in has the fields that the records of the API have."""
    from holdfast.core.messages import RetainedMessage
    from holdfast.retained.records import summary_of
    from holdfast.retained.store.values import ListedMessage
    from holdfast.wire.properties import NO_PROPERTIES

    real = summary_of(ListedMessage(RetainedMessage("a", b"x", 0, NO_PROPERTIES, None, None, 0, None, 1), 1))
    assert set(message(time.time(), "a")) == set(real)
