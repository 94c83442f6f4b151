"""The sources of rules: rule files, ACL files of mosquitto, and their loading.

May import the same packages as ``authorization``; the modules that judge do not import it.
"""
