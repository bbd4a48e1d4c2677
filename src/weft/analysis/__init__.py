"""The papers' experiments as commands: measured, drawn, and written into a folder with a report."""
