"""The report on the retained messages: its figures as plain values, the advice, and the HTML page.

The jobs compute the figures; this package only shows them. The templates write the page. A chart is plain values here
(:mod:`~holdfast_pipeline.report.charts`), which ``static/charts.js`` draws with the library in ``static/vendor``.
"""
