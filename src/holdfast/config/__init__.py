"""Options declared once: command lines, TOML tables, JSON schemas and web forms; output files."""
