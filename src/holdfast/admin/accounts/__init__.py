"""Calls about users, rules and bans."""
