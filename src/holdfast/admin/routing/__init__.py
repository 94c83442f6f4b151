"""The routes of the API: the one table that calls are dispatched by, and that is shown as OpenAPI."""
