"""Measurements, one file a question; run from the project root with `python -m`."""
