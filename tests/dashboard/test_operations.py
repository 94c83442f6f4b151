"""Replays, alarms, keys, configuration, and the live overview."""

from __future__ import annotations

import time

from tests.dashboard import data
from tests.dashboard.dashboard import Dashboard
from tests.dashboard.fake_api import FakeAPI


def test_the_overview_follows_the_broker(dashboard: Dashboard, api: FakeAPI) -> None:
    """It begins with the recent past, then each event is drawn."""
    dashboard.go("overview")
    dashboard.live()
    api.tell("monitor", {**data.sample(time.time() + 1, 0), "received_msg_rate": 77_777})
    dashboard.sees("77.8 k/s")
    assert dashboard.page.get_by_role("img", name="Messages: now in 77.8 k/s").count() == 1


def test_the_overview_has_three_periods(dashboard: Dashboard, api: FakeAPI) -> None:
    dashboard.go("overview")
    dashboard.click("24 h", "radio")
    dashboard.settle()
    assert dashboard.page.url.endswith("range=24h")
    assert [given["latest"] for given, _ in api.called("GET", "/monitor")] == ["300", "86400"]


def test_the_nodes_are_shown_with_their_states(dashboard: Dashboard, api: FakeAPI) -> None:
    """One that does not answer is shown as the database knows it. A broker alone is one node."""
    dashboard.go("nodes")
    rows = dashboard.page.get_by_role("row").all_inner_texts()
    notes = ("(this one)", "does not answer", "another member has taken over")
    assert [tuple(note in row for note in notes) for row in rows] == [
        (False, False, False),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert "1,843" in rows[1]
    assert "<i>mqtt2</i>.example.org:1883" in rows[2]
    api.nodes = [{"node": "1", "node_status": "running", "local": True, "live_connections": 7, "connections": 9}]
    dashboard.page.reload()
    dashboard.sees("This broker is alone: it is no member of a cluster.")
    assert "incarnation" not in dashboard.text.lower()


def test_a_node_is_drained_and_serves_again(dashboard: Dashboard, api: FakeAPI) -> None:
    """The dialog tells what happens. A dead node has no button, and who may only read has none at all."""
    dashboard.go("nodes")
    assert dashboard.page.get_by_role("button", name="Drain…").count() == 2
    dashboard.click("Drain… node 2")
    dashboard.sees("It does not stop by itself.")
    dashboard.click("Drain the node")
    dashboard.sees("sends its clients to other members")
    dashboard.click("Serve again… node 2")
    dashboard.click("Serve again")
    dashboard.sees("Node 2 serves clients again")
    api.scopes = ["read"]
    dashboard.page.reload()
    dashboard.sees("does not answer")
    assert dashboard.page.get_by_role("button", name="Drain…").count() == 0


def test_a_replay_is_followed_and_ended(dashboard: Dashboard, api: FakeAPI) -> None:
    """Its progress is shown; the dialog says that the connection of the client ends, too."""
    dashboard.go("replays")
    dashboard.sees("41,200 of 1,000,000")
    api.replays[0] = {**api.replays[0], "sent": 41_300, "age": 12.9}
    dashboard.sees("41,300 of 1,000,000")
    dashboard.click("End…")
    dashboard.sees("so does the connection of the client")
    dashboard.click("End the replay")
    dashboard.sees("Ended the replay to sensor-0001")
    assert [given for given, _ in api.called("DELETE", "/mqtt/retainer/replay")] == [{"id": "7"}]


def test_alarms_come_and_go_without_a_click(dashboard: Dashboard, api: FakeAPI) -> None:
    dashboard.go("alarms")
    dashboard.sees("Less than 10 % of the disk is free")
    dashboard.live()
    api.alarms = []
    api.tell("alarm", {"name": "disk_low", "activated": False})
    dashboard.sees("No alarm is active.")
    dashboard.click("Past", "radio")
    dashboard.sees("No alarm is remembered.")


def test_the_secret_of_a_new_key_is_shown_once(dashboard: Dashboard, api: FakeAPI) -> None:
    dashboard.go("keys")
    dashboard.click("New key…")
    dashboard.fill("Name", "importer")
    dashboard.page.get_by_label("retained:write").check()
    dashboard.click("Make the key")
    dashboard.sees("shown-once-7c1e")
    dashboard.click("Copy the secret")
    assert dashboard.page.evaluate("navigator.clipboard.readText()") == "shown-once-7c1e"
    dashboard.click("I have copied it")
    dashboard.settle()
    assert "shown-once-7c1e" not in dashboard.text
    assert api.keys[-1]["scopes"] == ["read", "retained:write"]
    dashboard.click("Revoke…")
    dashboard.click("Revoke")
    dashboard.sees("Revoked grafana")


def test_a_configuration_is_tried_before_it_is_applied(dashboard: Dashboard, api: FakeAPI) -> None:
    """A mistake is told with its line and key. What was tried is what is applied: an edit needs another try."""
    dashboard.go("configuration")
    dashboard.page.get_by_label("only those that differ").check()
    dashboard.settle()
    assert "storage.url" not in dashboard.text
    dashboard.click("Change…")
    apply = dashboard.page.get_by_role("button", name="Save")
    dashboard.fill("Configuration file", "[retainer]\nbad = 1")
    dashboard.expected.append("status of 400")
    dashboard.click("Try")
    dashboard.sees("retainer.bad line 2: there is no such key")
    dashboard.fill("Configuration file", "[retainer]\ndelivery_rate = 900")
    assert apply.is_disabled()
    dashboard.click("Try")
    dashboard.page.get_by_role("button", name="Save 1 change").wait_for()
    dashboard.fill("Configuration file", "[retainer]\ndelivery_rate = 901")
    assert apply.is_disabled()
    dashboard.click("Try")
    dashboard.click("Save 1 change")
    dashboard.sees("the change is in force")
    assert [body["dry_run"] for _, body in api.called("PUT", "/configs")] == [True, True, True, False]
