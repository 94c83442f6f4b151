"""A real broker with a damaged database, which it refuses or puts into quarantine."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.faults.results import Result
from tests.faults.storm import retained
from tests.processes import BrokerProcess
from tests.storage.sqlite.logs import torn, written
from tests.storage.sqlite.ruins import PAGE

MESSAGES = 3000

#: the first byte of an inner page of a table without row ids, see https://www.sqlite.org/fileformat2.html#b_tree_pages
_INNER_PAGE = 0x02
#: more messages of this size are on no page
_MOST_OF_A_LEAF = 60

#: returns damaged contents of a file
Damage = Callable[[bytes, random.Random], bytes]


def logs(directory: Path, tries: int) -> Result:
    """Tear a write-ahead log at many positions, and expect exactly the commits before that position."""
    result = Result("log torn", "sqlite")
    crashed = written(directory, 60)
    chance = random.Random(3)
    for number in range(tries):
        position = chance.randrange(crashed.length - 8)
        garbage = chance.randbytes(chance.choice((8, 64, 4096))) if number % 2 else b""
        kept = torn(crashed, directory / "torn", position, garbage)
        expected = crashed.commits_before(position)
        result.expect(kept == expected, f"torn at {position}: {kept} commits are left of {expected}")
        result.tried += 1
    result.figures["commits"] = len(crashed.ends)
    return result


def truncated(data: bytes, chance: random.Random) -> bytes:
    """Cut the file."""
    return data[: chance.randrange(len(data) // 4, len(data))]


def header_gone(data: bytes, chance: random.Random) -> bytes:
    """Overwrite the header."""
    return chance.randbytes(100) + data[100:]


def zeros(data: bytes, _chance: random.Random) -> bytes:
    """Overwrite the file with zeros, as some file systems do after a power failure."""
    return bytes(len(data))


def pages_gone(data: bytes, chance: random.Random) -> bytes:
    """Overwrite some pages in the middle of the retained messages, which a start does not read: it reads both ends."""
    damaged = bytearray(data)
    pages = _retained_pages(data)
    ends = {*_way(data, pages[0], last=False), *_way(data, pages[0], last=True)}
    for page in chance.sample([page for page in pages if page not in ends], 4):
        damaged[page * PAGE : (page + 1) * PAGE] = b"\x5a" * PAGE
    return bytes(damaged)


def _retained_pages(data: bytes) -> list[int]:
    """Return the pages of the table of retained messages (the first page of the file is 0), beginning with its root."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])  # as without a write-ahead log, which memory has not
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'retained'").fetchall()
    pages = [root - 1]
    for page in pages:  # grows meanwhile
        pages += _children(data, page)
    return pages


def _children(data: bytes, page: int) -> list[int]:
    """Return the pages below an inner page of a tree, in their order; none below a leaf."""
    at = page * PAGE
    if data[at] != _INNER_PAGE:
        return []
    cells = int.from_bytes(data[at + 3 : at + 5], "big")
    starts = (int.from_bytes(data[at + 12 + 2 * cell :][:2], "big") for cell in range(cells))
    pointers = (*(at + start for start in starts), at + 8)
    return [int.from_bytes(data[pointer : pointer + 4], "big") - 1 for pointer in pointers]


def _way(data: bytes, root: int, *, last: bool) -> Iterator[int]:
    """Yield the pages from the root to the first or the last leaf."""
    below = [root]
    while below:
        page = below[-1 if last else 0]
        yield page
        below = _children(data, page)


def at_stake(sound: bytes, damaged: bytes) -> int:
    """Return the most messages that damaged pages can cost: all of a leaf, and all of the leaves below an inner page.

    SQLite reaches a leaf through its inner page only. The first byte of a page tells its type, and the two bytes at 3
    the number of its cells; an inner page has one child more than cells.
    """
    total = 0
    for at in range(0, min(len(sound), len(damaged)), PAGE):
        if sound[at : at + PAGE] != damaged[at : at + PAGE]:
            cells = int.from_bytes(sound[at + 3 : at + 5], "big") if sound[at] == _INNER_PAGE else 0
            total += (cells + 1) * _MOST_OF_A_LEAF + cells
    return total


DAMAGES: tuple[Damage, ...] = (truncated, header_gone, zeros, pages_gone)


def quarantines(directory: Path, damages: Sequence[Damage] = DAMAGES) -> Result:
    """Damage the database of a broker in different ways, and expect a refusal or, if configured, a quarantine."""
    result = Result("file damaged", "sqlite")
    data = directory / "data"
    database = data / "holdfast.db"
    sound = _fill(directory)
    (directory / "quarantine.toml").write_text('storage.on_corruption = "quarantine"\n')
    chance = random.Random(4)
    saved: dict[str, int] = {}
    for damage in damages:
        shutil.rmtree(data)
        data.mkdir()
        damaged = damage(sound, chance)
        stake = at_stake(sound, damaged)
        database.write_bytes(damaged)
        if damage is pages_gone:
            _find_damage(directory, result)
            damaged = database.read_bytes()
        _refused(directory, result, damage.__name__)
        result.expect(database.read_bytes() == damaged, f"{damage.__name__}: the file was changed")
        broker = BrokerProcess(directory, "--config", "quarantine.toml")
        try:
            broker.start()
            (aside,) = [file for file in data.glob("*.corrupt-*") if not file.name.endswith(("-wal", "-shm"))]
            result.expect(aside.read_bytes() == damaged, f"{damage.__name__}: the file in quarantine was changed")
            found = retained(broker.port)
            saved[damage.__name__] = min(len(found), saved.get(damage.__name__, MESSAGES))
            if damage is pages_gone:
                least = MESSAGES - stake
                result.expect(len(found) >= least, f"only {len(found)} messages were saved, expected {least}")
            result.expect(all(topic == f"kept/{value:04}" for topic, value in found.items()), "garbage is retained")
            result.expect(
                "the damaged database is now" in "\n".join(broker.lines), "the log does not report the quarantine"
            )
            status, errors = broker.stop()
            result.expect((status, errors) == (0, ""), f"the broker ends with status {status}: {errors[:300]}")
        finally:
            broker.end()
        result.tried += 1
    result.figures = {f"saved ({name})": f"{count}/{MESSAGES}" for name, count in saved.items()}
    return result


def _fill(directory: Path) -> bytes:
    broker = BrokerProcess(directory)
    try:
        broker.start()
        client = RawClient(broker.port, "publisher")
        client.send(
            *(p.Publish(f"kept/{n:04}", b"%d" % n + b" " * 100, 1, True, False, n + 1) for n in range(MESSAGES))
        )
        packets = client.packets()
        for _ in range(MESSAGES):
            assert isinstance(next(packets), p.Puback)
        assert broker.stop() == (0, "")
    finally:
        broker.end()
    return (directory / "data" / "holdfast.db").read_bytes()


def _find_damage(directory: Path, result: Result) -> None:
    """Let a broker find the damage, and expect that it goes on without acknowledging retained messages."""
    broker = BrokerProcess(directory)
    try:
        broker.start()
        reader = RawClient(broker.port, "reader", 5)
        reader.send(p.Subscribe(2, (p.SubscriptionRequest("#"),)))
        result.expect(any(isinstance(packet, p.Disconnect) for packet in reader.packets()), "the replay seems complete")
        broker.wait_for("the database is damaged")
        publisher = RawClient(broker.port, "publisher", 5)
        publisher.send(p.Publish("kept/new", b"1", 1, True, False, 1))
        answer = next(publisher.packets())
        refused = isinstance(answer, p.Puback) and answer.reason_code == 0x83
        result.expect(refused, f"the answer is {answer}")
        publisher.send(p.Publish("kept/new", b"", 0, True))
        status, errors = broker.stop()
        result.expect((status, errors) == (0, ""), f"the broker ends with status {status}: {errors[:300]}")
    finally:
        broker.end()


def _refused(directory: Path, result: Result, damage: str) -> None:
    broker = BrokerProcess(directory)
    broker.launch()
    status, errors = broker.wait()
    result.expect(status == 1, f"{damage}: the broker ends with status {status}")
    result.expect(len(errors.strip().splitlines()) == 1, f"{damage}: the broker prints {errors[:300]!r}")
    result.expect("storage.on_corruption" in errors, f"{damage}: the message names no remedy")
    result.expect("Traceback" not in errors + "\n".join(broker.lines), f"{damage}: there is a traceback")
