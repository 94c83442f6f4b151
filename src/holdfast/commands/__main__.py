"""``python -m holdfast.commands``: the same as the command ``holdfast``."""

from holdfast.commands.root import main

if __name__ == "__main__":
    main(prog_name="holdfast")
