"""Schedules and data in, trained runs out: many runs in one compiled program."""
