"""What has changed: the feed of accepted changes, the log of changed topics, and the history.

``feed`` announces each change before its commit. The log (``log``, ``recording``, ``nodes``) has which topics changed;
``tokens`` are places in it, and replays (``since``) and streams of events (``watch``, ``recent``) read it. The history
(``entries``, ``periods``, ``moments``, ``history``, ``past``) has every change. May import ``retained.store`` and the
values of ``retained``; knows no transport.
"""
