"""What is used for what, and what a sign asks for: texts and two-choice questions (PIQA's form)."""

import random
from dataclasses import dataclass

from models.language.words import (
    HOLDERS,
    LOOKS,
    MANNERS,
    NAMES,
    PLACES,
    SLIP,
    THINGS,
    TOOLS,
    WEATHER,
    a,
    capital,
    held_out,
    other,
    pronoun,
)

SIGNS: dict[str, str] = {
    "stop sign": "stop the {} behind the line and look both ways",
    "yield sign": "slow the {} down and let the others go first",
    "speed sign": "keep the {} below the limit until the town ends",
    "school sign": "drive the {} slowly and watch for children",
    "deer sign": "drive the {} with care and watch the trees",
    "no entry sign": "turn the {} around and take the other street",
    "parking sign": "leave the {} there and lock it",
    "crossing sign": "stop the {} and wait until people have crossed",
    "height sign": "check how high the {} is before the bridge",
    "bend sign": "brake the {} early and steer to the right",
}
_GOALS = (
    "How do I {verb} the {look} {thing}?",
    "What do I need to {verb} the {look} {thing}?",
    "How does {name} {verb} the {look} {thing} in the {place}?",
)
_SOLUTIONS = (
    "Take {tool} from the {holder} and {verb} it {manner}.",
    "Go to the {place}, find {tool} and {verb} it {manner}.",
    "Use {tool} and do it {manner}.",
    "Ask {name} for {tool} in the {place}.",
)

# Ways of asking and answering that training never saw: otherwise nearly all would be answered right.
_OTHER_GOALS = (
    "{name} has {a_thing} that is {look} and would like to {verb} it. What is the way?",
    "In the {place} there is {a_thing} to {verb}. Who knows how?",
    "What helps {name} when the {thing} is {look} and nobody can {verb} it?",
)
_OTHER_SOLUTIONS = (
    "It was {tool} that {name} used for it, {manner}.",
    "The {place} has {tool}, and this will do.",
    "First get {tool}, then {verb} the {thing} {manner}.",
)


@dataclass(frozen=True)
class Choice:
    """A goal with a solution that serves and one that does not; `key` is the combination that is held out."""

    goal: str
    right: str
    wrong: str
    key: tuple[str, ...]


def choice(rng: random.Random, held: bool) -> Choice:
    """A goal and two solutions, of a combination that is held out or of one that is not."""
    return _sign_choice(rng, held) if rng.random() < 0.25 else _tool_choice(rng, held)


def _tool_choice(rng: random.Random, held: bool) -> Choice:
    verb, kind, thing = _use(rng, held)
    tools = TOOLS[verb]
    # The wrong tool does the same to things of another kind: the kind must be known.
    wrong = other(rng, tuple(tools.values()), tools[kind])
    place = rng.choice(PLACES)
    slots = {"verb": verb, "thing": thing, "look": rng.choice(LOOKS), "place": place}
    goals = _GOALS + _OTHER_GOALS if held else _GOALS
    goal = rng.choice(goals).format(**slots, a_thing=a(thing), name=rng.choice(NAMES))
    pattern = rng.choice(_SOLUTIONS + _OTHER_SOLUTIONS if held else _SOLUTIONS)
    more = {"holder": rng.choice(HOLDERS), "manner": rng.choice(MANNERS), "name": rng.choice(NAMES)}
    right, bad = (pattern.format(**slots, **more, tool=a(tool)) for tool in (tools[kind], wrong))
    return Choice(goal, right, bad, (verb, thing))


def _use(rng: random.Random, held: bool) -> tuple[str, str, str]:
    """A verb, a kind of things and a thing of that kind."""
    while True:
        verb = rng.choice(list(TOOLS))
        kind = rng.choice(list(TOOLS[verb]))
        # A kind of which much is held out is written of no less: how often a tool is named must tell nothing.
        things = [thing for thing in THINGS[kind] if held_out(verb, thing) == held]
        if things:
            return verb, kind, rng.choice(things)


def _sign_choice(rng: random.Random, held: bool) -> Choice:
    sign, vehicle = _duty(rng, held)
    weather = rng.choice(WEATHER)
    goal = rng.choice(
        (
            f"What do I do with the {vehicle} at {a(sign)} on a {weather} road?",
            f"The {vehicle} comes to {a(sign)}. What must {rng.choice(NAMES)} do?",
        )
    )
    right = capital(SIGNS[sign].format(vehicle)) + "."
    wrong = capital(SIGNS[other(rng, tuple(SIGNS), sign)].format(vehicle)) + "."
    return Choice(goal, right, wrong, (sign, vehicle))


def _duty(rng: random.Random, held: bool) -> tuple[str, str]:
    while True:
        sign, vehicle = rng.choice(list(SIGNS)), rng.choice(THINGS["vehicle"])
        if held_out(sign, vehicle) == held:
            return sign, vehicle


@dataclass(frozen=True)
class Errand:
    """A story without its last word, a tool; `key` is the combination that is held out."""

    story: str
    word: str
    wrong: str
    key: tuple[str, ...]


def errand(rng: random.Random, held: bool) -> Errand:
    """Somebody goes for the tool that the work needs."""
    verb, kind, thing = _use(rng, held)
    name, look, place = rng.choice(NAMES), rng.choice(LOOKS), rng.choice(PLACES)
    tools = TOOLS[verb]
    story = rng.choice(
        (
            f"{name} wants to {verb} the {look} {thing}. {capital(pronoun(name))} comes back with the",
            f"The {look} {thing} is in the {place}. To {verb} the {thing}, {name} fetches the",
        )
    )
    return Errand(story, tools[kind], other(rng, tuple(tools.values()), tools[kind]), (verb, thing))


def use_text(rng: random.Random) -> str:
    """A paragraph on what is used for what, sometimes wrong."""
    way = rng.random()
    if way < 0.4:
        drawn = choice(rng, held=False)
        solution = drawn.wrong if rng.random() < SLIP else drawn.right
        if rng.random() < 0.5:
            return f"Question: {drawn.goal}\nAnswer: {solution}"
        return f"{drawn.goal} {solution}"
    if way < 0.6:
        made = errand(rng, held=False)
        return f"{made.story} {made.wrong if rng.random() < SLIP else made.word}."
    if way < 0.88:
        return " ".join(_plain(rng) for _ in range(rng.randint(2, 4)))
    return _kinds(rng)


def _plain(rng: random.Random) -> str:
    """A sentence that says what somebody uses for something."""
    verb, kind, thing = _use(rng, held=False)
    tool = TOOLS[verb][kind] if rng.random() >= SLIP else rng.choice(list(TOOLS[verb].values()))
    name, look = rng.choice(NAMES), rng.choice(LOOKS)
    return rng.choice(
        (
            f"To {verb} {a(thing)}, use {a(tool)}.",
            f"{name} wants to {verb} the {look} {thing}. {capital(pronoun(name))} takes {a(tool)}.",
            f"With {a(tool)} you can {verb} the {thing}.",
        )
    )


def _kinds(rng: random.Random) -> str:
    """Sentences that say of what kind things are."""
    kind = rng.choice(list(THINGS))
    one, two = rng.sample(THINGS[kind], 2)
    return rng.choice(
        (
            f"{capital(a(one))} is a thing of {kind}, and so is {a(two)}.",
            f"The {one} and the {two} are both {kind}.",
            f"The {rng.choice(LOOKS)} {one} is {kind}, like the {two}.",
        )
    )
