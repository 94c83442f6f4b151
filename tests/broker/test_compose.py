"""The composition of the broker."""

from __future__ import annotations

import gc
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor

from holdfast.admin.http.identities import Identities
from holdfast.broker.compose import compose_broker
from holdfast.broker.service import BrokerService
from holdfast.config import ConfigError, default, load
from holdfast.identity.addresses import Peer


def test_building_the_broker_changes_nothing_outside_of_it(tmp_path: Path) -> None:
    """No setting of the process, no clock of the reactor, no file."""
    before = (sys.getswitchinterval(), gc.get_threshold(), reactor.seconds)
    config = default().override([], str(tmp_path / "data"), None, allow_anonymous=True, cwd=tmp_path)
    broker = compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)
    assert isinstance(broker, BrokerService)
    assert before == (sys.getswitchinterval(), gc.get_threshold(), reactor.seconds)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_aware", [False, True])
def test_only_one_key_makes_the_broker_sparkplug_aware(tmp_path: Path, is_aware: bool) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[retainer]\nsparkplug_aware = true\n" if is_aware else "")
    config = load(file).override([], str(tmp_path / "data"), None, allow_anonymous=True, cwd=tmp_path)
    broker = compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)
    assert (broker._registry._router.sparkplug is not None) is is_aware


def test_hooks_are_built_as_configured_and_their_problems_named(tmp_path: Path) -> None:
    """A secret that cannot be read is a problem of its key, and is not shown."""
    file = tmp_path / "holdfast.toml"
    text = '[[hooks]]\nname = "a"\nurl = "https://a.example/x"\nretained = ["#"]\nalarms = true\n'
    file.write_text(text)

    def build() -> BrokerService:
        config = load(file).override([], str(tmp_path / "data"), None, allow_anonymous=True, cwd=tmp_path)
        return compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)

    control: Any = build()._control
    assert "/api/v5/hooks" in {route.path for route in control._site.most_bytes.__self__.routes}
    for key, says in (
        ('secret = "file:missing"', "hooks.1.secret: "), ('ca = "missing.pem"', "hooks.1.ca: "),
        ('[retainer.changes]\nenable = false', "hooks.1.retained: "),
    ):  # fmt: skip
        file.write_text(f"{text}{key}\n")
        with pytest.raises(ConfigError, match=says):
            build()


def test_without_hooks_nothing_of_them_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; from twisted.internet import reactor; from holdfast.broker.compose import compose_broker; "
        "from holdfast.config import default; from pathlib import Path; "
        f"config = default().override([], {str(tmp_path)!r}, None, allow_anonymous=True, cwd=Path({str(tmp_path)!r})); "
        "compose_broker(config, reactor=reactor, now=lambda: 1, announce=print); "
        "print([name for name in sys.modules if name.startswith(('holdfast.hooks', 'holdfast.broker.hooks'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("check", "judged"), [("true", [False]), ('"strict"', [True]), ("false", [])])
def test_replays_judge_publishers_by_the_rules(tmp_path: Path, check: str, judged: list[bool]) -> None:
    """As ``authorization.check_retain_source`` says: not, users only, or guests too; and by the broker's authorizer."""
    rules, file = tmp_path / "rules.toml", tmp_path / "holdfast.toml"
    rules.write_text('[[rule]]\naction = ["publish", "retain"]\ntopics = ["a"]\nallow = true\n')
    rules.chmod(0o600)
    file.write_text(
        f"[authorization]\nsources = ['rules']\ncheck_retain_source = {check}\n"
        f"[authorization.rules]\ntype = 'file'\npath = '{rules}'\n"
    )
    config = load(file).override([], str(tmp_path / "data"), None, allow_anonymous=True, cwd=tmp_path)
    broker = compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)
    sources = broker._retained.sources
    assert sources is not None
    assert [sources.rule.guests for _ in range(sources.rule.enabled)] == judged
    assert broker._registry._authorizer is sources.rule.authorizer


def test_failed_logins_to_the_api_count_as_those_of_clients(tmp_path: Path) -> None:
    """For the alarm and the metrics, up to the ban of their address."""
    config = default().override([], str(tmp_path / "data"), None, allow_anonymous=True, cwd=tmp_path)
    broker = compose_broker(config, reactor=reactor, now=lambda: 1, announce=lambda _: None)
    admin: Any = broker._admin
    identities: Identities = admin._site.identify.__self__
    for _ in range(20):
        identities.wrong(Peer(ip_address("192.0.2.66"), 5555), "alice", "wrong")
    counters = broker._registry._counters
    assert (counters.logins_failed, counters.addresses_banned) == (20, 1)


def test_a_start_imports_what_a_broker_with_an_sqlite_file_uses() -> None:
    """Each module costs half a millisecond of every start, a library some tens of them."""
    program = (
        "import sys, holdfast.tap, holdfast.broker.compose; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    unused = {
        "alembic",
        "argon2",
        "asn1crypto",
        "click",
        "jwt",
        "mako",
        "prometheus_client",
        "psycopg",
        "pyarrow",
        "rich",
        "scramp",
        "sqlalchemy",
    }
    assert not unused & set(found.stdout.split())


def test_a_broker_without_bridges_imports_nothing_of_them() -> None:
    program = (
        "import sys, holdfast.broker.compose as c; from holdfast.config import default; from twisted.internet import"
        " reactor; c.compose_broker(default(), reactor=reactor, now=lambda: 0, announce=print);"
        " print(*[name for name in sys.modules if name.startswith('holdfast.bridges')])"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
