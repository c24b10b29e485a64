"""Attacks on the compiled training program, for `experiments/audit.py`."""
