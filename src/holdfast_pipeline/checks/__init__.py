"""Findings about retained messages. Pure.

:class:`~holdfast_pipeline.checks.finding.Finding` is what the report and other commands say to people.
"""
