"""Command-line programs: thin absl mains over the library."""
