"""Plain SVG charts: pure functions from values to markup; colours and type come from the page's style."""
