"""Runs driven from settings to records: the only room that holds both halves."""
