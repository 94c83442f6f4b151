"""The names of Holdfast's User Properties, and the features that CONNACK tells a participant of.

Apart from :data:`PARTICIPATION`, they count only on the connections of participants.
"""

from __future__ import annotations

#: in CONNECT and CONNACK
PARTICIPATION = "holdfast"
#: all other names begin so
PREFIX = "holdfast-"
#: in SUBSCRIBE: the Topic Name for the marker of the end of each replay
REPLAY_END = "holdfast-replay-end"
#: in SUBSCRIBE: what to tell of each replayed message
REPLAY_INFO = "holdfast-replay-info"
#: in SUBSCRIBE: replay only what has changed since this token or time; in SUBACK and markers: whether that is done
REPLAY_SINCE = "holdfast-replay-since"
#: in SUBSCRIBE: the least time between two messages of a topic, in milliseconds
CONFLATE = "holdfast-conflate"
#: in PUBLISH: the conditions of a compare-and-set
IF_REVISION = "holdfast-if-revision"
IF_ABSENT = "holdfast-if-absent"
IF_PAYLOAD_SHA256 = "holdfast-if-payload-sha256"
#: in PUBLISH: until when the retained message stays
RETAIN_WHILE = "holdfast-retain-while"
#: in PUBLISH packets that the broker sends; the revision also in the acknowledgement of a compare-and-set
STORED_AT = "holdfast-stored-at"
REVISION = "holdfast-revision"
PUBLISHER = "holdfast-publisher"

#: What only the broker tells. A participant that publishes one of them is refused.
TOLD_BY_BROKER = frozenset({STORED_AT, REVISION, PUBLISHER})

#: the version of these agreements
VERSION = 1
#: the features, in the order of CONNACK
OFFERED = ("replay-end", "replay-since", "replay-info", "conflate", "compare-and-set", "ask", "history", "retain-while")
