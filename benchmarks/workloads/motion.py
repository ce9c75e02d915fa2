"""Profiles of users, communities and artefacts, and subscriptions to them, as in MOTION.

A subscription asks for some of what one profile has, so that it matches at least that one. It is
written in XQL and, for lxml, in XPath.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

CITIES: Final = {
    "Wien": 1000,
    "Graz": 8000,
    "Milano": 20100,
    "L'Aquila": 67100,
    "Pittsburgh": 15200,
}
ROLES: Final = ("manager", "engineer", "reviewer", "guest", "author")
TYPES: Final = ("pdf", "doc", "cad", "code", "mail", "sheet")
STATES: Final = ("draft", "review", "final", "withdrawn")
LANGUAGES: Final = ("en", "de", "it", "fr")
NAMES: Final = 500
WORDS: Final = 1_000
LINKED: Final = 0.12
"""How many subscriptions ask for several values of one element that may occur several times."""
QUANTIFIED: Final = 0.04
PLACED: Final = 0.01


class MotionSubscription(NamedTuple):
    """A subscription in both languages."""

    xql: str
    xpath: str


class Element(NamedTuple):
    """An element, its text, and the elements in it."""

    name: str
    text: str = ""
    inside: tuple[Element, ...] = ()

    def __str__(self) -> str:
        return f"<{self.name}>{self.text}{''.join(map(str, self.inside))}</{self.name}>"


class Motion:
    """Draws profiles and subscriptions."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    # --- profiles ------------------------------------------------------------------------------

    def artefact(self) -> Element:
        """Return the profile of a shared document."""
        random = self._random
        inside = [
            Element("Title", f"{self._word()} {self._word()}"),
            Element("Type", random.choice(TYPES)),
            Element("Size", str(int(random.lognormvariate(10, 2)))),
            Element("Language", random.choice(LANGUAGES)),
            Element("Owner", inside=(Element("Name", self._name()), self._address())),
            *(Element("Keyword", self._word()) for _ in range(random.randint(1, 5))),
            *(self._version(number) for number in range(random.randint(1, 4))),
            *(self._review() for _ in range(random.randint(0, 3))),
        ]
        return Element("Artefact", inside=tuple(inside))

    def user(self) -> Element:
        """Return the profile of a user."""
        random = self._random
        inside = [
            Element("Name", self._name()),
            Element("Sex", random.choice(("female", "male"))),
            *(Element("Role", each) for each in random.sample(ROLES, random.randint(1, 2))),
            *(self._address() for _ in range(random.randint(1, 3))),
        ]
        return Element("User", inside=tuple(inside))

    def community(self) -> Element:
        """Return the profile of a community."""
        random = self._random
        inside = [
            Element("Name", self._word()),
            *(Element("Topic", self._word()) for _ in range(random.randint(1, 3))),
            *(self._member() for _ in range(random.randint(2, 6))),
        ]
        return Element("Community", inside=tuple(inside))

    def _address(self) -> Element:
        city = self._random.choice([*CITIES])
        zip_ = CITIES[city] + self._random.randrange(100)
        return Element("Address", inside=(Element("Zip", str(zip_)), Element("City", city)))

    def _version(self, number: int) -> Element:
        fields = {
            "Number": str(number + 1),
            "Author": self._name(),
            "State": self._random.choice(STATES),
            "Changed": f"2002-{self._random.randint(1, 12):02}-{self._random.randint(1, 28):02}",
        }
        return Element("Version", inside=tuple(Element(*item) for item in fields.items()))

    def _review(self) -> Element:
        fields = {"Author": self._name(), "Grade": str(self._random.randint(1, 5))}
        return Element("Review", inside=tuple(Element(*item) for item in fields.items()))

    def _member(self) -> Element:
        fields = {"Name": self._name(), "Role": self._random.choice(ROLES)}
        return Element("Member", inside=tuple(Element(*item) for item in fields.items()))

    def _name(self) -> str:
        return f"n{self._drawn(NAMES)}"

    def _word(self) -> str:
        return f"w{self._drawn(WORDS)}"

    def _drawn(self, count: int) -> int:
        """Return a number of which small ones are more frequent: half are in the first quarter."""
        return int(count * self._random.random() ** 2)

    # --- subscriptions -------------------------------------------------------------------------

    def subscription(self) -> MotionSubscription:
        """Return a subscription to profiles like one of any kind."""
        random = self._random
        profile = random.choice((self.user, self.community, self.artefact))()
        plain = [each for each in profile.inside if not each.inside]
        nested = [each for each in profile.inside if each.inside]
        chosen = random.sample(plain, min(len(plain), random.randint(2, 3)))
        parts = [self._test(each) for each in chosen]
        kind = random.random()
        repeated = random.choice(nested)
        if kind < LINKED:
            parts.append(self._linked(repeated))
        elif kind < LINKED + QUANTIFIED:
            parts.append(self._quantified(profile, repeated))
        elif kind < LINKED + QUANTIFIED + PLACED:
            parts.append(self._placed(profile, repeated))
        else:
            xql, xpath = self._test(random.choice(repeated.inside))
            parts.append(MotionSubscription(f"{repeated.name}/{xql}", f"{repeated.name}/{xpath}"))
        random.shuffle(parts)
        return MotionSubscription(
            f"/{profile.name}[{' $and$ '.join(part.xql for part in parts)}]",
            f"/{profile.name}[{' and '.join(part.xpath for part in parts)}]",
        )

    def _test(self, element: Element) -> MotionSubscription:
        """Return a test that an element passes: of its text, or of one in it."""
        if element.inside:
            inner = self._test(self._random.choice(element.inside))
            return MotionSubscription(*(f"{element.name}/{each}" for each in inner))
        if not element.text.isdecimal():
            quote = '"' if "'" in element.text else "'"
            test = f"{element.name} = {quote}{element.text}{quote}"
            return MotionSubscription(test, test)
        op, number = self._random.choice((("=", 0), (">", -1), ("<", 1), (">=", 0), ("<=", 0)))
        test = f"{element.name} {op} {int(element.text) + number}"
        return MotionSubscription(test, test)

    def _linked(self, element: Element) -> MotionSubscription:
        two = self._random.sample(element.inside, 2)
        tests = [self._test(each) for each in two]
        return MotionSubscription(
            f"{element.name}[{' $and$ '.join(test.xql for test in tests)}]",
            f"{element.name}[{' and '.join(test.xpath for test in tests)}]",
        )

    def _quantified(self, profile: Element, element: Element) -> MotionSubscription:
        """Return a test that all elements of a name pass."""
        field = self._random.choice(element.inside).name
        texts = [
            inner.text
            for each in profile.inside
            if each.name == element.name
            for inner in each.inside
            if inner.name == field
        ]
        path = f"{element.name}/{field}"
        if not all(text.isdecimal() for text in texts):
            quote = '"' if "'" in texts[0] else "'"
            absent = f"{quote}{texts[0]}x{quote}"
            return MotionSubscription(f"$all$ {path} != {absent}", f"not({path} = {absent})")
        least = min(map(int, texts))
        return MotionSubscription(f"$all$ {path} >= {least}", f"not({path} < {least})")

    def _placed(self, profile: Element, element: Element) -> MotionSubscription:
        """Return a test of the first element of a name."""
        first = next(each for each in profile.inside if each.name == element.name)
        test = self._test(self._random.choice(first.inside))
        return MotionSubscription(f"{first.name}[0]/{test.xql}", f"{first.name}[1]/{test.xpath}")
