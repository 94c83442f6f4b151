"""Topic Filters as jobs use them: which ones are asked about, which topics match, what a replay costs.

Everything here works on plain values.
May import ``topics`` and the settings of flow control.
"""
