"""``python -m holdfast.cli``: the same as the command ``holdfast``."""

from holdfast.cli.root import main

if __name__ == "__main__":
    main(prog_name="holdfast")
