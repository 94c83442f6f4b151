"""The database's schema, step by step (Alembic). Shipped in the wheel as ``holdfast.migrations``."""
