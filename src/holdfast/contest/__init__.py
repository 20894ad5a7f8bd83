"""Patch contests: images and rules, entries, scores, the board."""

GROUPS = {"contest": "Run a patch contest, or take part in one: images, rules, zips, scores, board."}
COMMANDS = {
    "Attack": {
        "contest init": "cli:init",
        "contest validate": "cli:validate",
        "contest pack": "cli:pack",
        "contest score": "cli:score",
        "contest board": "cli:board",
        "contest rescore": "cli:rescore",
        "contest show": "cli:show",
    }
}
