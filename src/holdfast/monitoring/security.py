"""Metrics of logins, permissions, bans, certificates and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized

from holdfast.audit.audit import Audit
from holdfast.metrics.metric import Kind, Metric, counter, gauge
from holdfast.sessions.counters import Counters


def security_metrics(
    counters: Counters,
    *,
    bans: Sized,
    waiting_refusals: Sized,
    audit: Audit,
    certificate_ends: Callable[[], Mapping[str, float]],
) -> list[Metric]:
    """Return the metrics. ``certificate_ends`` returns seconds since the epoch, by listener."""
    tallies = counters.tallies
    own = "holdfast/counters/"
    return [
        Metric(
            name="holdfast_logins_total",
            help="Judged logins, by authentication method and outcome: accepted, denied, or failed (not judged,"
            ' because a service was away). The method is "none" for guests and for users that no method knows.',
            kind=Kind.COUNTER, labels=("method", "outcome"),
            read=lambda: {cause: count for cause, count in tallies.logins.items()},  # noqa: C416
        ),
        counter(
            "holdfast_logins_failed_total", "Logins with wrong credentials.",
            lambda: counters.logins_failed, own + "logins_failed",
        ),
        counter(
            "holdfast_logins_delayed_total", "Failed logins with a delayed answer.",
            lambda: counters.logins_delayed, own + "logins_delayed",
        ),
        gauge(
            "holdfast_logins_waiting", "Failed logins whose answer is delayed now.", lambda: len(waiting_refusals)
        ),
        Metric(
            name="holdfast_authorization_denied_total", help="Denied actions: publish, retain, clear or subscribe.",
            kind=Kind.COUNTER, labels=("action",),
            read=lambda: {(action,): count for action, count in tallies.denials.items()},
        ),
        gauge("holdfast_bans", "Bans in force, and some that have ended recently.", lambda: len(bans)),
        counter(
            "holdfast_addresses_banned_total", "Addresses banned after failed logins.",
            lambda: counters.addresses_banned, own + "addresses_banned",
        ),
        Metric(
            name="holdfast_audit_lines_total",
            help="Lines of the audit log: written, lost because it could not be written, or suppressed because of"
            " audit.max_lines.",
            kind=Kind.COUNTER, labels=("outcome",),
            read=lambda: {("written",): audit.written, ("lost",): audit.lost, ("suppressed",): audit.suppressed},
        ),
        Metric(
            name="holdfast_certificate_expiry_timestamp_seconds",
            help="When the first certificate of a listener expires, in seconds since the epoch.",
            kind=Kind.GAUGE, labels=("listener",),
            read=lambda: {(name,): end for name, end in certificate_ends().items()},
        ),
    ]  # fmt: skip
