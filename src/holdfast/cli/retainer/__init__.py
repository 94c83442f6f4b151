"""``holdfast retainer``: commands on retained messages, their history and their replays."""
