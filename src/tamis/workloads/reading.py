"""A workload file as a whole: TOML, decoded table by table, then checked together."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tamis.errors import FilterSyntaxError, TamisError, WorkloadError
from tamis.events import Attribute, Schema
from tamis.events.schema import did_you_mean
from tamis.languages import parse
from tamis.mismatches import find_mismatch
from tamis.workloads.declarations import (
    AnyDeclaration,
    AttributeSource,
    Choices,
    Form,
    Group,
    PoolDeclaration,
    Tables,
    Weighted,
    names_in,
)
from tamis.workloads.distributions import Distribution, Listed, WeightedRanks, Window
from tamis.workloads.drawing import Drawer
from tamis.workloads.grammar import MAX_DRAWS, START, Alternative, Grammar, Pool
from tamis.workloads.limits import Mistake, Usage, check_file_text, check_limit
from tamis.workloads.templates import Names

MAX_ATTRIBUTES: Final = 1024
"""Also the default limit for an event."""

T = TypeVar("T")


class Description(NamedTuple):
    """What a workload file says."""

    attributes: dict[str, AttributeSource]
    forms: tuple[Form, ...]
    grammar: Grammar
    schema: Schema


def read_workload(source: str, text: str) -> Description:
    """Read the text of a workload file."""
    try:
        return _described(_tables(text))
    except Mistake as error:
        raise WorkloadError(error.reason, source=source, key=error.key, hint=error.hint) from None


def _tables(text: str) -> Tables:
    check_file_text(text)
    try:
        raw = tomllib.loads(text, parse_float=_decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Mistake(
            "", f"this is not TOML: {error}", "quote texts, and keys with signs"
        ) from None
    tables: Tables = _decoded("", raw, Tables)
    return tables


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        # Its exponent is too large for Decimal, so it is infinite or 0.
        return Decimal(float(text))


def _described(tables: Tables) -> Description:
    usage = Usage()
    values: dict[str, Distribution | Window] = {}
    for name, raw in tables.values.items():
        values[name] = _value(f"values.{name}", raw, values)
        _count_values(f"values.{name}", values[name], usage)
    attributes = _attributes(tables.attributes, values, usage)
    taken: dict[str, str] = {}
    sections: dict[str, Iterable[str]] = {
        "attributes": attributes,
        "values": values,
        "rules": tables.rules,
        "pools": tables.pools,
    }
    for section, names in sections.items():
        for name in names:
            if name in taken:
                raise Mistake(f"{section}.{name}", f"{taken[name]} has this name", "rename one")
            taken[name] = f"{section}.{name}"
    grammar = _grammar(tables, attributes, values, usage)
    _check_grammar(grammar)
    schema = Schema(
        {
            name: Attribute(source.distribution.type, None, source.is_many)
            for name, source in attributes.items()
        }
    )
    _check_filters(grammar, schema)
    return Description(attributes, _forms(tables.events, attributes, usage), grammar, schema)


# --- sections ------------------------------------------------------------------------------------


def _value(
    key: str, raw: object, known: Mapping[str, Distribution | Window]
) -> Distribution | Window:
    declared: AnyDeclaration = _decoded(key, raw, AnyDeclaration)
    if declared.present < 1 or declared.many != (1, 1):
        raise Mistake(key, "only attributes have present and many", "move them to an attribute")
    return declared.build(key, known)


def _count_values(key: str, found: Distribution | Window, usage: Usage) -> None:
    ranks = found.starts.ranks if isinstance(found, Window) else found.ranks
    if isinstance(ranks, WeightedRanks):
        usage.add(key, "weights", ranks.size)
    if isinstance(found, Distribution) and isinstance(found.values, Listed):
        usage.add(key, "texts", ranks.size)


def _attributes(
    raw: Mapping[str, object], known: Mapping[str, Distribution | Window], usage: Usage
) -> dict[str, AttributeSource]:
    found: dict[str, AttributeSource] = {}
    for names, table in raw.items():
        key = f"attributes.{names}"
        source = AttributeSource.of(key, _decoded(key, table, AnyDeclaration), known)
        _count_values(key, source.distribution, usage)
        for name in names_in(key, names):
            if name in found:
                raise Mistake(key, f"{name} is declared twice", "remove one of them")
            found[name] = source
        if len(found) > MAX_ATTRIBUTES:
            break
    if not 1 <= len(found) <= MAX_ATTRIBUTES:
        raise Mistake("attributes", f"a workload has 1 to {MAX_ATTRIBUTES:,} attributes")
    return found


def _grammar(
    tables: Tables,
    attributes: Mapping[str, AttributeSource],
    values: Mapping[str, Distribution | Window],
    usage: Usage,
) -> Grammar:
    distributions = {name: source.distribution for name, source in attributes.items()}
    names = Names(distributions, values, {*tables.rules, *tables.pools})
    rules = {}
    for name, raw in tables.rules.items():
        key = f"rules.{name}"
        choices = Weighted.of(key, _decoded(key, raw, Choices))
        usage.add(key, "alternatives", len(choices.texts))
        rules[name] = tuple(
            Alternative(template, chance, names.parts(key, template))
            for template, chance in zip(*choices, strict=True)
        )
        usage.add(key, "words in templates", sum(len(way.parts) for way in rules[name]))
    pools = {}
    for name, raw in tables.pools.items():
        declared = _decoded(f"pools.{name}", raw, PoolDeclaration)
        if declared.of not in rules:
            hint = did_you_mean(declared.of, rules)
            raise Mistake(f"pools.{name}.of", f"there is no rule {declared.of}", hint)
        if declared.zipf:
            usage.add(f"pools.{name}", "weights", declared.size)
        pools[name] = Pool(declared.of, declared.ranks())
    if START not in rules:
        raise Mistake("rules", f'"{START}" is missing', f'add {START} = "price < {{price}}"')
    return Grammar(rules, pools)


def _forms(
    raw: list[Any], attributes: Mapping[str, AttributeSource], usage: Usage
) -> tuple[Form, ...]:
    if not raw:
        return (Form(list(attributes)),)
    check_limit("events", "forms", len(raw))
    forms = [_form(f"events[{n}]", each, attributes, usage) for n, each in enumerate(raw)]
    total = sum(form.weight for form in forms)
    chosen = Counter(name for form in forms for group in form.choose for name in group.of)
    named = {name for form in forms for name in form.has}
    for name, times in chosen.items():
        source = attributes[name]
        if name in named or times > 1 or source.is_many or source.present < 1:
            raise Mistake(
                "events",
                f"{name} is in a choose, so it can be nowhere else and has no present or many",
            )
    for name in attributes:
        if name not in named and name not in chosen:
            raise Mistake("events", f"no event has the attribute {name}", "add it to a form")
    return tuple(Form(form.has, form.choose, form.weight / total) for form in forms)


def _form(key: str, raw: object, attributes: Mapping[str, AttributeSource], usage: Usage) -> Form:
    declared = _decoded(key, raw, Form)
    groups = [
        Group(group.count, _existing(f"{key}.choose", group.of, attributes, usage))
        for group in declared.choose
    ]
    form = Form(_existing(f"{key}.has", declared.has, attributes, usage), groups, declared.weight)
    names = form.all_names()
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise Mistake(key, f"{twice} is in this form twice", "remove one of them")
    for group in groups:
        if group.count > len(group.of):
            raise Mistake(f"{key}.choose", f"{group.count} of {len(group.of)} are too many")
    return form


def _existing(
    key: str, names: Iterable[str], attributes: Mapping[str, object], usage: Usage
) -> list[str]:
    found: list[str] = []
    for each in names:
        several = names_in(key, each)
        usage.add(key, "attributes in forms", len(several))
        for name in several:
            if name not in attributes:
                hint = did_you_mean(name, attributes)
                raise Mistake(key, f"there is no attribute {name}", hint or "declare it")
        found += several
    return found


# --- decoding ------------------------------------------------------------------------------------

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`")
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_TYPES: Final = ("int", "float", "str", "bool", "timestamp")
_TOML_WORDS: Final = {"object": "a table", "array": "a list", "decimal": "a number"}


def _decoded(key: str, raw: object, type_: Any) -> Any:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as error:
        path = str(error).partition(" - at `$")[2]
        inner = path.rstrip("`").replace("[...]", "")
        raise _mistake((key + inner).lstrip("."), error, raw, type_) from None


def _mistake(key: str, error: msgspec.ValidationError, raw: object, type_: Any) -> Mistake:
    """Translate an error of msgspec to the terms of TOML."""
    reason = str(error).partition(" - at `$")[0]
    if found := _UNKNOWN.fullmatch(reason):
        fields = _fields(raw, type_)
        hint = did_you_mean(found[1], fields) or f"the keys here are {', '.join(fields)}"
        return Mistake(f"{key}.{found[1]}".lstrip("."), "this key has no meaning here", hint)
    if found := _MISSING.fullmatch(reason):
        return Mistake(key, f'"{found[1]}" is missing', "add it")
    if reason.startswith("Invalid value") and key.endswith(".type"):
        given = reason[14:].strip("'")
        return Mistake(key, f'"{given}" is not a type', f"the types are {', '.join(_TYPES)}")
    return Mistake(key, f"it {find_mismatch(error, words=_TOML_WORDS).reason}")


def _fields(raw: object, type_: Any) -> list[str]:
    options = getattr(type_, "__args__", (type_,))
    for struct in options:
        tag = struct.__struct_config__.tag
        if tag is None or (isinstance(raw, dict) and raw.get("type") == tag):
            return list(struct.__struct_encode_fields__)
    return []


# --- checks ---------------------------------------------------------------------------------------


_CHECK_SEED: Final = 0


def _check_grammar(grammar: Grammar) -> None:
    """Refuse a grammar that cannot make filters."""
    check_limit("rules", "rules", len(grammar.rules))
    check_limit("pools", "pools", len(grammar.pools))
    reached, heights = grammar.reachable(START), grammar.heights()
    for name in grammar.names():
        key = f"{'pools' if name in grammar.pools else 'rules'}.{name}"
        if name not in reached:
            raise Mistake(key, f"nothing leads from {START} to it", "use it or remove it")
        if heights[name] == inf:
            raise Mistake(key, "it never ends", "add an alternative that leads to no rule")
        if name in grammar.pools and name in grammar.reachable(grammar.pools[name].rule):
            raise Mistake(key, "the pool is made of its own conditions", "take another rule")
    for name, draws in grammar.expected_draws().items():
        if draws > MAX_DRAWS:
            raise Mistake(
                f"rules.{name}",
                f"it grows without end: on average it takes more than {MAX_DRAWS:,} choices",
                "make alternatives that end more likely",
            )
    for name, words in grammar.expected_words().items():
        check_limit(f"rules.{name}", "words in a filter, on average", words)


def _check_filters(grammar: Grammar, schema: Schema) -> None:
    """Refuse an alternative that makes filters that cannot be parsed or contradict the schema."""
    usage = Usage()
    drawer = Drawer(grammar, _CHECK_SEED, checking=usage)
    for rule, number, path in _paths(grammar):
        template = f"{grammar.rules[rule][number].template:.120}"
        try:
            text = drawer.forced(path | {rule: number})
        except ValueError as error:
            raise Mistake(f"rules.{rule}", f'"{template}": {error}', "ask for fewer") from None
        usage.add(f"rules.{rule}", "characters of filters to check", len(text))
        try:
            parse(text).bind(schema)
        except TamisError as error:
            reason = error.reason if isinstance(error, FilterSyntaxError) else str(error)
            raise Mistake(
                f"rules.{rule}",
                f'"{template}" makes filters such as {text:.120}, which cannot be used: {reason}',
            ) from None


def _paths(grammar: Grammar) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yield each alternative with the alternatives that lead to its rule from the start."""
    paths: dict[str, dict[str, int]] = {START: {}}
    pending = [START]
    for name in pending:
        if name in grammar.pools:
            steps = [(grammar.pools[name].rule, paths[name])]
        else:
            steps = []
            for number, way in enumerate(grammar.rules[name]):
                yield name, number, paths[name]
                steps += [(found, paths[name] | {name: number}) for found in way.references()]
        for found, path in steps:
            if found not in paths:
                paths[found] = path
                pending.append(found)
