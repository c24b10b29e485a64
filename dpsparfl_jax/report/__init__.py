"""Recorded runs as one page, pictures and tables (host only)."""
