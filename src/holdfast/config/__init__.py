"""Command-line options as data: declaration, output formats, completion."""
