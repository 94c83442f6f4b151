"""Authorization: rules in files, compiled, and the authorizer that decides by them.

A rule file becomes an ordered list of ``Rule``; the first rule that matches decides. ``Ruleset`` compiles the lists of
all sources to tries. ``Permissions`` are those of one identity. ``Authorizer`` keeps them, and answers the Sessions.
May import ``auth.interfaces``, ``config``, ``messages``, ``peers`` and ``topics``.
"""
