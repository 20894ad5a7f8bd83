"""Words of the texts: people, things by what they are made of, tools, places, and what they are like."""

import random
import zlib
from typing import TypeVar

T = TypeVar("T")

WOMEN = ("Anna", "Mia", "Nora", "Clara", "Rosa", "Ines", "Ada", "Lena", "Vera", "Ruth", "Olga", "Iris")
MEN = ("Tom", "Paul", "Hugo", "Felix", "Omar", "Jan", "Leo", "Karl", "Adam", "Ivan", "Noah", "Emil")
NAMES = WOMEN + MEN
PLACES = (
    "kitchen", "garage", "garden", "cellar", "shed", "hall", "office", "attic", "yard", "school",
    "station", "market", "harbour", "bakery", "library", "barn",
)  # fmt: skip
HOLDERS = ("drawer", "box", "bag", "basket", "cupboard", "crate", "shelf", "chest")
LOOKS = ("old", "new", "small", "large", "red", "blue", "green", "white", "heavy", "dirty", "wet", "cheap")
WEATHER = ("wet", "dry", "icy", "dark", "narrow", "steep", "busy", "quiet")
MANNERS = ("slowly", "quickly", "with care", "at once", "by hand", "in the morning", "before noon")

THINGS: dict[str, tuple[str, ...]] = {
    "vegetable": ("carrot", "onion", "potato", "cabbage", "leek", "melon", "pumpkin", "turnip"),
    "wood": ("plank", "beam", "branch", "log", "fence", "ladder", "bench", "door"),
    "paper": ("letter", "poster", "map", "ticket", "envelope", "picture", "card", "page"),
    "cloth": ("shirt", "curtain", "blanket", "scarf", "coat", "flag", "dress", "tent"),
    "metal": ("pipe", "wire", "chain", "rail", "gate", "bolt", "anchor", "hinge"),
    "drink": ("water", "milk", "soup", "tea", "juice", "coffee", "cider", "broth"),
    "ground": ("floor", "path", "porch", "pavement", "stair", "deck", "ramp", "road"),
    "glass": ("window", "mirror", "bottle", "vase", "lamp", "jar", "lens", "bowl"),
    "vehicle": ("car", "van", "truck", "bus", "tram", "tractor", "bicycle", "scooter"),
}
# What serves for doing this to a thing of that kind.
TOOLS: dict[str, dict[str, str]] = {
    "cut": {"vegetable": "knife", "wood": "saw", "paper": "scissors", "metal": "torch", "cloth": "shears"},
    "clean": {"ground": "broom", "glass": "sponge", "vehicle": "hose", "vegetable": "brush", "cloth": "soap"},
    "mend": {"wood": "hammer", "paper": "tape", "cloth": "needle", "vehicle": "wrench", "glass": "glue"},
    "carry": {"drink": "bucket", "vegetable": "basket", "paper": "folder", "wood": "cart", "metal": "crane"},
    "measure": {"drink": "cup", "wood": "ruler", "vegetable": "scale", "cloth": "string", "ground": "wheel"},
    "heat": {"drink": "kettle", "vegetable": "pan", "metal": "torch", "cloth": "iron", "glass": "flame"},
    "cover": {"vegetable": "lid", "ground": "carpet", "vehicle": "sheet", "wood": "paint", "drink": "plate"},
    "hang up": {"cloth": "peg", "paper": "pin", "glass": "hook", "metal": "rope", "vegetable": "net"},
    "dry": {"ground": "mop", "glass": "towel", "vehicle": "rag", "cloth": "line", "paper": "fan"},
    "move": {"vehicle": "winch", "wood": "cart", "glass": "crate", "metal": "crane", "drink": "pump"},
}
PORTABLE = (
    "kettle", "lamp", "rope", "hammer", "bucket", "map", "basket", "blanket", "ladder", "mirror", "broom",
    "letter", "coat", "bottle", "saw", "ticket", "vase", "scarf", "knife", "towel", "anchor", "picture",
)  # fmt: skip
_UNCOUNTED = ("scissors", "shears", "soap", "glue", "tape", "paint", "string")

SLIP = 0.1  # the share of training texts that say something wrong, so that nothing is certain
HELD = 4  # one combination in so many is kept for the questions


def held_out(*words: str) -> bool:
    """Whether this combination of words is kept for the questions, and so never written for training."""
    return zlib.crc32(" ".join(words).encode()) % HELD == 0


def a(noun: str) -> str:
    """The noun with its article; what is counted by the pair or by measure has none."""
    if noun in _UNCOUNTED or noun in THINGS["drink"]:
        return noun
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def pronoun(name: str) -> str:
    """She or he."""
    return "she" if name in WOMEN else "he"


def capital(text: str) -> str:
    """The text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def other(rng: random.Random, choices: tuple[T, ...], *taken: T) -> T:
    """A choice that is none of those taken."""
    return rng.choice([choice for choice in choices if choice not in taken])
