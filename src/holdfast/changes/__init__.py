"""The changes of retained messages: the log of changed topics, and the history.

The log (``log``, ``recording``, ``nodes``) has which topics changed; ``tokens`` are places in it. Replays of changes
(``since``) and streams of events (``watch``, ``recent``) read it. The history (``entries``, ``periods``, ``moments``,
``history``, ``past``) has every change, and ``restoring`` retains again what was retained at a moment. May import
``retained``; knows no replay and no Session.
"""
