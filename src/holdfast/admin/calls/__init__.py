"""Calls, their arguments and bodies, and their answers, independent of a transport."""
