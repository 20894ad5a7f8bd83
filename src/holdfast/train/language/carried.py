"""Who took what where: texts whose last word follows from what was said before (LAMBADA's form)."""

import random
from dataclasses import dataclass

from holdfast.train.language.words import NAMES, PLACES, PORTABLE, SLIP, held_out

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
    """A story of two or three trips that asks for one of them."""
    asks = rng.choice(_ASKS)
    trips = _trips(rng, asks, held)
    story = f"{_told(rng, trips)} {_asked(rng, asks, trips[0], _seeker(rng, trips))}"
    return Carried(story, _word(asks, trips[0]), _key(asks, trips[0]))


def carried_text(rng: random.Random) -> str:
    """A paragraph of trips that tells of some of them again, sometimes wrongly."""
    trips = _trips(rng, "who", held=False)
    lines = [_told(rng, trips)]
    for trip in rng.sample(trips, rng.randint(1, len(trips))):
        asks = rng.choice(_ASKS)
        word = _word(asks, trip)
        if rng.random() < SLIP / 2:
            wrong = rng.choice(trips)
            word = word if held_out(*_mixed(asks, trip, wrong)) else _word(asks, wrong)
        lines.append(f"{_asked(rng, asks, trip, _seeker(rng, trips))} {word}.")
    return " ".join(lines)


def _told(rng: random.Random, trips: list[_Trip]) -> str:
    """The trips in any order, perhaps with a sentence that has nothing to do with them."""
    told = rng.sample(trips, len(trips))
    lines = [f"{t.name} {t.took} the {t.thing} to the {t.place}." for t in told]
    if rng.random() < 0.6:
        lines.insert(rng.randint(0, len(lines)), rng.choice(_FILLERS))
    return " ".join(lines)


def _seeker(rng: random.Random, trips: list[_Trip]) -> str:
    return rng.choice([name for name in NAMES if name not in {t.name for t in trips}])


def _asked(rng: random.Random, asks: str, trip: _Trip, seeker: str) -> str:
    """The last sentence, up to its last word."""
    patterns = {
        "who": (
            f"When {seeker} asked for the {trip.thing}, all looked at",
            f"{seeker} got the {trip.thing} from",
        ),
        "where": (
            f"{seeker} followed the {trip.thing} to the",
            f"Later {seeker} found the {trip.thing} in the",
        ),
        "what": (
            f"Nobody else saw that {trip.name} {trip.took} the",
            f"Back home, {trip.name} no longer had the",
        ),
    }
    return rng.choice(patterns[asks])


def _trips(rng: random.Random, asks: str, held: bool) -> list[_Trip]:
    """Trips with no name, thing or place twice; the first is the one that is asked for."""
    count = rng.choice((2, 2, 3))
    while True:
        columns = (rng.sample(NAMES, count), rng.sample(PORTABLE, count), rng.sample(PLACES, count))
        trips = [_Trip(*row, rng.choice(_TOOK)) for row in zip(*columns, strict=True)]
        if held_out(*_key(asks, trips[0])) != held:
            continue
        # What is not asked for, and all of a training text, keeps clear of every held-out pair.
        free = trips[1:] if held else trips
        if not any(held_out(t.name, t.thing) or held_out(t.thing, t.place) for t in free):
            return trips


def _word(asks: str, trip: _Trip) -> str:
    return {"who": trip.name, "where": trip.place, "what": trip.thing}[asks]


def _key(asks: str, trip: _Trip) -> tuple[str, str]:
    return (trip.thing, trip.place) if asks == "where" else (trip.name, trip.thing)


def _mixed(asks: str, trip: _Trip, wrong: _Trip) -> tuple[str, str]:
    """The combination that the wrong trip's word makes with what is said of this one."""
    if asks == "where":
        return trip.thing, wrong.place
    return (wrong.name, trip.thing) if asks == "who" else (trip.name, wrong.thing)
