"""The migrations of the schema, for Alembic. The wheel contains this package as ``holdfast.migrations``."""
