"""A page read again, for tests: its tags, and its texts by enclosing tag."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Tags with attributes, texts by enclosing tag; fails on tags that do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.inside = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.inside.append((self.open[-1] if self.open else "", data))

    def texts(self, tag):
        return [text for where, text in self.inside if where == tag]

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]
