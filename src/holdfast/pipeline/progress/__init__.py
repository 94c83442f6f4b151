"""The progress of a command on standard error: what it does, how much of it is done, how fast, and how long it takes.

Jobs declare :mod:`.phases`. A display shows the present one: :mod:`.bar` on a terminal, :mod:`.lines` elsewhere.
May import the pipeline's ``formatting``.
"""
