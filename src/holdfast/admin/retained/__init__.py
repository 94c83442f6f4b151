"""Calls about retained messages, their history and their replays. Paths and shapes are those of EMQX, with more."""
