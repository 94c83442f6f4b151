"""Signing in and out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.dashboard import Dashboard
from tests.dashboard.fake_api import FakeAPI


def test_a_link_signs_in_and_leaves_the_address(dashboard: Dashboard, api: FakeAPI) -> None:
    """The one-time token is neither in the address nor in the history of the browser afterwards."""
    api.signed_in = False
    dashboard.page.goto(f"{api.origin}/#token=good")
    dashboard.settle()
    assert dashboard.page.url == f"{api.origin}/#/overview"
    assert dashboard.page.evaluate("history.length") == 2
    assert api.called("POST", "/login") == [({}, {"token": "good"})]


@pytest.mark.parametrize("signed_in", [False, True])
def test_a_link_signs_in_in_a_tab_that_shows_the_dashboard(dashboard: Dashboard, api: FakeAPI, signed_in: bool) -> None:
    """Nothing is loaded then: the browser only tells that the address has changed. The link leaves the address."""
    api.signed_in = signed_in
    dashboard.expected.append("status of 401")
    dashboard.go("listeners")
    for link in ("old", "%", "good"):
        with dashboard.page.expect_response("**/login"):
            dashboard.page.evaluate("link => { location.hash = `#token=${link}`; }", link)
        assert dashboard.page.evaluate("location.hash") == "#/overview"
        if link != "good" and not signed_in:
            dashboard.sees("too old")
    dashboard.page.get_by_role("heading", name="Overview").wait_for()
    assert [body for _, body in api.called("POST", "/login")] == [{"token": "old"}, {"token": "%"}, {"token": "good"}]


def test_an_old_link_says_how_to_get_another(dashboard: Dashboard, api: FakeAPI) -> None:
    api.signed_in = False
    dashboard.expected.append("status of 401")
    dashboard.page.goto(f"{api.origin}/#token=old")
    dashboard.sees("this link has been used, or is too old")
    dashboard.page.get_by_text("holdfast dashboard", exact=True).wait_for()


def test_name_and_password_sign_in(dashboard: Dashboard, api: FakeAPI) -> None:
    """A wrong password is told, and not kept in the field."""
    api.signed_in = False
    dashboard.expected.append("status of 401")
    dashboard.go("clients")
    dashboard.fill("User name", "operator")
    dashboard.fill("Password", "wrong")
    dashboard.click("Sign in")
    dashboard.sees("user name or password is wrong")
    assert dashboard.page.get_by_label("Password").input_value() == ""
    dashboard.fill("Password", "right")
    dashboard.click("Sign in")
    dashboard.sees("sensor-0000")


def test_there_is_a_form_only_where_somebody_can_sign_in(dashboard: Dashboard, api: FakeAPI) -> None:
    """Without a group of users who may, a link is the only way; also after a sign-out."""
    dashboard.expected.append("status of 401")
    api.password_login = False
    dashboard.go("overview")
    dashboard.click("Sign out")
    for _ in range(2):
        dashboard.sees("Sign in by a link")
        assert dashboard.page.get_by_label("Password").count() == 0
        dashboard.page.reload()


def test_an_ended_session_leads_to_the_sign_in_and_back(dashboard: Dashboard, api: FakeAPI) -> None:
    """The place that was asked for is shown after the user has signed in again."""
    dashboard.go("listeners")
    api.signed_in = False
    dashboard.expected.append("status of 401")
    dashboard.go("bans")
    dashboard.sees("Your session is over")
    dashboard.fill("User name", "operator")
    dashboard.fill("Password", "right")
    dashboard.click("Sign in")
    dashboard.sees("too many failures")


def test_signing_out_ends_the_session(dashboard: Dashboard, api: FakeAPI) -> None:
    dashboard.go("overview")
    dashboard.click("Sign out")
    dashboard.sees("You have signed out.")
    assert api.signed_in is False


def test_a_late_refusal_does_not_follow_a_sign_out(dashboard: Dashboard) -> None:
    """A call that was under way gets 401. The page still says that the user has signed out."""
    held: list[Any] = []
    dashboard.go("overview")
    dashboard.page.route("**/retainer/tree*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks functions, not methods of lists
    with dashboard.page.expect_request("**/retainer/tree*"):
        dashboard.page.evaluate("() => { location.hash = '#/retained/tree'; }")
    dashboard.click("Sign out")
    dashboard.sees("You have signed out.")
    dashboard.expected.append("status of 401")
    with dashboard.page.expect_response("**/retainer/tree*"):
        held[0].fulfill(status=401, json={"title": "Unauthorized", "detail": "there is no session"})
    dashboard.page.evaluate("() => new Promise(requestAnimationFrame)")
    dashboard.sees("You have signed out.")
