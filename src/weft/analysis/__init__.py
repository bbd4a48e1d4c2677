"""The papers' experiments as commands, each with tables, plots and a report in a folder."""
