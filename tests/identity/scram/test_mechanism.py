"""The server's side of SCRAM-SHA-256, with the example of RFC 7677 and with every mistake of a client."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.interfaces import Authenticated, Challenge, Credentials, Principal
from holdfast.identity.scram import LONGEST_MESSAGE, METHOD, ScramAuthenticator, ScramExchange, Verifier, new_verifier
from holdfast.wire.reasons import ReasonCode

REFUSED = ReasonCode.NOT_AUTHORIZED
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def keys(password: bytes, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Return ClientKey and ServerKey, as RFC 5802 defines them."""
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    return hmac.digest(salted, b"Client Key", "sha256"), hmac.digest(salted, b"Server Key", "sha256")


def verifier_of_the_vector() -> Verifier:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    client_key, server_key = keys(b"pencil", salt, 4096)
    return Verifier(4096, salt, hashlib.sha256(client_key).digest(), server_key)


USERS: Mapping[str, Verifier] = {
    "user": verifier_of_the_vector(),
    "a,b=c": verifier_of_the_vector(),
    "\u00e9": verifier_of_the_vector(),
}


def begun(users: Callable[[], Mapping[str, Verifier]] = lambda: USERS) -> ScramExchange:
    authenticator = ScramAuthenticator(users, b"key", "scram", lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    exchange = authenticator.begin(METHOD, Credentials("c", "somebody", b"ignored", "default", 5))
    assert exchange is not None
    return exchange


def final(first: bytes, challenge: bytes, password: bytes = b"pencil", header: bytes = b"biws") -> bytes:
    """Return the client's last message, as RFC 5802 defines it."""
    parts = dict(part.split(b"=", 1) for part in challenge.split(b","))
    client_key, _ = keys(password, base64.b64decode(parts[b"s"]), int(parts[b"i"]))
    without = b"c=" + header + b",r=" + parts[b"r"]
    bare = first.split(b",", 2)[2]
    signature = hmac.digest(
        hashlib.sha256(client_key).digest(), b",".join((bare, challenge, without)), digest=hashlib.sha256
    )
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return without + b",p=" + base64.b64encode(proof)


def challenged(first: bytes) -> tuple[ScramExchange, bytes]:
    exchange = begun()
    answer = exchange.step(first)
    assert isinstance(answer, Challenge)
    assert answer.data is not None
    return exchange, answer.data


def test_the_exchange_of_rfc_7677() -> None:
    exchange = begun()
    assert exchange.step(CLIENT_FIRST) == Challenge(SERVER_FIRST)
    assert exchange.step(CLIENT_FINAL) == Authenticated(
        Principal("c", "user", listener="default", address="unix"), SERVER_FINAL
    )


def test_the_principal_is_the_authenticated_user_not_the_one_in_connect() -> None:
    """The User Name of CONNECT proves nothing."""
    exchange, challenge = challenged(CLIENT_FIRST)
    answer = exchange.step(final(CLIENT_FIRST, challenge))
    assert isinstance(answer, Authenticated)
    assert answer.principal == Principal("c", "user", listener="default", address="unix")


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"),
        (b"n,,n=\xc3\xa9,r=x", "\u00e9"),
        (b"n,,n=e\xcc\x81,r=x", "\u00e9"),
        (b"n,,n=us\xc2\xader,r=x", "user"),
    ],
    ids=["escaped", "not ASCII", "decomposed", "soft hyphen"],
)
def test_a_user_name_is_unescaped_and_prepared(first: bytes, name: str) -> None:
    exchange, challenge = challenged(first)
    answer = exchange.step(final(first, challenge))
    assert isinstance(answer, Authenticated)
    assert answer.principal.username == name


def test_extensions_that_are_not_mandatory_are_signed_and_ignored() -> None:
    first = CLIENT_FIRST + b",x=new"
    exchange, challenge = challenged(first)
    assert isinstance(exchange.step(final(first, challenge)), Authenticated)


def test_a_client_that_supports_channel_binding_can_authenticate_without_it() -> None:
    """The flag ``y``: the client believes that the server does not support it, and signs this flag too."""
    first = b"y" + CLIENT_FIRST[1:]
    exchange, challenge = challenged(first)
    assert exchange.step(final(first, challenge)) is REFUSED
    exchange, challenge = challenged(first)
    assert isinstance(exchange.step(final(first, challenge, header=b"eSws")), Authenticated)


@pytest.mark.parametrize(
    "first",
    [
        None,
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=x",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,r=x,n=user",
        b"n,,n=user,r=x,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=\x7f",
        b"n,,n=user,r=x\xff",
        b"n,,m=ext,n=user,r=x",
        b"n,a=admin,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"p=tls-exporter,,n=user,r=x",
        b"p=,,n=user,r=x",
        b"x,,n=user,r=x",
        b"n,,n=\xd8\xa7a,r=x",
        b"n,,n=\xee\x80\x80,r=x",
        b"n,,n=user,r=" + b"x" * LONGEST_MESSAGE,
    ],
)
def test_an_invalid_first_message_is_refused(first: bytes | None) -> None:
    """Mandatory extensions, another identity and channel binding are not supported."""
    assert begun().step(first) is REFUSED


@pytest.mark.parametrize(
    "last",
    [
        None,
        b"",
        b"p=",
        CLIENT_FINAL[:-1],
        CLIENT_FINAL.replace(b"p=dHzb", b"p=eHzb"),
        CLIENT_FINAL.replace(b"p=dHzb", b"p="),
        CLIENT_FINAL.replace(b"p=dHzb", b"p=!!!!"),
        CLIENT_FINAL.replace(b"biws", b"eSws"),
        CLIENT_FINAL.replace(b"biws", b"cD10bHMtdW5pcXVlLCw="),
        CLIENT_FINAL.replace(b"$k0", b"$k1"),
        CLIENT_FINAL.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CLIENT_FINAL.replace(b",p=", b",x=unsigned,p="),
        CLIENT_FIRST,
        SERVER_FINAL,
    ],
)
def test_an_invalid_last_message_is_refused(last: bytes | None) -> None:
    """Proof, channel binding flag and nonce must be those of this exchange."""
    exchange, challenge = challenged(CLIENT_FIRST)
    assert challenge == SERVER_FIRST
    assert exchange.step(last) is REFUSED


def test_an_exchange_cannot_be_replayed() -> None:
    """The nonce is new each time, with 256 bits."""
    authenticator = ScramAuthenticator(lambda: USERS, b"key")
    challenges = set()
    for _ in range(3):
        exchange = authenticator.begin(METHOD, Credentials("c", None, None, "default", 5))
        assert exchange is not None
        answer = exchange.step(CLIENT_FIRST)
        assert isinstance(answer, Challenge)
        challenges.add(answer.data)
        assert exchange.step(CLIENT_FINAL) is REFUSED
    assert len(challenges) == 3
    assert all(
        data is not None and len(data.split(b",")[0]) >= len(b"r=rOprNGfwEbeRWgbNEkqO") + 64 for data in challenges
    )


@given(first=st.binary(max_size=80), last=st.binary(max_size=80))
def test_any_message_is_answered(first: bytes, last: bytes) -> None:
    """There is neither an exception nor an authentication."""
    for start in (b"", b"n,,", b"n,,n=user,", b"n,,n=user,r="):
        exchange = begun()
        answer = exchange.step(start + first)
        if isinstance(answer, Challenge):
            answer = exchange.step(last)
        assert answer is REFUSED


@given(name=st.text(max_size=40), last=st.text(max_size=80))
def test_any_text_is_answered(name: str, last: str) -> None:
    exchange = begun()
    answer = exchange.step(f"n,,n={name},r=x".encode(errors="replace"))
    if isinstance(answer, Challenge):
        assert answer.data is not None
        nonce = answer.data.split(b",")[0]
        answer = exchange.step(b"c=biws," + nonce + b",p=" + last.encode(errors="replace"))
    assert answer is REFUSED


@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "scram-sha-256", ""])
def test_no_other_method_is_offered(method: str) -> None:
    authenticator = ScramAuthenticator(lambda: USERS, b"key")
    assert authenticator.begin(method, Credentials("c", None, None, "default", 5)) is None


def test_an_unknown_user_gets_a_challenge_like_all_others_and_is_refused_like_a_wrong_password() -> None:
    exchange, challenge = challenged(b"n,,n=nobody,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge.startswith(f"r={NONCE},s=".encode())
    assert challenge.endswith(b",i=4096")
    assert len(challenge) == len(SERVER_FIRST)
    _, again = challenged(b"n,,n=nobody,r=rOprNGfwEbeRWgbNEkqO")
    assert again == challenge
    assert exchange.step(final(b"n,,n=nobody,r=rOprNGfwEbeRWgbNEkqO", challenge)) is REFUSED


def test_changed_users_count_from_the_next_exchange_on() -> None:
    users: Mapping[str, Verifier] = {}
    authenticator = ScramAuthenticator(lambda: users, b"key")

    def log_in(password: bytes) -> object:
        exchange = authenticator.begin(METHOD, Credentials("c", None, None, "default", 5))
        assert exchange is not None
        answer = exchange.step(CLIENT_FIRST)
        assert isinstance(answer, Challenge)
        assert answer.data is not None
        return exchange.step(final(CLIENT_FIRST, answer.data, password))

    assert log_in(b"pencil") is REFUSED
    users = {"user": new_verifier("pencil", 4096)}
    assert isinstance(log_in(b"pencil"), Authenticated)
    users = {"user": new_verifier("eraser", 4096)}
    assert log_in(b"pencil") is REFUSED
    assert isinstance(log_in(b"eraser"), Authenticated)
    users = {}
    assert log_in(b"eraser") is REFUSED
