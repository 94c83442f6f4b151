"""Session State in the database, through its one writer."""
