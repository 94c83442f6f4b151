"""Everything durable goes through here: the database, its schema, the revision clock and the one writer."""
