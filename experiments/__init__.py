"""Command-line programs: thin absl mains over the library."""

from . import interrupting

interrupting.end_at_once()  # before anything that takes time is loaded
