"""Why something happened: texts and questions on who or what is meant (WinoGrande's form)."""

import random
from dataclasses import dataclass

from models.language.words import LOOKS, NAMES, PLACES, PORTABLE, SLIP, THINGS, held_out


@dataclass(frozen=True)
class Reason:
    """What happened to one and two, with reasons that speak of one and reasons that speak of two."""

    event: str
    of_one: tuple[str, ...]
    of_two: tuple[str, ...]
    kinds: tuple[str, str] | None = None  # of things; without: two people


_PEOPLE = (
    Reason("{one} lent the {thing} to {two}", ("had no use for it", "had another one"),
           ("needed it at home", "had lost the old one")),
    Reason("{one} asked {two} for the {thing}", ("needed it at home", "had nothing like it"),
           ("had bought it last week", "kept it in a box")),
    Reason("{one} thanked {two} for the {thing}", ("was glad to have it", "had wished for it"),
           ("had sent it by post", "had paid for it")),
    Reason("{one} sold the {thing} to {two}", ("wanted the money", "did not like it any more"),
           ("offered a good price", "had looked for one all year")),
    Reason("{one} hid the {thing} from {two}", ("wanted to keep it", "was afraid to lose it"),
           ("would have broken it", "used to steal things")),
    Reason("{one} carried the {thing} for {two}", ("was strong", "liked to help"),
           ("was tired", "had a broken arm")),
    Reason("{one} called {two} about the {thing}", ("had a question", "could not make it work"),
           ("knew the answer", "was good with such things")),
    Reason("{one} gave the {thing} back to {two}", ("had finished the work", "was done with it"),
           ("was the owner", "wanted it back")),
    Reason("{one} drove to {two} with the {thing}", ("had a car", "knew the way"),
           ("was ill at home", "had no car")),
    Reason("{one} waited for {two} at the {place}", ("came too early", "got there first"),
           ("came too late", "had missed the bus")),
)  # fmt: skip
_OBJECTS = (
    Reason("the {one} did not fit under the {two}", ("was too high", "was too tall"),
           ("was too low", "hung too far down"), ("vehicle", "metal")),
    Reason("the {one} did not stop on the {two}", ("had bad brakes", "went too fast"),
           ("was covered with ice", "was too wet"), ("vehicle", "ground")),
    Reason("the {one} went into the {two} with ease", ("was short", "was thin"),
           ("was wide", "was empty"), ("paper", "glass")),
    Reason("the {one} broke under the {two}", ("was weak", "was full of cracks"),
           ("was heavy", "weighed a ton"), ("wood", "vehicle")),
    Reason("the {one} ran out of the {two}", ("was thin", "was too much"),
           ("had a hole", "had no lid"), ("drink", "glass")),
    Reason("the {one} hid the {two} from view", ("was large", "stood in front"),
           ("was small", "lay behind"), ("cloth", "paper")),
    Reason("the {one} cut through the {two}", ("was sharp", "was hard"),
           ("was soft", "gave way"), ("metal", "vegetable")),
    Reason("the {one} kept the {two} dry", ("let no rain in", "was dense"),
           ("was under it", "lay inside"), ("cloth", "wood")),
)  # fmt: skip


@dataclass(frozen=True)
class Blank:
    """A sentence with `_` for one or two; `key` is the combination that is held out."""

    sentence: str
    one: str
    two: str
    first: bool  # whether one is right
    key: tuple[str, ...]


def blank(rng: random.Random, held: bool) -> Blank:
    """A sentence on why something happened, of a pair that is held out for it or of one that is not."""
    while True:
        reason = rng.choice(_PEOPLE if rng.random() < 0.6 else _OBJECTS)
        one, two = _pair(rng, reason)
        key = (reason.event, *sorted((one, two)))
        if held_out(*key) == held:
            break
    first = rng.random() < 0.5
    slots = {"thing": f"{rng.choice(LOOKS)} {rng.choice(PORTABLE)}", "place": rng.choice(PLACES)}
    if reason.kinds is None:
        event, gap = reason.event.format(one=one, two=two, **slots), "_"
    else:
        looks = [f"{rng.choice(LOOKS)} {noun}" for noun in (one, two)]
        event, gap = reason.event.format(one=looks[0], two=looks[1]), "the _"
    why = rng.choice(reason.of_one if first else reason.of_two)
    sentence = f"{event[0].upper()}{event[1:]} because {gap} {why}."
    return Blank(sentence, one, two, first, key)


def _pair(rng: random.Random, reason: Reason) -> tuple[str, str]:
    if reason.kinds is None:
        one, two = rng.sample(NAMES, 2)
        return one, two
    return rng.choice(THINGS[reason.kinds[0]]), rng.choice(THINGS[reason.kinds[1]])


def reason_text(rng: random.Random) -> str:
    """A paragraph of one or two events with their reasons, sometimes of the wrong one."""
    lines = []
    for _ in range(rng.randint(1, 2)):
        drawn = blank(rng, held=False)
        meant = drawn.first != (rng.random() < SLIP)
        lines.append(drawn.sentence.replace("_", drawn.one if meant else drawn.two))
    return " ".join(lines)
