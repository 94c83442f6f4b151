"""What the pipeline uses of the history: its entries, moments and periods, and the turns of changes.

Imports no Twisted.
"""

from __future__ import annotations

from holdfast.changes.entries import GENERAL, STORED_BEFORE, Depth, Rules, retained_sql, rules_in, stored_at_sql
from holdfast.changes.log import is_good, last_token, read_kept, time_of, turn_before, turns_of
from holdfast.changes.moments import (
    HistoryUnavailable,
    Moment,
    check_moment,
    check_recorded,
    find_moment,
    present_moment,
)
from holdfast.changes.periods import Period, confirm, read_periods, read_state
from holdfast.changes.telemetry_table import read_telemetry_state
from holdfast.changes.tokens import TOKEN_LENGTHS, BadToken, Token, token_of

__all__ = [
    "GENERAL",
    "STORED_BEFORE",
    "TOKEN_LENGTHS",
    "BadToken",
    "Depth",
    "HistoryUnavailable",
    "Moment",
    "Period",
    "Rules",
    "Token",
    "check_moment",
    "check_recorded",
    "confirm",
    "find_moment",
    "is_good",
    "last_token",
    "present_moment",
    "read_kept",
    "read_periods",
    "read_state",
    "read_telemetry_state",
    "retained_sql",
    "rules_in",
    "stored_at_sql",
    "time_of",
    "token_of",
    "turn_before",
    "turns_of",
]
