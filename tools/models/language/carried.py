"""Who took what where: texts whose last word follows from what was said before (LAMBADA's form)."""

import random
from dataclasses import dataclass

from models.language.words import NAMES, PLACES, PORTABLE, SLIP, held_out

_ASKS = ("who", "where", "what")
_TOOK = ("took", "carried", "brought", "moved")
_FILLERS = (
    "It was a quiet morning.",
    "Outside it began to rain.",
    "Nobody said a word.",
    "Then the bell rang.",
    "After that they had tea.",
    "The road was empty.",
)


@dataclass(frozen=True)
class Carried:
    """A story without its last word; `key` is the combination that is held out."""

    story: str
    word: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class _Trip:
    name: str
    thing: str
    place: str
    took: str


def carried(rng: random.Random, held: bool) -> Carried:
    """A story of one or two trips that asks for one of them."""
    asks = rng.choice(_ASKS)
    trips = _trips(rng, held)
    trip = trips[0]
    key = (trip.name, trip.thing, trip.place)
    return Carried(f"{_told(rng, trips)} {_asked(rng, asks, trip)}", _word(asks, trip), key)


def carried_text(rng: random.Random) -> str:
    """A paragraph of trips that tells of them again, sometimes wrongly."""
    trips = _trips(rng, held=False)
    lines = [_told(rng, trips)]
    for trip in rng.sample(trips, len(trips)):
        for asks in rng.sample(_ASKS, 2):
            meant = trip if rng.random() >= SLIP / 2 else rng.choice(trips)
            lines.append(f"{_asked(rng, asks, trip)} {_word(asks, meant)}.")
    return " ".join(lines)


def _told(rng: random.Random, trips: list[_Trip]) -> str:
    """The trips in any order, perhaps with a sentence that has nothing to do with them."""
    told = rng.sample(trips, len(trips))
    lines = [f"{t.name} {t.took} the {t.thing} to the {t.place}." for t in told]
    if rng.random() < 0.4:
        lines.insert(rng.randint(0, len(lines)), rng.choice(_FILLERS))
    return " ".join(lines)


def _asked(rng: random.Random, asks: str, trip: _Trip) -> str:
    """The last sentence, up to its last word."""
    patterns = {
        "who": (f"Later the {trip.thing} was with", f"All who needed the {trip.thing} had to ask"),
        "where": (f"Later the {trip.thing} was found in the", f"The way of the {trip.thing} went to the"),
        "what": (f"Nobody saw that {trip.name} {trip.took} the", f"Back home, {trip.name} no longer had the"),
    }
    return rng.choice(patterns[asks])


def _trips(rng: random.Random, held: bool) -> list[_Trip]:
    """Trips with no name, thing or place twice; the first is the one that is asked for."""
    count = rng.choice((1, 2))
    while True:
        columns = (rng.sample(NAMES, count), rng.sample(PORTABLE, count), rng.sample(PLACES, count))
        trips = [_Trip(*row, rng.choice(_TOOK)) for row in zip(*columns, strict=True)]
        out = [held_out(t.name, t.thing, t.place) for t in trips]
        if out[0] == held and not any(out[1:]):
            return trips


def _word(asks: str, trip: _Trip) -> str:
    return {"who": trip.name, "where": trip.place, "what": trip.thing}[asks]
