"""The standby: a process that has imported all commands, and runs each in a fork of itself, so that it begins at once.

``server start`` starts it beside the Spark server. A command asks it through a socket that only its user can open
(``client``), and passes all that a program inherits (``request``): arguments, environment, folder, open files. The
``listener`` forks; the fork runs the command in that place, gets the signals of the command, and its exit status
becomes that of the command. If there is no standby, or it declines, the command runs as usual.
"""
