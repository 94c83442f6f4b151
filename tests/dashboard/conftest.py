"""One browser and one stand-in of the API for all tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.dashboard import Dashboard
from tests.dashboard.fake_api import FakeAPI, serving

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


@pytest.hookimpl(tryfirst=True)  # before the workers look at groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this folder on one worker, which then starts one browser.

    Other tests have browsers of their own, and a process can have one at a time. So this one ends with the folder.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("dashboard"))


@pytest.fixture(scope="package")
def served() -> Iterator[FakeAPI]:
    with serving() as api:
        yield api


@pytest.fixture
def api(served: FakeAPI) -> FakeAPI:
    """The stand-in, without calls and changes of other tests."""
    served.reset()
    return served


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def dashboard(browser: Any, api: FakeAPI) -> Iterator[Dashboard]:
    """The dashboard on a screen of usual size. It must not complain on the console."""
    with Dashboard.opened(browser, api) as dashboard:
        yield dashboard
        dashboard.check()
