"""The report on what is retained: what was found, and the page that shows it."""
