"""With HOLDFAST_COMPILE=1, compile the path of one Application Message by mypyc. The rest of the build is in setup.cfg.

The compiled modules do what the plain ones do, for less processor time. Without the variable, or where mypyc is not
there, the package is plain Python.
"""

import os
from configparser import ConfigParser

from setuptools import setup

#: What a message passes through between the bytes that are read and the bytes that are sent. A compiled class takes no
#: new attributes, nor methods of a test's own, nor plain subclasses, as the router has in a cluster; these were chosen
#: because each message of its own calls them.
COMPILED = (
    "wire/parser",
    "wire/runs",
    "sessions/connection/acknowledgements",
    "sessions/connection/outbox",
    "sessions/connection/packet_order",
    "sessions/delivery/outgoing",
    "sessions/exchange/publishing",
)
NEEDS = ["mypy[mypyc]>=2.4.1", "mypy-zope>=1.0.17"]

needs, modules = [], []
if os.environ.get("HOLDFAST_COMPILE") == "1":
    config = ConfigParser()
    config.read("setup.cfg")
    # mypyc makes quicker code where it knows the types of the libraries.
    needs = [*NEEDS, *config["options"]["install_requires"].split()]
    try:
        from mypyc.build import mypycify
    except ImportError:
        pass  # the installer asks first what this file needs, and runs it again with that
    else:
        paths = [f"src/holdfast/{name}.py" for name in COMPILED]
        modules = mypycify(
            ["--config-file=setup.cfg", "--follow-imports=silent", "--ignore-missing-imports", *paths],
            opt_level="3",
            group_name="holdfast",
        )
setup(setup_requires=needs, ext_modules=modules)
