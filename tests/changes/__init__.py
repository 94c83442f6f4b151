"""Following changes of retained messages."""
