"""Why a handshake or a connection with TLS failed, in words for the operator."""

from __future__ import annotations

from OpenSSL import SSL

_REASONS = {
    "no shared cipher": "the client offers no cipher suite that this broker takes",
    "no suitable signature algorithm": "the client takes no signature that the key of this broker can make",
    "unsupported protocol": "the client offers only versions of TLS below the minimum",
    "peer did not return a certificate": 'the client shows no certificate (client = "required")',
    "no application protocol": "the client offers only other protocols than this listener's (ALPN)",
    "unexpected eof while reading": "the client went away",
}

_VERIFICATION = {
    2: "its issuer is unknown",
    3: "the file of crl has no list of its issuer",
    9: "it is not valid yet",
    10: "it has expired",
    11: "the revocation list is not valid yet",
    12: "the revocation list has expired",
    18: "it is self-signed and not in client_ca",
    19: "its root is not in client_ca",
    20: "its issuer is not in client_ca",
    21: "its issuer is not in client_ca",
    22: "its chain is too long",
    23: "it is revoked",
    24: "an authority in its chain may not issue certificates",
    26: "it is not made for clients (extended key usage)",
    44: "the revocation list has a different scope",
}


def explain(error: Exception, refusals: list[tuple[int, int]]) -> str:
    """Return a clause about an error of OpenSSL. ``refusals``: the errors and depths of the verification so far."""
    reason = _reason(error)
    if reason == "certificate verify failed" and refusals:
        number, depth = refusals[-1]
        whose = "the client's certificate" if not depth else "an authority of the client's certificate"
        return f"{whose} is refused: {_VERIFICATION.get(number, f'verification error {number}')}"
    for ending in (" alert ", "alert: "):
        if ending in reason:
            return f"the client refuses it with the alert: {reason.rpartition('alert ')[2]}"
    return _REASONS.get(reason, reason or "the client broke the TLS protocol")


def _reason(error: Exception) -> str:
    """Return the text of the last error in OpenSSL's queue."""
    if isinstance(error, SSL.SysCallError):
        return str(error.args[-1]).lower()
    queue = error.args[0] if error.args else ()
    if isinstance(queue, str):
        return queue
    return str(queue[-1][2]).lower() if queue else ""


def not_tls(data: bytes) -> str:
    """Return a clause about a client whose first bytes are not TLS."""
    first = data[:1]
    if first == b"\x10":
        return "it speaks MQTT without TLS"
    if data.startswith((b"PROXY ", b"\r\n")):
        return "it sends a header of the PROXY protocol; an endpoint with haproxy: takes it"
    if first.isalpha():
        return "it speaks a protocol of plain text, such as HTTP"
    return f"its first byte is 0x{data[0]:02x}, which is not TLS"
