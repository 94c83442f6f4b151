"""New certificates while the broker runs: all of them or none, for new connections only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast.transports.tls import turns_of_handshakes
from holdfast.transports.tls_files import KeyPair, TLSSettings
from holdfast.transports.tls_reloading import INTERVAL, CertificateReloads, ListenerTLS, Loaded, load
from tests.certificates import Authority
from tests.logs import logged

DAY = 86400.0


class Reloads:
    """Two listeners whose files are looked at."""

    def __init__(self, folder: Path, days: float = 90) -> None:
        self.folder = folder
        self.authority = Authority()
        self.clock = Clock()
        self.moved = 0.0
        self.builds = 0
        self.listeners = [self._listener("a", days), self._listener("b", days)]
        self.service = CertificateReloads(self.listeners, clock=self.clock, now=self.now, run=self._run)

    def now(self) -> float:
        return time.time() + self.moved

    def _listener(self, name: str, days: float) -> ListenerTLS:
        self.renew(name, days)
        pair = KeyPair("", self.folder / f"{name}.pem", self.folder / f"{name}.key")
        loaded = load(TLSSettings(pairs=(pair,)), self.now())
        return ListenerTLS(name, loaded, turns_of_handshakes(self.clock), self.now)

    def _run(self, build: Callable[[], list[Loaded]]) -> Deferred[list[Loaded]]:
        self.builds += 1
        done: Deferred[Any] = succeed(None)
        return done.addCallback(lambda _: build())

    def renew(self, name: str, days: float = 90) -> None:
        self.authority.issue(name, [f"{name}.example"], days=days).write(self.folder, name)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(INTERVAL)

    @property
    def contexts(self) -> list[object]:
        return [listener.loaded.contexts for listener in self.listeners]


@pytest.fixture
def reloads(tmp_path: Path) -> Reloads:
    made = Reloads(tmp_path)
    made.service.startService()
    return made


def test_changed_files_are_taken_at_the_second_look(reloads: Reloads) -> None:
    before = reloads.contexts
    reloads.look(3)
    assert reloads.builds == 0
    reloads.renew("a")
    reloads.look()
    assert reloads.contexts == before
    reloads.look()
    assert reloads.contexts[0] is not before[0]
    reloads.look(3)
    assert reloads.builds == 1


def test_a_renewal_is_not_taken_in_its_middle(reloads: Reloads) -> None:
    """certbot replaces the certificate and the key one after the other."""
    with logged() as events:
        key = (reloads.folder / "a.key").read_bytes()
        reloads.renew("a")
        renewed = (reloads.folder / "a.key").read_bytes()
        (reloads.folder / "a.key").write_bytes(key)
        reloads.look()
        (reloads.folder / "a.key").write_bytes(renewed)
        reloads.look(2)
    assert reloads.builds == 1
    assert not [event for event in events if event["log_level"].name == "error"]


def test_a_bad_file_changes_nothing_and_is_told_once(reloads: Reloads) -> None:
    before = reloads.contexts
    with logged(CertificateReloads) as events:
        reloads.renew("a")
        (reloads.folder / "b.key").write_text("nothing")
        reloads.look(6)
    assert reloads.contexts == before
    assert [event["problem"] for event in events] == [
        f"listeners.b.tls.key: {reloads.folder / 'b.key'} has no private key in PEM form"
    ]
    reloads.renew("b")
    reloads.look(2)
    assert all(new is not old for new, old in zip(reloads.contexts, before, strict=True))


def test_a_reload_on_demand_tells_the_problems(reloads: Reloads) -> None:
    before = reloads.contexts
    results: list[list[str]] = []
    reloads.service.reload().addCallback(results.append)
    assert results == [[]]
    assert reloads.contexts[0] is not before[0]
    (reloads.folder / "a.pem").unlink()
    with logged(CertificateReloads):
        reloads.service.reload().addCallback(results.append)
    assert results[1] == [f"listeners.a.tls.certificate: there is no file {reloads.folder / 'a.pem'}"]


def test_a_stopped_service_looks_no_longer(reloads: Reloads) -> None:
    reloads.service.stopService()
    assert not reloads.clock.getDelayedCalls()


@pytest.mark.parametrize(("days", "warned"), [(22, 0), (20, 2), (-1, 2)])
def test_the_log_warns_of_certificates_that_expire_soon(tmp_path: Path, days: float, warned: int) -> None:
    made = Reloads(tmp_path, days)
    with logged(ListenerTLS) as events:
        made.service.startService()
    assert sum(event["log_level"].name == "warn" for event in events) == warned
    assert sum("days left" in event["log_format"] for event in events) == 2
    made.service.stopService()


def test_the_warning_comes_back_every_day(tmp_path: Path) -> None:
    made = Reloads(tmp_path, 22)
    made.service.startService()
    made.moved = 2 * DAY
    with logged(ListenerTLS) as events:
        made.clock.pump([INTERVAL] * (int(DAY / INTERVAL) + 1))
    assert [event["message"] for event in events] == [
        f"{tmp_path / name}.pem expires in 20 days" for name in ("a", "b")
    ]
    made.service.stopService()


def test_contexts_are_built_anew_each_day(reloads: Reloads) -> None:
    """Their keys for the tickets of resumed sessions change with them, though the files stay."""
    before = reloads.contexts
    reloads.clock.advance(DAY)
    assert all(new is not old for new, old in zip(reloads.contexts, before, strict=True))
    assert reloads.builds == 1


def test_with_files_that_cannot_be_used_the_old_contexts_stay_and_the_warnings_come(tmp_path: Path) -> None:
    reloads = Reloads(tmp_path, days=10)
    before = reloads.contexts
    reloads.service.startService()
    (tmp_path / "a.pem").write_text("no certificate")
    with logged() as events:
        reloads.clock.advance(DAY)
    told = [event.get("message", "") for event in events]
    assert reloads.contexts == before
    assert sum("expires in" in message for message in told) == 2
