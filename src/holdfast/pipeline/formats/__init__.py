"""Files of other programs, and of ours: each format is a module that finds messages in a file, one by one."""
