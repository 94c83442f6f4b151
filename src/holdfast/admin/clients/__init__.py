"""Calls about clients, their subscriptions and their waiting messages."""
