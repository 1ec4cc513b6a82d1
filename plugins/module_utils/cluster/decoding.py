# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The one reader of texts and numbers that others have written into objects, each within bounds.

A tenant writes pods, workloads, budgets and their annotations, a kubelet its node and its pods. The
API server checks few of these texts, so what is read here is either as expected or ``None`` or
``UnreadableError``: whoever wrote it decides neither how long that takes nor what becomes of other
objects. Quantities are in ``quantities``.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import datetime
import functools
import ipaddress
import json
import operator
import re
import types
import typing as t

LONGEST = 2**21
"""Characters of a text; an API server stores no larger object."""
DEEPEST = 32
"""How deep a JSON value may be nested."""
LARGEST = 2**63 - 1
"""The largest number that the API has."""

MISREAD = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
"""What code raises that reads an object of another shape than it expects."""

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_DNS = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_TEXT = frozenset({str})
_WHOLE = re.compile(r"-?[0-9]{1,19}")

T = t.TypeVar("T")
P = t.ParamSpec("P")
Raw = t.Mapping[str, t.Any]
Shape = t.Any
"""What a part of an object has to look like, see ``fits``."""


class UnreadableError(ValueError):
    """A text is not what it should be; the message says why, without the text."""


class BadStateError(ValueError):
    """What we have written into an object ourselves cannot be parsed, and must not be guessed."""


def json_of(text: str) -> t.Any:
    """The value of a JSON text.

    Raises:
        UnreadableError: it is no JSON, too long, nested too deeply,
            or has text or numbers that JSON cannot have.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        raise UnreadableError(f"it is no text of at most {LONGEST} characters")
    try:
        value = _JSON.decode(text)
        level = [value]
        for _depth in range(DEEPEST):
            level = _below(level)
            if not level:
                return value
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not readable as JSON ({type(error).__name__})") from error
    raise UnreadableError(f"it is nested deeper than {DEEPEST} levels")


def _below(values: t.Iterable[t.Any]) -> list[t.Any]:
    """The values directly inside of these JSON values; texts and numbers among them are checked."""
    found, texts = list[t.Any](), list[str]()
    for value in values:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            found += value
            found += value.values()
        elif isinstance(value, list):
            found += value
        elif value is not None and not abs(value) <= LARGEST:
            raise UnreadableError("it has a number that is too large")
    "".join(texts).encode()  # half a surrogate pair could never be written again
    return found


def _no_number(text: str) -> t.NoReturn:
    raise UnreadableError(f"{text} is no JSON")


_JSON = json.JSONDecoder(parse_constant=_no_number)


def shaped(kind: type[T], value: t.Any, **given: t.Any) -> T:
    """A dataclass from a JSON object that has its fields, each of the type with
    which it is declared.

    Fields that are ``given`` are not among them.

    Raises:
        UnreadableError: it has other fields, or values of other types.
    """
    hints = _hints(t.cast("t.Any", kind))
    try:
        return kind(
            **{name: _typed(hints[name], one, name) for name, one in value.items()}, **given
        )
    except UnreadableError:
        raise
    except MISREAD as error:
        raise UnreadableError(f"its fields are not those of a {kind.__name__} ({error})") from error


@functools.cache
def _hints(kind: t.Any) -> dict[str, t.Any]:
    return t.get_type_hints(kind)


def _typed(hint: t.Any, value: t.Any, where: str) -> t.Any:
    """The value as a field with this type hint holds it."""
    if hint is t.Any or type(value) is hint:
        return value
    origin, parts = _generic(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return shaped(hint, value)
    if origin in (types.UnionType, t.Union):
        for part in parts:
            with contextlib.suppress(UnreadableError):
                return _typed(part, value, where)
    elif origin is t.Literal and value in parts:
        return value
    elif origin in (tuple, list) and isinstance(value, list):
        return origin(_typed(parts[0], one, where) for one in value)
    elif t.is_typeddict(hint) and isinstance(value, dict):
        return {key: _typed(_hints(hint)[key], one, f"{where}.{key}") for key, one in value.items()}
    elif origin is collections.abc.Mapping and isinstance(value, dict):
        return {key: _typed(parts[1], one, f"{where}.{key}") for key, one in value.items()}
    raise UnreadableError(f"{where} is of a wrong type")


@functools.cache
def _generic(hint: t.Any) -> tuple[t.Any, tuple[t.Any, ...]]:
    return t.get_origin(hint), t.get_args(hint)


def fits(value: t.Any, shape: Shape) -> bool:
    """Whether a part of an object has this shape; what is not set fits,
    and so does what the shape does not name.

    A shape is a type or some, a list with the shape of its items, a dictionary with the shapes of
    its fields (``...`` for that of all), or a function that decides.
    """
    if value is None:
        return True
    if isinstance(shape, dict):
        return isinstance(value, dict) and _fields_fit(value, shape)
    if isinstance(shape, list):
        return isinstance(value, (list, tuple)) and all(
            inner is not None and fits(inner, shape[0]) for inner in value
        )
    if isinstance(shape, (type, tuple)):
        return isinstance(value, shape) and (shape is not int or whole(value) is not None)
    return bool(shape(value))


def _fields_fit(value: Raw, shape: dict[t.Any, Shape]) -> bool:
    each = shape.get(...)
    if each is str:
        if not _TEXT.issuperset(map(type, value.values())):
            return False
    elif each is not None and not all(
        inner is not None and fits(inner, each) for inner in value.values()
    ):
        return False
    for key, part in shape.items():
        inner = value.get(key)
        if inner is None or (part is str and type(inner) is str):
            continue
        if key is not ... and not fits(inner, part):
            return False
    return True


def lenient(
    read: t.Callable[t.Concatenate[type[T], Raw, P], T],
) -> t.Callable[t.Concatenate[type[T], Raw, P], T]:
    """For what makes a dataclass of an object: its fields have the types that are
    declared (``readable``).
    """

    @functools.wraps(read)
    def reading(kind: type[T], raw: Raw, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def checked(raw: Raw) -> T:
            found = read(kind, raw, *args, **kwargs)
            values, kinds = _fields(t.cast("t.Any", kind))
            if not all(map(isinstance, values(found), kinds)):
                raise UnreadableError("a field is of a wrong type")
            return found

        return readable(checked, raw)

    return reading


@functools.cache
def _fields(kind: t.Any) -> tuple[t.Callable[[t.Any], tuple[t.Any, ...]], tuple[t.Any, ...]]:
    """What gives the fields of a dataclass, and the types that they have at run time."""
    hints = {
        name: hint for name, hint in _hints(kind).items() if t.get_origin(hint) is not t.ClassVar
    }
    return operator.attrgetter(*hints), tuple(map(_plain, hints.values()))


def _plain(hint: t.Any) -> tuple[type, ...]:
    origin = t.get_origin(hint) or hint
    if origin in (types.UnionType, t.Union):
        return tuple(one for part in t.get_args(hint) for one in _plain(part))
    return (dict if origin is collections.abc.Mapping else origin,)


NAMING = ("namespace", "name", "uid", "resourceVersion", "deletionTimestamp")
"""What the API server itself writes into the metadata of an object."""


def readable(read: t.Callable[[Raw], T], raw: Raw) -> T:
    """What ``read`` makes of an object: where it fails, without the parts over which it does.

    The key ``unreadable`` of the object then names these, such as ``spec.volumes,
    status.conditions``.
    """
    try:
        return read(raw)
    except MISREAD:
        return read(_salvaged(read, raw))


def _salvaged(read: t.Callable[[Raw], t.Any], raw: Raw) -> Raw:
    meta = raw["metadata"]
    found: dict[str, t.Any] = {
        "metadata": {key: meta[key] for key in NAMING if key in meta},
        "spec": {},
    }
    left_out = []
    for place, part in raw.items():
        for key, value in part.items() if isinstance(part, dict) else [("", part)]:
            inner = {**found.get(place, {}), key: value} if isinstance(part, dict) else value
            try:
                read({**found, place: inner})
                found[place] = inner
            except MISREAD:
                left_out.append(f"{place}.{key}".rstrip("."))
    return {**found, "unreadable": ", ".join(left_out)}


def fitting(value: T, shape: Shape) -> T:
    """The value, if it has this shape.

    Raises:
        UnreadableError: it has another one.
    """
    if shape is not None and not fits(value, shape):
        raise UnreadableError("it is of another shape")
    return value


def whole(value: t.Any) -> int | None:
    """A whole number of the API, also as text; ``None`` for anything else."""
    text = "" if isinstance(value, (bool, float)) else str(value)
    return int(text) if _WHOLE.fullmatch(text) and abs(int(text)) <= LARGEST else None


def share(value: t.Any, of: int) -> int | None:
    """A number, or a percentage of ``of``, rounded up, as in budgets;
    ``None`` for anything else.
    """
    if isinstance(value, str) and value.endswith("%"):
        percent = whole(value[:-1])
        return None if percent is None else -(-percent * of // 100)
    return whole(value)


def moment(value: t.Any) -> datetime.datetime | None:
    """A time of the API (RFC 3339), which has an offset; ``None`` for anything else.

    Also for one so far away that nothing can be added to it or subtracted from it.
    """
    try:
        found = datetime.datetime.fromisoformat(value)
        return found.astimezone(datetime.UTC) if 1 < found.year < 9999 and found.tzinfo else None
    except MISREAD:
        return None


def later(than: datetime.datetime, seconds: float) -> datetime.datetime | None:
    """The time so many seconds later; ``None`` if it is too late for a date."""
    try:
        return than + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return None


def host(text: str) -> str:
    """An IP address or a DNS name to connect to; empty for anything else,
    such as an option of ssh.
    """
    try:
        return "" if "%" in text else str(ipaddress.ip_address(text))
    except ValueError:
        return text if _DNS.fullmatch(text) else ""
