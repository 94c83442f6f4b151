"""Calls about many retained messages: the conditions that select them, sorted pages, exports, counts and the tree."""
