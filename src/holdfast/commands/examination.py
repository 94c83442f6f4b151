"""The examination: all checks, one after the other. A check that itself fails is a finding too."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import shutil
import socket
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from enum import Enum
from errno import EADDRINUSE, EADDRNOTAVAIL
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from holdfast.changes.comparison import compare
from holdfast.changes.moments import HistoryUnavailable
from holdfast.changes.telemetry_table import missing_messages
from holdfast.config import Config, ConfigError
from holdfast.config.document import file_states
from holdfast.config.sections.endpoints import ServerEndpoint
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.core.connection_limits import ProcessConnections
from holdfast.core.terminal import counted, printable
from holdfast.storage.committer import read_totals
from holdfast.storage.database import Durability
from holdfast.storage.location import StoreUnusable, shown
from holdfast.storage.maintenance import database_at
from holdfast.storage.revisions import TIME_SHIFT
from holdfast.storage.schema import newest_version, own_version
from holdfast.storage.sqlite import is_mended, verdict
from holdfast.transports.listening import BACKLOG

if TYPE_CHECKING:
    from holdfast.transports.tls_files import CertifiedKey


# A finding: what is wrong, how bad it is, and what to do.


class Weight(Enum):
    """How bad a finding is."""

    PROBLEM = "problem"  #: it loses data, lets strangers in, or will stop the broker
    ADVICE = "advice"  #: it is less urgent


@frozen
class Finding:
    """One finding. ``subject`` is a file, a key of the configuration, or a part of the machine."""

    weight: Weight
    subject: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.weight.value}: {self.subject}: {self.message}; {self.remedy}"


#: looks at one thing, and yields what is wrong with it
Check = Callable[[Config], Iterator[Finding]]


def problem(subject: object, message: str, remedy: str) -> Finding:
    """Return a finding that the operator must act on."""
    return Finding(Weight.PROBLEM, str(subject), message, remedy)


def advice(subject: object, message: str, remedy: str) -> Finding:
    """Return a finding that is less urgent."""
    return Finding(Weight.ADVICE, str(subject), message, remedy)


# The certificates of the listeners: their end, their names, and the chains that are sent to clients.


#: days before the end of a certificate that are too few, and those that are few
_URGENT_DAYS, _EARLY_DAYS = 7, 21

_REMEDY = "correct it, see docs/operator/tls.md"
_RENEW = "renew it; a running broker notices the new file"


def certificates(config: Config, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield findings about the certificates of all listeners with TLS."""
    if config.admin.tls is None and all(each.tls is None for each in config.listeners.values()):
        return
    from holdfast.transports.tls_reloading import load_all, table_of

    try:
        loaded = load_all(config, now())
    except ConfigError as error:
        for unusable in error.problems:
            yield problem(unusable.key or unusable.file, unusable.message, f"the broker does not start: {_REMEDY}")
        return
    for name, tls in loaded.items():
        for warning in tls.contexts.warnings:
            yield problem(f"{'.'.join(table_of(name))}.{warning.option}", warning.message, _REMEDY)
        for key in tls.contexts.keys:
            yield from _end(key, now())
            yield from _names(key)
            yield from _chain(key)


def _end(key: CertifiedKey, now: float) -> Iterator[Finding]:
    days = key.days_left(now)
    if days <= 0:
        yield problem(key.pair.certificate, "it has expired: clients refuse it", _RENEW)
    elif days <= _URGENT_DAYS:
        yield problem(key.pair.certificate, f"it expires in {days:.0f} days", _RENEW)
    elif days <= _EARLY_DAYS:
        yield advice(key.pair.certificate, f"it expires in {days:.0f} days", _RENEW)


def _names(key: CertifiedKey) -> Iterator[Finding]:
    from cryptography import x509

    try:
        key.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        yield advice(
            key.pair.certificate,
            "it has no alternative name: most clients look for the name of the host there only",
            "have it issued anew with subjectAltName = DNS:the name that clients use",
        )


def _chain(key: CertifiedKey) -> Iterator[Finding]:
    for below, above in zip(key.chain, key.chain[1:], strict=False):
        try:
            below.verify_directly_issued_by(above)
        except Exception:  # noqa: BLE001 - a wrong name, a wrong signature, or a kind of key that is not known
            yield problem(
                key.pair.certificate,
                f"the certificate of {below.subject.rfc4514_string()!r} is not issued by the next one in the file,"
                f" {above.subject.rfc4514_string()!r}: clients cannot follow the chain",
                "put the certificates in order: the broker's first, then the one that issued it, and so on",
            )
            return


# The clock of the machine: the expiry of messages, tokens and certificates depends on it.


#: adjtimex(2): nobody keeps the clock in step
_UNSYNCHRONISED = 5
#: bytes: more than struct timex of any system
_TIMEX = 512
#: milliseconds that nodes' clocks may differ
_TOLERANCE = 60_000


def synchronised(_config: Config, state: Callable[[], int] | None = None) -> Iterator[Finding]:
    """Yield a finding if the kernel says that nothing keeps the clock in step."""
    if (state or _kernel_state)() == _UNSYNCHRONISED:
        yield advice(
            "clock", "nothing keeps it in step with the time of the world", "start systemd-timesyncd, chrony or ntpd"
        )


def not_set_back(config: Config, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield a finding if the newest change in the database is later than now."""
    database = database_at(config.storage.url, Durability.FULL, 0, 1.0)
    try:
        database.check_present()
        with database.explaining_errors():
            connection = database.connect_reader()
            try:
                newest = read_totals(connection.cursor()).revision_mark >> TIME_SHIFT
            finally:
                connection.close()
    except StoreUnusable:  # the check of the database tells it
        return
    ahead = newest - now() * 1000
    if ahead > _TOLERANCE:
        yield problem(
            "clock",
            f"it is {ahead / 1000:,.0f} s before the newest change in the database, so it was set back",
            "set the clock; until then, messages expire late",
        )


def _kernel_state() -> int:
    """Return the state of the kernel's clock, -1 if the system does not tell it."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX)))
    except (AttributeError, OSError):  # not Linux
        return -1


# What would end the start of a broker, or would let it wait: its database and its ports.
#
# Beside a running broker only the version of SQLite is looked at: the broker has its ports, and judges its database.


#: seconds to wait for a locked file or a server
_PATIENCE = 5.0
_STOPS = "the broker does not start"


def sqlite_version(config: Config) -> Iterator[Finding]:
    """Yield a finding if this process's SQLite may have the WAL-reset bug."""
    if config.storage.url.startswith("sqlite:") and not is_mended():
        yield advice("SQLite", verdict(), "nothing is at risk; with a newer SQLite some commits are faster")


def database(config: Config) -> Iterator[Finding]:
    """Yield a finding if no broker can start with the database. One that does not exist yet is fine.

    These are the checks of a start, but they create and change nothing.
    """
    url = config.storage.url
    if _does_not_exist(url):
        return
    found = database_at(url, Durability.FULL, 0, _PATIENCE)
    try:
        found.inspect()
        with found.explaining_errors(), found.reading_engine().begin() as connection:
            version = own_version(connection.connection, found)
        if version == newest_version():
            found.check_readable()
    except StoreUnusable as error:
        yield problem(shown(url), str(error).removeprefix(f"{found.location}: "), "see docs/operator/faults.md")
        return
    if version not in (None, newest_version()):
        yield problem(
            shown(url),
            f"it has the older schema {version}, so this version of the broker does not start",
            f"stop the broker, take a backup and run: {config.upgrade_command}",
        )


def _does_not_exist(url: str) -> bool:
    return url.startswith("sqlite:") and not Path(url.removeprefix("sqlite:///")).exists()


#: How the history differs from a retained message, by the verdict about its topic.
_VERDICTS = {"missing": "not in the history", "different": "another message there", "only": "retained only there"}
#: Topics in a transaction, which reads all of them at one moment, and in a finding.
_TOPICS, _EXAMPLES = 5_000, 5
_READING = {"sqlite": "BEGIN", "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}


def history_agrees(config: Config) -> Iterator[Finding]:
    """Yield a finding if the history does not lead to the retained messages. It reads both, while a broker may run."""
    url = config.storage.url
    if not config.retainer.history.enable or _does_not_exist(url):
        return
    found = database_at(url, Durability.FULL, 0, _PATIENCE)
    counts, examples = Counter[str](), list[str]()
    after: str | None = ""
    try:
        with found.explaining_errors(), closing(found.connect_reader()) as connection:
            while after is not None:
                cursor = connection.cursor()
                cursor.execute(_READING[found.dialect])
                part = compare(cursor, after, _TOPICS, time.time_ns() // 1_000_000)
                connection.rollback()
                counts += part.counts
                examples += [f"{printable(one.topic)} ({_VERDICTS[one.verdict]})" for one in part.found]
                del examples[_EXAMPLES:]
                after = part.after
    except HistoryUnavailable as error:
        yield advice(shown(url), f"the history cannot be compared: {error}", "run this again later")
        return
    except StoreUnusable as error:
        yield problem(shown(url), str(error).removeprefix(f"{found.location}: "), "see docs/operator/faults.md")
        return
    wrong = sum(counts[verdict] for verdict in _VERDICTS)
    if wrong:
        yield problem(
            shown(url),
            f"{counted(wrong, 'topic')} of {sum(counts.values())} differ between the retained messages and the "
            f"history: {', '.join(examples)}",
            "the retained messages count; a time in the past may be answered wrongly. Report it, with a backup",
        )


def telemetry_is_whole(config: Config) -> Iterator[Finding]:
    """Yield a finding if recorded messages without RETAIN are missing among the others: only the oldest ones may go."""
    url = config.storage.url
    if _does_not_exist(url):
        return
    found = database_at(url, Durability.FULL, 0, _PATIENCE)
    try:
        with found.explaining_errors(), closing(found.connect_reader()) as connection:
            cursor = connection.cursor()
            cursor.execute(_READING[found.dialect])
            missing, beyond = missing_messages(cursor)
            connection.rollback()
    except StoreUnusable as error:
        yield problem(shown(url), str(error).removeprefix(f"{found.location}: "), "see docs/operator/faults.md")
        return
    if missing or beyond:
        yield problem(
            shown(url),
            f"of the recorded messages without RETAIN, {missing} are missing among the others, and {beyond} are not "
            "known to the table's state, as after a change by hand",
            "the broker goes on; a lake may lack them. Report it, with a backup",
        )


def ports(config: Config) -> Iterator[Finding]:
    """Yield a finding for each endpoint that a broker could not listen on."""
    for name, listener in config.listeners.items():
        yield from _endpoint(f"listeners.{name}", listener.endpoint, listener.server_endpoint)
    admin = config.admin.server_endpoint
    if admin is not None:
        for finding in _endpoint("admin", config.admin.endpoint, admin):
            yield advice(finding.subject, f"{finding.message.partition(';')[0]}; the broker runs without the API",
                         finding.remedy) if config.admin.is_default_endpoint else finding  # fmt: skip


def late_listeners(config: Config, names: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each of these listeners, which a running broker has not opened: the reason, if it lasts."""
    for name in names:
        listener = config.listeners.get(name)
        found = (
            []
            if listener is None
            else list(_endpoint(f"listeners.{name}", listener.endpoint, listener.server_endpoint))
        )
        yield from found or [problem(f"listeners.{name}", "it does not listen yet", "look at the broker's log")]


def _endpoint(key: str, text: str, endpoint: ServerEndpoint) -> Iterator[Finding]:
    try:
        if endpoint.type == "unix":
            _try_path(Path(endpoint.parameters["address"]))
        elif endpoint.type == "tcp" and not endpoint.takes_free_port:
            _try_port(endpoint.parameters.get("interface", ""), int(endpoint.parameters["port"]))
    except OSError as error:
        late = isinstance(error, socket.gaierror) or error.errno == EADDRNOTAVAIL
        reason = "another program uses it" if error.errno == EADDRINUSE else str(error.strerror)
        effect = "the listener waits for its address" if late else _STOPS
        remedy = "configure the address on this machine" if late else "stop the other program, or name another endpoint"
        yield problem(f"{key}.endpoint", f"{text}: {reason}; {effect}", f"{remedy}; then run this again")


def _try_port(host: str, port: int) -> None:
    """Take a port as a listener does, and give it back. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE  # noqa: S104 - what a listener takes
    )[0]  # fmt: skip
    with closing(socket.socket(family, kind, protocol)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)


def _try_path(path: Path) -> None:
    """Tell whether a socket can be made in the file system. One that nobody serves is replaced. Raises OSError."""
    with closing(socket.socket(socket.AF_UNIX)) as trial:
        try:
            trial.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise FileNotFoundError(0, f"no folder that can be written: {path.parent}") from None
        else:
            raise OSError(EADDRINUSE, "in use")


# The disk of the data directory: its room, its kind, and how long it takes to sync.


#: bytes: with less, a busy broker fills the disk before anybody looks
_ROOM = 1 << 30
_SYNCS = 15
_PAGE = b"\0" * 4096
#: seconds: a PUBACK waits for one sync, unless other publishers share it
_SLOW_SYNC = 0.02
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "glusterfs", "ceph"}
_MOUNTS = Path("/proc/self/mounts")


def room(config: Config) -> Iterator[Finding]:
    """Yield a finding if the disk is nearly full."""
    folder = _existing(config.data_dir)
    usage = shutil.disk_usage(folder)
    if usage.free < _ROOM:
        yield problem(
            folder,
            f"its disk has {usage.free / (1 << 20):,.0f} MB left; on a full disk, changes are refused",
            "make room, or move node.data_dir to another disk",
        )


def kind(config: Config, mounts: Path = _MOUNTS) -> Iterator[Finding]:
    """Yield a finding if an SQLite database is on a network's file system, where its locks may fail."""
    if not config.storage.url.startswith("sqlite:") or not mounts.exists():
        return
    folder = _existing(config.data_dir)
    system = _file_system(folder, mounts.read_text())
    if system in _NETWORK:
        yield problem(
            folder,
            f"it is on a file system of type {system}, where locks can fail: the database can be damaged",
            "move node.data_dir to a local disk, or use Postgres",
        )


def sync_time(config: Config, measure: Callable[[Path], float] | None = None) -> Iterator[Finding]:
    """Yield a finding if a sync takes long. It writes a small file into the data directory, and deletes it."""
    folder = config.data_dir
    if config.storage.durability != "full" or not folder.is_dir() or not os.access(folder, os.W_OK):
        return
    seconds = (measure or _sync_time)(folder)
    if seconds > _SLOW_SYNC:
        yield advice(
            folder,
            f"a sync of its disk takes {seconds * 1000:.0f} ms: each commit, and its acknowledgements, waits for one",
            'use a faster disk, or storage.durability = "process" if a power failure may lose the last commits',
        )


def _sync_time(folder: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            started = perf_counter()
            file.write(_PAGE)
            file.flush()
            os.fsync(file.fileno())
            times.append(perf_counter() - started)
    return median(times)


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def _file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that a path is on."""
    found = [line.split() for line in mounts.splitlines()]
    above = [words for words in found if len(words) > 2 and path.is_relative_to(words[1].replace("\\040", " "))]
    return max(above, key=lambda words: len(words[1]), default=["", "", ""])[2]


# What strangers can reach: listeners beyond this machine, and what limits those who come through them.


_EXAMPLE = "take it from etc/examples/internet.toml"


def exposed(config: Config) -> Iterator[tuple[str, ListenerConfig]]:
    """Yield the listeners that other machines can reach, with their keys."""
    for name, listener in config.listeners.items():
        if not listener.is_loopback:
            yield f"listeners.{name}", listener


def open_to_everyone(config: Config) -> Iterator[Finding]:
    """Yield a finding for each exposed listener that admits clients without authentication."""
    for key, listener in exposed(config):
        if listener.allow_anonymous:
            yield problem(
                f"{key}.allow_anonymous",
                "everyone who reaches it can connect" + ("" if _is_authorized(config) else ", and publish everything"),
                "remove it, and let clients authenticate; or give guests rules in an authorization source",
            )


def plain_text(config: Config) -> Iterator[Finding]:
    """Yield a finding for each exposed listener whose clients send their passwords in plain text."""
    for key, listener in exposed(config):
        if listener.allow_plaintext and listener.tls is None and not listener.server_endpoint.proxied:
            yield problem(
                f"{key}.allow_plaintext",
                "everyone on the way to a client can read its password and its messages",
                "give the listener a certificate: see docs/operator/tls.md",
            )


def plain_api(config: Config) -> Iterator[Finding]:
    """Yield a finding if operators send their keys to the API in plain text from other machines."""
    if not config.admin.is_loopback and config.admin.tls is None:
        yield problem(
            "admin.allow_plaintext",
            "everyone on the way to the API can read the operators' keys and passwords",
            "give it a certificate: see docs/operator/api.md",
        )


def unlimited_connections(config: Config) -> Iterator[Finding]:
    """Yield advice for each exposed listener on which one address may take all connections."""
    for key, listener in exposed(config):
        if listener.max_connections_per_address is None:
            yield advice(
                f"{key}.max_connections_per_address", "one stranger can take all connections of the process", _EXAMPLE
            )


def unlimited_users(config: Config) -> Iterator[Finding]:
    """Yield advice for each exposed listener whose users or guests may fill the broker."""
    for key, listener in exposed(config):
        limits = config.zone(listener.zone).limits
        wanted = ["max_sessions", "max_waiting_bytes", "max_retained_messages", "max_retained_bytes"]
        if listener.allow_anonymous or not config.authentication.is_configured:
            wanted += ["guests_max_sessions", "guests_max_retained_messages", "guests_max_retained_bytes"]
        missing = [option for option in wanted if getattr(limits, option) is None]
        if missing:
            table = f"zones.{listener.zone}.limits" if listener.zone else "limits"
            yield advice(
                key,
                f"one stranger can fill the broker: [{table}] leaves {', '.join(missing)} unlimited",
                f"{_EXAMPLE}, and see docs/operator/limits.md",
            )


def unlimited_memory(config: Config) -> Iterator[Finding]:
    """Yield advice if other machines can reach the broker and its memory has no limit."""
    if config.limits.memory is None and any(True for _ in exposed(config)):
        yield advice("limits.memory", "strangers can use all memory of this machine", 'set it, for example to "80%"')


def unlimited_rights(config: Config) -> Iterator[Finding]:
    """Yield a finding if clients of other machines may publish and subscribe to everything."""
    if any(True for _ in exposed(config)) and not _is_authorized(config):
        yield problem(
            "authorization",
            "no source of rules is configured, so each client may publish, clear and read everything",
            "see docs/operator/permissions.md",
        )


def _is_authorized(config: Config) -> bool:
    return bool(config.authorization.sources)


# The owners and the modes of the files: who else on this machine can read secrets, or change what the broker does.


_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def configuration_file(config: Config) -> Iterator[Finding]:
    """Yield a finding if others than its owner can change the configuration file, or a folder above it."""
    if config.file is None:
        return
    for path in (config.file, config.file.parent):
        status = path.stat()
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & _WRITABLE_BY_OTHERS and not sticky:
            yield problem(path, f"others than its owner can write to it ({_mode(status)})", f"chmod go-w {path}")


def data_directory(config: Config) -> Iterator[Finding]:
    """Yield a finding for the data directory and each file in it that others than its owner can read or write."""
    folder = config.data_dir
    if not folder.is_dir():
        return
    owner = folder.stat().st_uid
    if os.geteuid() not in (0, owner):
        yield problem(
            folder,
            f"it belongs to user {owner}, and this is user {os.geteuid()}: a broker of this user cannot use it",
            f"run this as the broker's user, or chown -R {os.geteuid()} {folder}",
        )
    for path in (folder, *sorted(folder.iterdir())):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        if status.st_mode & _OPEN_TO_OTHERS:
            yield problem(path, f"others than its owner can use it ({_mode(status)})", f"chmod go= {path}")
        if status.st_uid != owner:
            yield problem(
                path,
                f"it belongs to user {status.st_uid}, and the data directory to user {owner}: the broker may not be"
                " able to use it",
                f"chown {owner} {path}",
            )


def files_of_users(config: Config) -> Iterator[Finding]:
    """Yield findings for the files of users and passwords."""
    authentication = config.authentication
    for path in dict.fromkeys([*authentication.password_files, *authentication.scram_files]):
        yield from secret_file(config.absolute(path), "users and their passwords")


def named_files(config: Config) -> Iterator[Finding]:
    """Yield a finding for the configuration and each file named in it that the data directory's owner cannot read.

    The owner is the broker's user. It matters for root, who can read all files.
    """
    if not config.data_dir.is_dir():
        return
    status = config.data_dir.stat()
    user = status.st_uid
    if os.geteuid() != 0 or user == 0:  # the checks of each kind of file find this for the present user
        return
    groups = {status.st_gid, *_groups(user)}
    for path in (*([] if config.file is None else [config.file]), *file_states(config, os.environ)):
        if path.is_file() and not _may_read(path.stat(), user, groups):
            yield problem(
                path, f"user {user}, to whom the data directory belongs, cannot read it", f"chown {user} {path}"
            )


def _groups(user: int) -> list[int]:
    try:
        entry = pwd.getpwuid(user)
    except KeyError:  # a user that exists only while the service runs
        return []
    return os.getgrouplist(entry.pw_name, entry.pw_gid)


def _may_read(status: os.stat_result, user: int, groups: set[int]) -> bool:
    needed = stat.S_IRUSR if status.st_uid == user else stat.S_IRGRP if status.st_gid in groups else stat.S_IROTH
    return bool(status.st_mode & needed)


def secret_file(path: Path, content: str) -> Iterator[Finding]:
    """Yield a finding if the file with this secret content is open to others than its owner and its group's readers."""
    try:
        status = path.stat()
    except OSError as error:
        yield problem(path, f"{content}: it cannot be read: {error.strerror}", "create it, or correct its path")
        return
    if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        yield problem(path, f"{content}: others can use it ({_mode(status)})", f"chmod g-w,o= {path}")
    if not os.access(path, os.R_OK):
        yield problem(
            path, f"{content}: this user cannot read it", "run this as the broker's user, or change its owner"
        )


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"


# The limit of open files: each connection takes one.


#: the limit that a service for strangers should have, and the one that every system gives to each process
_USUAL, _LEAST = 65_536, 1_024
_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


def open_files(config: Config) -> Iterator[Finding]:
    """Yield a finding if the listeners allow more connections than the process may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return
    most = ProcessConnections.within(hard).most
    wanted = [listener.max_connections for listener in config.listeners.values()]
    allowed = sum(each for each in wanted if each is not None)
    remedy = "raise the hard limit of open files (LimitNOFILE= in systemd, ulimit -Hn in a shell)"
    if most is not None and allowed > most:
        yield problem(
            "open files",
            f"the listeners allow {allowed:,} connections, but {hard:,} open files suffice for {most:,}",
            f"{remedy}, or lower max_connections",
        )
    elif hard < _USUAL and None in wanted:
        weigh = problem if hard < _LEAST else advice
        yield weigh("open files", f"{hard:,} allow no more connections than {most:,}", remedy)


def backlog(_config: Config, somaxconn: Path = _SOMAXCONN) -> Iterator[Finding]:
    """Yield a finding if the kernel shortens the queue of connections that wait to be accepted."""
    try:
        longest = int(somaxconn.read_text())
    except (OSError, ValueError):  # not Linux
        return
    if longest < BACKLOG:
        yield advice(
            "net.core.somaxconn",
            f"only {longest:,} connections can wait to be accepted, so a fleet that returns at once waits longer",
            f"sysctl net.core.somaxconn={BACKLOG}",
        )


CHECKS: Sequence[Check] = (
    open_to_everyone,
    plain_text,
    plain_api,
    unlimited_rights,
    unlimited_connections,
    unlimited_users,
    unlimited_memory,
    certificates,
    configuration_file,
    data_directory,
    files_of_users,
    named_files,
    open_files,
    backlog,
    room,
    kind,
    sync_time,
    sqlite_version,
    database,
    ports,
    synchronised,
    not_set_back,
)

#: what takes as long as reading all retained messages
DEEP_CHECKS: Sequence[Check] = (history_agrees, telemetry_is_whole)

#: what a running broker has passed, and what it has taken
OF_A_START: Sequence[Check] = (database, ports)


def examine(config: Config, checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Yield the findings of the checks. The same finding about several subjects is one finding."""
    found: dict[tuple[object, ...], Finding] = {}
    for finding in _found(config, checks):
        key = finding.weight, finding.message, finding.remedy
        before = found.get(key)
        found[key] = finding if before is None else evolve(before, subject=f"{before.subject}, {finding.subject}")
    yield from found.values()


def _found(config: Config, checks: Sequence[Check]) -> Iterator[Finding]:
    for check in checks:
        try:
            yield from check(config)
        except Exception as error:  # noqa: BLE001 - the other checks are made all the same
            message = f"this check failed: {error!r}"
            yield problem(check.__name__, message, "run this as the broker's user, or report it")
