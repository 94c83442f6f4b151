"""The examples to paste work as their pages show them: a notebook, dbt, cron."""
