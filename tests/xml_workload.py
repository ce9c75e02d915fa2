"""Random documents and queries in XQL, made so that they often have to do with each other."""

from __future__ import annotations

from random import Random
from typing import Final

NAMES: Final = "bcd"
TEXTS: Final = (
    *("", "5", "7", "5.0", " 7 ", "007", "-1", "1e1", "9223372036854775808", "x", "X", "y", "x  y"),
    *("2026-01-31", "2026-02-01", "2026-01-31T12:00:00Z", "stra\u00dfe", "STRASSE", "x" * 1_030),
    *("9" * 320, "0" * 450 + "5", "9007199254740993", "+5"),
)
LITERALS: Final = (
    *("5", "7", "-1", "6.5", "10", "9223372036854775807", "-9223372036854775809", "'x'", "'X'"),
    *("'5'", "'007'", "'x y'", "''", "date('2026-01-31')", "date('2026-01-31T12:00:00Z')"),
    *("'strasse'", "'" + "x" * 1_005 + "'"),
)
FEW_TEXTS: Final = ("5", "7", "x", "X")
FEW_LITERALS: Final = ("5", "7", "'x'", "'5'")
OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=", "$ieq$", "$ine$", "$ilt$", "$ige$", "$near$")
NAMESPACES: Final = {"n": "urn:n"}


def near(left: object, right: object) -> bool:
    """Compare as no operator of XQL does."""
    return str(left)[:1] == str(right)[:1]


def random_text(random: Random) -> str:
    """Return a text of a node: mostly one of few, so that queries find it."""
    return random.choice(FEW_TEXTS if random.random() < 0.6 else TEXTS)


def random_document(random: Random) -> str:
    """Return a document; its outermost element is mostly called `a`."""
    if random.random() < 0.5:
        return f"<a>{''.join(_record(random) for _ in range(random.randint(1, 4)))}</a>"
    name = "a" if random.random() < 0.9 else random.choice(NAMES)
    return _element(random, name, random.randint(1, 3))


def _record(random: Random) -> str:
    """Return an element with values, some of them several times."""
    values = [
        f"<{name}>{random.choice(FEW_TEXTS)}</{name}>"
        for name in "bcd"
        for _ in range(random.choice((0, 1, 1, 1, 2)))
    ]
    random.shuffle(values)
    inside = f"<b><c>7</c>{''.join(values[:2])}</b>" if random.random() < 0.3 else ""
    return f'<b p="{random.choice(FEW_TEXTS)}">{"".join(values)}{inside}</b>'


def _element(random: Random, name: str, depth: int) -> str:
    is_in_namespace = random.random() < 0.1
    shown = f"n:{name}" if is_in_namespace else name
    declared = ' xmlns:n="urn:n"' if is_in_namespace else ""
    attributes = "".join(
        f' {each}="{random_text(random)}"' for each in "pq" if random.random() < 0.4
    )
    children = [
        _element(random, random.choice(NAMES), depth - 1)
        for _ in range(random.choice((0, 1, 2, 3, 3)) if depth else 0)
    ]
    parts = [random_text(random) if not children or random.random() < 0.1 else ""]
    for child in children:
        parts += [child, "<!--5-->" if random.random() < 0.1 else ""]
    return f"<{shown}{declared}{attributes}>{''.join(parts)}</{shown}>"


class RandomQueries:
    """Random queries, which use all that XQL has."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def query(self) -> str:
        kind = self._random.randrange(6)
        if kind > 3:
            start = self._random.choice(("a/b", "//b", "a//b", "a/b/b", "//*"))
            return f"{start}[{self._pair()}]{self._random.choice(('', '', '/c', '/d = 5'))}"
        return self._path(2, is_inner=False) if kind else self._condition(2, is_inner=False)

    def _path(self, depth: int, *, is_inner: bool) -> str:
        random = self._random
        found = ""
        if not is_inner:
            found = random.choice(("/a/", "a/", "//", "a[", "", "(a)/", "./a//"))
            if found == "a[":
                return f"a[{self._condition(depth)}]"
        elif random.random() < 0.25:
            found = random.choice((".//", "/a/", "//", "./"))
        for number in range(random.choice((1, 1, 2, 3))):
            separator = random.choice(("/", "/", "/", "//")) if number else ""
            found += separator + self._step(depth)
        if random.random() < 0.05 and depth:
            other = self._path(depth - 1, is_inner=is_inner)
            return f"({found} {random.choice(('|', '$intersect$'))} {other})"
        return found

    def _step(self, depth: int) -> str:
        random = self._random
        kind = random.randrange(24)
        if kind < 2:
            return ("..", ".")[kind]
        if kind < 5:
            return random.choice(("@p", "@q", "@*"))
        if kind == 5:
            return random.choice(("ancestor(b)", "element()", "textNode()", "id('x')", "node()"))
        if kind == 6 and depth:
            return f"({self._path(depth - 1, is_inner=True)})"
        found: str = random.choice((*NAMES, *NAMES, "*", "n:b", "element('b')"))
        for _ in range(random.choice((0, 0, 1, 1, 2)) if depth else 0):
            is_place = random.random() < 0.15
            found += self._place() if is_place else f"[{self._condition(depth - 1)}]"
        return found

    def _place(self) -> str:
        random = self._random
        first = random.randint(0, 2)
        return random.choice(
            (f"[{first}]", f"[{-1 - first}]", "[0 $to$ 1]", f"[index() > {first}]", "[end()]")
        )

    def _condition(self, depth: int, *, is_inner: bool = True) -> str:
        random = self._random
        kind = random.randrange(10 if depth > 0 else 4)
        if kind == 0:
            return self._path(depth, is_inner=is_inner)
        if kind <= 3:
            return self._comparison(depth, is_inner=is_inner)
        if kind >= 8 and is_inner:
            return self._pair()
        one = self._condition(depth - 1, is_inner=is_inner)
        if kind == 4:
            return f"$not$ ({one})"
        other = self._condition(depth - 1, is_inner=is_inner)
        return f"({one}) {'$or$' if kind == 5 else '$and$'} ({other})"

    def _pair(self) -> str:
        """Return tests that one element has to pass together."""
        random = self._random
        places = (*NAMES, "@p", "@q", "b/c", ".", "b[c = 7]")
        ops = "=", random.choice(("=", "<", "<=", ">", ">=", "$ieq$")), random.choice(OPERATORS)
        tests = [
            f"{random.choice(places)} {op} {random.choice(FEW_LITERALS)}"
            for op in ops[: random.choice((2, 2, 3))]
        ]
        random.shuffle(tests)
        return " $and$ ".join(tests)

    def _comparison(self, depth: int, *, is_inner: bool) -> str:
        random = self._random
        op = random.choice(("=", "=", "=", *OPERATORS))
        path = self._path(max(depth - 1, 0), is_inner=is_inner)
        if is_inner and random.random() < 0.4:
            path = random.choice((*NAMES, "@p", "@q", ".", "text()", "rawText()", "b/c"))
        if random.random() < 0.1 and not path.endswith(")"):
            path += random.choice(("!text()", "!count()", "!nodeName()", "!index()"))
        right = random.choice(FEW_LITERALS if random.random() < 0.5 else LITERALS)
        if random.random() < 0.07:
            right = self._path(0, is_inner=is_inner)
        if random.random() < 0.1:
            path, right = right, path
        return f"{random.choice(('', '', '', '$all$ ', '$any$ '))}{path} {op} {right}"


class RandomXPaths:
    """Random queries in XPath."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def query(self) -> str:
        """Return a query."""
        random = self._random
        start = random.choice(
            ("/a/b", "//b", "/a", "//*", "/a//c", "/descendant::b", "/a/descendant::*")
        )
        kind = random.randrange(5)
        if kind == 0:
            return f"not({start}[{self._condition(2)}])"
        if kind == 1:
            return f"{start} {self._comparison_end()}"
        return f"{start}[{self._condition(2)}]{random.choice(('', '', '/c', '/@p', '/.. = 5'))}"

    def _condition(self, depth: int) -> str:
        random = self._random
        kind = random.randrange(10 if depth else 5)
        if kind < 3:
            return f"{self._path(depth)} {self._comparison_end()}"
        if kind == 3:
            return self._path(depth)
        if kind == 4:
            return random.choice(CONDITIONS_OF_XPATH)
        one = self._condition(depth - 1)
        if kind == 5:
            return f"not({one})"
        return f"({one}) {'or' if kind == 6 else 'and'} ({self._condition(depth - 1)})"

    def _path(self, depth: int) -> str:
        random = self._random
        if depth and random.random() < 0.2:
            return f"{random.choice('bcd')}[{self._condition(depth - 1)}]/{random.choice('bcd')}"
        paths = ("b", "c", "d", "@p", "@q", "@*", ".", "*", "b/c", ".//d", "..", "(b|c)", "//d")
        return random.choice(("c", "d", "@p", *paths, "following-sibling::b", "self::b", "n:b"))

    def _comparison_end(self) -> str:
        random = self._random
        op = random.choice(("=", "=", "=", "!=", "<", "<=", ">", ">="))
        return f"{op} {random.choice((*LITERALS_OF_XPATH, '5', '7', repr('x')))}"


CONDITIONS_OF_XPATH: Final = (
    *("position() = 1", "2", "last()", "count(c) > 1", "contains(c, 'x')", "true()", "'x'"),
    *("starts-with(@p, '5')", "string(d)", "number(c) = 5", "@p = c", "c = true()"),
)
LITERALS_OF_XPATH: Final = (
    *("6.5", "-1", "10", "'x'", "'X'", "' 7 '", "'5'", "'x  y'", "''", "9223372036854775808"),
    *("'stra\u00dfe'", "'" + "x" * 1_005 + "'", "9007199254740991", "c", "true()", "1 div 0"),
)
