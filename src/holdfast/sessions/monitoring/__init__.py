"""What the broker says of itself under ``$SYS/broker/``.

Figures are measured when they are asked for and cost nothing otherwise.
May import all of ``sessions``; nothing imports it but the composition.
"""
