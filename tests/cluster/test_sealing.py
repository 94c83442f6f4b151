"""Sealed datagrams: each is opened by its target, once, and by nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.sealing import OVERHEAD, Opener, Sealer, sign_of

_SECRET = b"0123456789abcdef" * 2


def _counts(opener: Opener) -> tuple[int, int, int]:
    return opener.unknown, opener.old, opener.repeated


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_the_target_opens_what_was_sealed(datagrams: list[bytes]) -> None:
    """With its origin."""
    sealer, opener = Sealer(_SECRET, "plant", 1, 7), Opener(_SECRET, "plant", 2)
    sealed = [sealer.seal(2, datagram) for datagram in datagrams]
    assert [opener.open(each) for each in sealed] == [(1, datagram) for datagram in datagrams]
    assert all(len(each) == len(datagram) + OVERHEAD for each, datagram in zip(sealed, datagrams, strict=True))


@given(st.data())
def test_an_altered_datagram_is_unknown(data: st.DataObject) -> None:
    """Whichever bit of it is another one, also of the clear part; and one that is cut."""
    sealed = Sealer(_SECRET, "plant", 1, 7).seal(2, b"hello")
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    altered = bytearray(sealed)
    altered[bit // 8] ^= 1 << bit % 8
    opener = Opener(_SECRET, "plant", 2)
    assert opener.open(bytes(altered)) is None
    assert opener.open(sealed[: data.draw(st.integers(0, len(sealed) - 1))]) is None
    assert _counts(opener) == (2, 0, 0)
    assert opener.open(sealed) == (1, b"hello")


@given(st.binary(max_size=200))
def test_other_bytes_are_unknown(data: bytes) -> None:
    """Nothing of them raises."""
    opener = Opener(_SECRET, "plant", 2)
    assert opener.open(data) is None
    assert _counts(opener) == (1, 0, 0)


@pytest.mark.parametrize(
    "sealer",
    [
        Sealer(b"x" * 32, "plant", 1, 7),
        Sealer(_SECRET, "another plant", 1, 7),
        Sealer(_SECRET, "plant", 2, 7),
    ],
    ids=["another secret", "another cluster", "this node itself"],
)
def test_those_of_strangers_are_unknown(sealer: Sealer) -> None:
    """Another secret, another cluster's, or one's own sent back."""
    opener = Opener(_SECRET, "plant", 2)
    assert opener.open(sealer.seal(2, b"hello")) is None
    assert _counts(opener) == (1, 0, 0)


def test_one_for_another_node_is_unknown() -> None:
    """A stranger cannot send it on."""
    opener = Opener(_SECRET, "plant", 2)
    assert opener.open(Sealer(_SECRET, "plant", 1, 7).seal(3, b"hello")) is None
    assert _counts(opener) == (1, 0, 0)


def test_a_repeated_one_is_refused() -> None:
    """In any order; and one that comes so late that nobody knows."""
    sealer, opener = Sealer(_SECRET, "plant", 1, 7), Opener(_SECRET, "plant", 2)
    sealed = [sealer.seal(2, b"%d" % number) for number in range(3000)]
    for number in (1, 0, 5, 4):
        assert opener.open(sealed[number]) == (1, b"%d" % number)
        assert opener.open(sealed[number]) is None
    assert opener.open(sealed[2999]) is not None
    assert opener.open(sealed[3000 - 1024]) is not None
    assert _counts(opener) == (0, 0, 4)
    assert opener.open(sealed[3000 - 1025]) is None
    assert opener.open(sealed[3]) is None
    assert _counts(opener) == (0, 0, 6)


@given(st.lists(st.integers(0, 40), max_size=60))
def test_each_is_opened_once(order: list[int]) -> None:
    """However the bus repeats and reorders."""
    sealer, opener = Sealer(_SECRET, "plant", 1, 7), Opener(_SECRET, "plant", 2)
    sealed = [sealer.seal(2, b"%d" % number) for number in range(41)]
    opened = [found[1] for number in order if (found := opener.open(sealed[number])) is not None]
    assert sorted(opened) == sorted(b"%d" % number for number in set(order))


def test_those_of_an_older_process_are_refused() -> None:
    """As soon as the newer one was heard; and those of a second process that claims the same incarnation."""
    old, new, twin = (Sealer(_SECRET, "plant", 1, incarnation) for incarnation in (7, 8, 8))
    opener = Opener(_SECRET, "plant", 2)
    late = old.seal(2, b"late")
    assert opener.open(old.seal(2, b"old")) == (1, b"old")
    assert opener.open(new.seal(2, b"new")) == (1, b"new")
    assert opener.open(late) is None
    assert opener.open(twin.seal(2, b"twin")) is None
    assert _counts(opener) == (0, 2, 0)
    assert opener.open(new.seal(2, b"more")) == (1, b"more")


def test_a_stranger_cannot_make_a_process_old() -> None:
    """What does not open changes nothing."""
    sealer, opener = Sealer(_SECRET, "plant", 1, 7), Opener(_SECRET, "plant", 2)
    assert opener.open(sealer.seal(2, b"a")) is not None
    assert opener.open(Sealer(b"x" * 32, "plant", 1, 9).seal(2, b"forged")) is None
    assert opener.open(sealer.seal(2, b"b")) == (1, b"b")


def test_processes_share_no_key() -> None:
    """Two of one node and incarnation, as after the loss of a database: the same count does not repeat a nonce."""
    one, other = (Sealer(_SECRET, "plant", 1, 7).seal(2, b"\0" * 32) for _ in range(2))
    assert one[-48:] != other[-48:]


def test_a_short_secret_is_refused() -> None:
    """With its length."""
    with pytest.raises(ValueError, match="31 bytes; at least 32"):
        Sealer(b"x" * 31, "plant", 1, 1)


def test_a_sign_tells_whether_secrets_are_the_same_and_is_no_part_of_one() -> None:
    """Of one cluster; it has 64 bits, and no key is made of it."""
    sign = sign_of(_SECRET, "plant")
    assert sign == sign_of(bytes(_SECRET), "plant") < 1 << 64
    assert len({sign, sign_of(b"x" * 32, "plant"), sign_of(_SECRET, "other")}) == 3
    assert sign.to_bytes(8, "big") not in _SECRET
