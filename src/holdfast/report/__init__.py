"""What was found, for people: tables in five formats, SVG charts, and one self-contained page."""
