"""The calls of the operators' API, one module for each noun: their routes, schemas and handlers."""
