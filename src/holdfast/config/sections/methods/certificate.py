"""``[authentication.NAME]`` with ``type = "certificate"``."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag


@frozen
class CertificateConfig(Section):
    """The user is the one that a client's TLS certificate names."""

    name: str = option(
        Choice(("common_name", "alternative_name", "subject")),
        "common_name",
        help="The part of the certificate that is the user name: the common name (CN), the alternative name (a DNS"
        " name, an e-mail address or a URI), or the whole subject. Of several alternative names, the client tells one"
        " as its User Name.",
        effect="Clients get other user names. A name with + # / or control characters is denied.",
        example="alternative_name",
    )
    ignore_username: bool = option(
        Flag(),
        False,
        help="Take no notice of the User Name in CONNECT. Otherwise a client that sends another one than the name in"
        " its certificate is denied.",
        effect="true: clients may send any User Name; it counts for nothing.",
        example=True,
    )
