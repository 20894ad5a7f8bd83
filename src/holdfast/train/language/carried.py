"""Who took what where: texts whose last word follows from what was said before (LAMBADA's form)."""

import random
from dataclasses import dataclass

from holdfast.train.language.words import LOOKS, NAMES, PLACES, PORTABLE, SLIP, held_out, pronoun

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
    wrong: str
    key: tuple[str, ...]
    wrong_key: tuple[str, ...]  # the combination that the wrong word would make


@dataclass(frozen=True)
class _Trip:
    name: str
    thing: str
    place: str


def carried(rng: random.Random, held: bool) -> Carried:
    """A story of two or three trips that asks for one of them."""
    asks = rng.choice(("who", "where", "what"))
    trips = _trips(rng, rng.choice((2, 2, 3)), asks, held)
    told = list(trips)
    rng.shuffle(told)
    lines = [
        f"{t.name} {rng.choice(_TOOK)} the {rng.choice(LOOKS)} {t.thing} to the {t.place}." for t in told
    ]
    if rng.random() < 0.6:
        lines.insert(rng.randint(0, len(lines)), rng.choice(_FILLERS))
    trip, wrong = trips[0], trips[1]
    seeker = rng.choice([name for name in NAMES if name not in {t.name for t in trips}])
    asked = _asked(rng, asks, trip, seeker)
    word, bad, mixed = {
        "who": (trip.name, wrong.name, _Trip(wrong.name, trip.thing, trip.place)),
        "where": (trip.place, wrong.place, _Trip(trip.name, trip.thing, wrong.place)),
        "what": (trip.thing, wrong.thing, _Trip(trip.name, wrong.thing, trip.place)),
    }[asks]
    return Carried(" ".join((*lines, asked)), word, bad, _key(asks, trip), _key(asks, mixed))


def _asked(rng: random.Random, asks: str, trip: _Trip, seeker: str) -> str:
    """The last sentence, up to its last word."""
    if asks == "who":
        return rng.choice(
            (
                f"{seeker} needed the {trip.thing}, so {pronoun(seeker)} went to",
                f"When {seeker} asked for the {trip.thing}, all looked at",
            )
        )
    if asks == "where":
        return rng.choice(
            (
                f"Later {seeker} looked for the {trip.thing} and found it in the",
                f"{seeker} needed the {trip.thing}, so {pronoun(seeker)} went to the",
            )
        )
    return rng.choice(
        (
            f"When {trip.name} came back, {pronoun(trip.name)} no longer had the",
            f"In the {trip.place} {trip.name} put down the",
        )
    )


def _trips(rng: random.Random, count: int, asks: str, held: bool) -> list[_Trip]:
    """Trips with no name, thing or place twice; the first is the one that is asked for."""
    while True:
        columns = (rng.sample(NAMES, count), rng.sample(PORTABLE, count), rng.sample(PLACES, count))
        trips = [_Trip(*row) for row in zip(*columns, strict=True)]
        if held_out(*_key(asks, trips[0])) != held:
            continue
        # What is not asked for, and all of a training text, keeps clear of every held-out pair.
        free = trips[1:] if held else trips
        if not any(held_out(t.name, t.thing) or held_out(t.thing, t.place) for t in free):
            return trips


def _key(asks: str, trip: _Trip) -> tuple[str, ...]:
    return (trip.thing, trip.place) if asks == "where" else (trip.name, trip.thing)


def carried_text(rng: random.Random) -> str:
    """A paragraph of trips with its last word, sometimes the wrong one."""
    drawn = carried(rng, held=False)
    slips = rng.random() < SLIP / 2 and not held_out(*drawn.wrong_key)
    return f"{drawn.story} {drawn.wrong if slips else drawn.word}."
