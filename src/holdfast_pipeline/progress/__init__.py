"""The progress of a command on standard error: the phase, the amount done, the rate and the time left.

Jobs declare :mod:`.phases`. A display shows the present one: :mod:`.bar` on a terminal, :mod:`.lines` elsewhere.
"""
