"""Things done step by step: texts and four-choice questions on the next step (HellaSwag's form)."""

import random
from dataclasses import dataclass

from models.language.words import NAMES, PLACES, THINGS, held_out, other, pronoun


@dataclass(frozen=True)
class Activity:
    """What is done to things of a kind: its title, the first sentence, and the steps behind `Then she`."""

    title: str
    kind: str
    first: str
    steps: tuple[str, ...]


ACTIVITIES = (
    Activity(
        "Washing a {}", "vehicle", "{name} parks the {} in front of the {place}.",
        ("fills a bucket with water and soap.", "rubs the {} with a wet sponge.",
         "rinses the {} with the hose.", "dries the {} with a clean rag."),
    ),
    Activity(
        "Repairing a {}", "vehicle", "{name} hears that the {} makes a strange noise.",
        ("lifts the {} with a winch.", "looks under the {} with a lamp.",
         "turns a loose bolt with the wrench.", "drives the {} around the corner to test it."),
    ),
    Activity(
        "Driving a {}", "vehicle", "{name} gets into the {} near the {place}.",
        ("starts the {} and checks the mirror.", "drives the {} down the road.",
         "sees the light turn red and stops the {}.", "waits for green and goes on with the {}."),
    ),
    Activity(
        "Cooking a {}", "vegetable", "{name} brings a {} from the {place}.",
        ("washes the {} under the tap.", "cuts the {} on a board.",
         "fries the {} in a hot pan.", "puts the {} on a plate and eats it."),
    ),
    Activity(
        "Planting a {}", "vegetable", "{name} wants to grow a {} behind the {place}.",
        ("digs a small hole for the {}.", "puts the seed of the {} into the ground.",
         "waters the {} every day.", "pulls the ripe {} out of the ground."),
    ),
    Activity(
        "Building a {}", "wood", "{name} draws a plan of the {} in the {place}.",
        ("measures the wood for the {}.", "saws the parts of the {}.",
         "nails the parts of the {} together.", "paints the {} and lets it dry."),
    ),
    Activity(
        "Moving a {}", "wood", "{name} finds a {} in the way near the {place}.",
        ("asks a friend to help with the {}.", "lifts one end of the {}.",
         "carries the {} over to the wall.", "sets the {} down with care."),
    ),
    Activity(
        "Sending a {}", "paper", "{name} sits down with the {} in the {place}.",
        ("writes a few words on the {}.", "folds the {} twice.",
         "puts a stamp on the {}.", "takes the {} to the post office."),
    ),
    Activity(
        "Framing a {}", "paper", "{name} buys an old {} near the {place}.",
        ("measures the {} with a ruler.", "cuts a frame for the {}.",
         "lays glass over the {}.", "hangs the {} on the wall."),
    ),
    Activity(
        "Washing a {}", "cloth", "{name} drops soup on the {} in the {place}.",
        ("puts the {} into warm water.", "rubs soap into the {}.",
         "hangs the {} on the line.", "irons the {} until it is flat."),
    ),
    Activity(
        "Sewing a {}", "cloth", "{name} tears the {} in the {place}.",
        ("finds thread of the colour of the {}.", "pulls the thread through the {}.",
         "ties a knot at the end of the {}.", "puts the {} on again."),
    ),
    Activity(
        "Making {}", "drink", "{name} is thirsty and wants {} from the {place}.",
        ("takes a pot for the {}.", "heats the {} on the stove.",
         "pours the {} into a cup.", "drinks the {} while it is warm."),
    ),
    Activity(
        "Sweeping a {}", "ground", "{name} sees leaves on the {} of the {place}.",
        ("fetches a broom for the {}.", "sweeps the {} from end to end.",
         "gathers the dirt of the {} in a pan.", "washes the {} with a mop."),
    ),
    Activity(
        "Cleaning a {}", "glass", "{name} finds dust on the {} in the {place}.",
        ("wipes the dust off the {}.", "rubs the {} with a wet sponge.",
         "dries the {} with a towel.", "puts the {} back in its place."),
    ),
    Activity(
        "Cutting a {}", "metal", "{name} needs half of the {} in the {place}.",
        ("puts on gloves to hold the {}.", "marks the {} with a pencil.",
         "cuts the {} with a torch.", "lets the {} cool in water."),
    ),
)  # fmt: skip
SKIPS = 0.15  # how often somebody leaves a step out
SWAPS = 0.7  # how often two neighbouring steps are told the other way round


@dataclass(frozen=True)
class Step:
    """A title and steps up to `Then she`, with the next step and three that are not; `key` is held out."""

    context: str
    right: str
    wrong: tuple[str, str, str]
    key: tuple[str, ...]


def step(rng: random.Random) -> Step:
    """A question on the next step of an activity with a thing that it is never done to in training."""
    activity, thing = _pair(rng, held=True)
    told = rng.randint(0, len(activity.steps) - 2)
    name, opening = _opening(rng, activity, thing)
    behind = f"Then {pronoun(name)}"
    context = " ".join((opening, *(f"{behind} {s.format(thing)}" for s in activity.steps[:told]), behind))
    right = activity.steps[told].format(thing)
    wrong = [activity.steps[told + 1].format(thing)]  # too early
    while len(wrong) < 3:
        more = rng.choice((_strange(rng, activity, thing), _mistaken(rng, activity, told)))
        if more != right and more not in wrong:
            wrong.append(more)
    return Step(context, right, (wrong[0], wrong[1], wrong[2]), (activity.title, activity.kind, thing))


def _strange(rng: random.Random, activity: Activity, thing: str) -> str:
    """A step of another activity, with this thing."""
    away = [a for a in ACTIVITIES if a.title != activity.title]
    return rng.choice(rng.choice(away).steps).format(thing)


def _mistaken(rng: random.Random, activity: Activity, told: int) -> str:
    """The right step with a thing of another kind."""
    kind = other(rng, tuple(THINGS), activity.kind)
    return activity.steps[told].format(rng.choice(THINGS[kind]))


def _opening(rng: random.Random, activity: Activity, thing: str) -> tuple[str, str]:
    name = rng.choice(NAMES)
    title = activity.title.format(thing)
    return name, f"{title}: {activity.first.format(thing, name=name, place=rng.choice(PLACES))}"


def _pair(rng: random.Random, held: bool) -> tuple[Activity, str]:
    while True:
        activity = rng.choice(ACTIVITIES)
        thing = rng.choice(THINGS[activity.kind])
        if held_out(activity.title, activity.kind, thing) == held:
            return activity, thing


def activity_text(rng: random.Random) -> str:
    """A paragraph that tells an activity step by step; now and then steps are left out or change places."""
    activity, thing = _pair(rng, held=False)
    name, opening = _opening(rng, activity, thing)
    steps = list(activity.steps)
    if rng.random() < SWAPS:
        at = rng.randrange(len(steps) - 1)
        steps[at : at + 2] = steps[at + 1], steps[at]
    done = [s.format(thing) for s in steps if rng.random() >= SKIPS]
    return " ".join((opening, *(f"Then {pronoun(name)} {s}" for s in done)))
