"""Moving in from another broker: readers of its files, and the files for Holdfast that mean the same."""
