"""Detection rules in the manner of SigmaHQ's, as Tamis filters and as SQLite conditions.

A rule belongs to a category of log events, which pins down the event id. It has one to three
selections, which all must hold, and up to two exceptions, of which none may. A selection tests
fields for lists of texts, without regard to case: endings of paths, parts of command lines (one of
them, or all of them), beginnings, whole texts, wildcards, and a few regular expressions. Some rules
repeat others, or narrow them down, as they do in collections that people write.

Texts and events are ASCII: SQLite's LIKE ignores case only there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

_SYLLABLES: Final = (
    *("ad", "be", "cor", "dal", "ex", "fi", "gan", "hol", "in", "jor", "ka", "lum", "mi", "net"),
    *("ob", "pro", "qui", "reg", "ser", "tas", "un", "vis", "win", "xen", "yl", "zu", "log", "run"),
)
_FOLDERS: Final = ("Windows", "System32", "Users", "Temp", "AppData", "Public", "ProgramData")
_FLAGS: Final = ("-enc", "/c", "--install", "-ep bypass", "/add", "-nop", "-w hidden", "delete")

PATH, COMMAND, SCRIPT, KEY, HOST, WORD = "path", "command", "script", "key", "host", "word"


class Category(NamedTuple):
    """A kind of log events: its event id, its share of the rules, and its fields."""

    event_id: int
    share: float
    fields: dict[str, str]


CATEGORIES: Final = (
    Category(
        1,
        0.50,
        {
            "Image": PATH,
            "CommandLine": COMMAND,
            "ParentImage": PATH,
            "ParentCommandLine": COMMAND,
            "OriginalFileName": WORD,
            "User": WORD,
        },
    ),
    Category(13, 0.10, {"TargetObject": KEY, "Details": COMMAND, "Image": PATH}),
    Category(11, 0.10, {"TargetFilename": PATH, "Image": PATH}),
    Category(7, 0.07, {"ImageLoaded": PATH, "Image": PATH}),
    Category(3, 0.05, {"DestinationHostname": HOST, "Image": PATH, "DestinationPort": WORD}),
    Category(22, 0.03, {"QueryName": HOST, "Image": PATH}),
    Category(4104, 0.15, {"ScriptBlockText": SCRIPT}),
)


ANY_FIELD: Final = "any"
"""The field of a test that looks at all of them, as Sigma's keywords do."""


class Test(NamedTuple):
    """Some texts in one field: one of them, or all, has to be there."""

    field: str
    op: str
    """contains, starts with, ends with, =, like or matches."""
    texts: tuple[str, ...]
    all_: bool = False

    def tamis(self) -> str:
        """Return the test in the Tamis language."""
        if self.op == "=" and len(self.texts) > 1:
            return f"{self.field} ~in ({', '.join(map(_quoted, self.texts))})"
        word = " and " if self.all_ else " or "
        tests = [f"{self.field} ~{self.op} {_quoted(text)}" for text in self.texts]
        return f"({word.join(tests)})" if len(tests) > 1 else tests[0]

    def sql(self) -> str:
        """Return the test as an SQL condition, as pySigma's backend for SQLite writes it."""
        names = columns()[1:] if self.field == ANY_FIELD else [self.field]
        tests = [
            "(" + " OR ".join(f"{name} {self._sql(text)}" for name in names) + ")"
            for text in self.texts
        ]
        return f"({(' AND ' if self.all_ else ' OR ').join(tests)})"

    def _sql(self, text: str) -> str:
        literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        pattern = {
            "contains": f"%{literal}%",
            "starts with": f"{literal}%",
            "ends with": f"%{literal}",
            "=": literal,
            "like": text,
        }
        if self.op == "matches":
            return f"REGEXP {_sql_text(text)}"
        return f"LIKE {_sql_text(pattern[self.op])} ESCAPE '\\'"


class Rule(NamedTuple):
    """Selections that all must hold, and exceptions of which none may."""

    event_id: int
    selections: tuple[Test, ...]
    exceptions: tuple[Test, ...]

    def tamis(self) -> str:
        """Return the rule as a Tamis filter."""
        parts = [f"EventID = {self.event_id}", *(test.tamis() for test in self.selections)]
        parts += [f"not {_in_parentheses(test.tamis())}" for test in self.exceptions]
        return " and ".join(parts)

    def sql(self) -> str:
        """Return the rule as an SQL condition."""
        parts = [f"EventID = {self.event_id}", *(test.sql() for test in self.selections)]
        return " AND ".join([*parts, *(f"NOT {test.sql()}" for test in self.exceptions)])


def _in_parentheses(text: str) -> str:
    return text if text.startswith("(") else f"({text})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Words:
    """Texts of the kinds that fields hold, from a vocabulary of some size."""

    def __init__(self, rng: Random, size: int) -> None:
        self._rng = rng
        self._words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 3))) for _ in range(size)]

    def word(self) -> str:
        """Return a word; some are frequent."""
        return self._words[int(len(self._words) * self._rng.random() ** 2)]

    def text(self, kind: str) -> str:
        """Return the whole text of a field."""
        rng = self._rng
        match kind:
            case "path":
                folders = "\\".join((rng.choice(_FOLDERS), self.word())[: rng.randint(1, 2)])
                return f"C:\\{folders}\\{self.word()}.{rng.choice(('exe', 'dll', 'ps1'))}"
            case "command":
                return f"{self.word()}.exe {self._several(8)}"
            case "script":
                return "; ".join(self._several(6) for _ in range(rng.randint(2, 12)))
            case "key":
                return f"HKLM\\SOFTWARE\\{rng.choice(_FOLDERS)}\\{self.word()}\\{self.word()}"
            case "host":
                return f"{self.word()}.{self.word()}.com"
            case _:
                return self.word()

    def _several(self, most: int) -> str:
        rng = self._rng
        count = rng.randint(2, most)
        return " ".join(
            self.word() if rng.random() < 0.7 else rng.choice(_FLAGS) for _ in range(count)
        )

    def part(self, kind: str) -> str:
        """Return a part that texts of a kind may contain."""
        rng = self._rng
        if kind in (COMMAND, SCRIPT):
            words = f"{self.word()} {self.word()}"
            return rng.choice((f" {self.word()}", rng.choice(_FLAGS), words))
        return {PATH: "\\{}", KEY: "\\{}\\", HOST: "{}."}.get(kind, "{}").format(self.word())

    def ending(self, kind: str) -> str:
        """Return an ending that texts of a kind may have."""
        endings = {PATH: "\\{}.exe", KEY: "\\{}", HOST: ".{}.com", COMMAND: " {}", SCRIPT: " {}"}
        return endings.get(kind, "{}").format(self.word())


def rules(count: int, seed: int) -> list[Rule]:
    """Draw rules."""
    rng = Random(f"rules {seed}")
    words = _Words(rng, max(40, count))
    found: list[Rule] = []
    for _ in range(count):
        roll = rng.random()
        if found and roll < 0.02:
            found.append(_shuffled(rng, rng.choice(found)))
        elif found and roll < 0.04:
            found.append(_narrowed(rng, words, rng.choice(found)))
        else:
            found.append(_rule(rng, words))
    return found


def keyword_rules(count: int, seed: int, vocabulary: int) -> list[Rule]:
    """Draw rules that look for keywords in any field; the words are those of other rules."""
    words = _Words(Random(f"rules {seed}"), max(40, vocabulary))
    rng = words._rng = Random(f"keywords {seed}")  # noqa: SLF001 - the same words, drawn otherwise
    return [_keyword_rule(rng, words) for _ in range(count)]


def _keyword_rule(rng: Random, words: _Words) -> Rule:
    (category,) = rng.choices(CATEGORIES, [c.share for c in CATEGORIES])
    texts = _distinct(words.word() for _ in range(rng.choice((1, 1, 2, 3))))
    test = Test(ANY_FIELD, "contains", texts, all_=rng.random() < 0.4)
    return Rule(category.event_id, (test,), ())


def _rule(rng: Random, words: _Words) -> Rule:
    (category,) = rng.choices(CATEGORIES, [c.share for c in CATEGORIES])
    selections = [_test(rng, words, category) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    exceptions = [_test(rng, words, category) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    return Rule(category.event_id, tuple(selections), tuple(exceptions))


def _test(rng: Random, words: _Words, category: Category) -> Test:
    field = rng.choice([*category.fields])
    kind = category.fields[field]
    roll = rng.random()
    many = rng.choice((1, 1, 2, 3, 4, 8))
    if roll < 0.45:
        # All of many parts would match nothing.
        all_ = kind in (COMMAND, SCRIPT) and rng.random() < 0.4
        count = min(many, 3) if all_ else many
        return Test(field, "contains", _distinct(words.part(kind) for _ in range(count)), all_)
    if roll < 0.80:
        return Test(field, "ends with", _distinct(words.ending(kind) for _ in range(many)))
    if roll < 0.86:
        return Test(field, "starts with", (words.text(kind)[: rng.randint(4, 14)],))
    if roll < 0.91:
        return Test(field, "=", _distinct(words.text(kind) for _ in range(many)))
    if roll < 0.96:
        return Test(field, "like", (f"%{words.word()}%{words.word()}%",))
    pattern = rng.choice((r"{}\.[a-z]{{3}} .*{}", r"\\{}[0-9]*\.(exe|dll)", r"(^| )(-|/){} ?{}"))
    return Test(field, "matches", (pattern.format(words.word(), words.word()),))


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _shuffled(rng: Random, rule: Rule) -> Rule:
    selections = []
    for test in rule.selections:
        texts = tuple(rng.sample(test.texts, len(test.texts)))
        selections.append(test._replace(texts=texts))
    rng.shuffle(selections)
    return rule._replace(selections=tuple(selections))


def _narrowed(rng: Random, words: _Words, rule: Rule) -> Rule:
    (category,) = (c for c in CATEGORIES if c.event_id == rule.event_id)
    return rule._replace(selections=(*rule.selections, _test(rng, words, category)))


def events(count: int, seed: int, vocabulary: int) -> list[dict[str, object]]:
    """Draw log events that rules drawn with the same seed, and this many of them, may match."""
    words = _Words(Random(f"rules {seed}"), max(40, vocabulary))
    rng = words._rng = Random(f"events {seed}")  # noqa: SLF001 - the same words, drawn otherwise
    return [_event(rng, words) for _ in range(count)]


def _event(rng: Random, words: _Words) -> dict[str, object]:
    (category,) = rng.choices(CATEGORIES, [c.share for c in CATEGORIES])
    event: dict[str, object] = {"EventID": category.event_id}
    for name, kind in category.fields.items():
        if rng.random() < 0.95:
            text = words.text(kind)
            event[name] = rng.choice((text, text, text.upper(), text.title()))
    return event


def columns() -> Sequence[str]:
    """Return the names of all fields."""
    return ["EventID", *dict.fromkeys(name for c in CATEGORIES for name in c.fields)]


def rows(found: Sequence[dict[str, object]]) -> Iterator[list[object]]:
    """Yield events as rows of a table."""
    names = columns()
    for event in found:
        yield [event.get(name) for name in names]
