"""Open structs: typed where we know the shape, and nothing lost where we do not.

A `Record` is a frozen msgspec struct whose wire names are camelCase. Fields of the wire object
that the struct does not have are kept in `extra` (wire name to plain value, deeply immutable),
and come out again at the same level when the record is encoded. A block whose `type` is unknown
becomes an `Opaque`, which keeps the whole object.

The usual case, nothing unknown, is one C call each way; the slow road is taken only when that
fails or when a record carries something in `extra`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, NoReturn, TypeVar, cast, get_type_hints

import msgspec

from turnlog import jsontext
from turnlog.errors import InvalidPayload, NotJson
from turnlog.jsontext import is_array, is_object

# DEL begins both names, for a payload without it is told apart by one look for one byte.
EXTRA = "\x7fextra"
OPAQUE = "\x7fopaque"
_DEL = 0x7F  # looked for as a number: for bytes the interpreter first tries something else
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot be changed; compares and encodes like the dict it is."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        msg = "this value belongs to an event and cannot be changed; copy it with dict(…)"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self


class FrozenList(list[Any]):
    """A JSON array that cannot be changed; compares and encodes like the list it is."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        msg = "this value belongs to an event and cannot be changed; copy it with list(…)"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # pyright: ignore[reportAssignmentType]
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(len(self))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self


def freeze(value: Any) -> Any:
    """A deeply immutable equal of a plain JSON value."""
    if is_object(value):
        return FrozenDict({k: freeze(v) for k, v in value.items()})
    if is_array(value):
        return FrozenList(freeze(v) for v in value)
    return value


class Record(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,  # a record that can be encoded is no part of a cycle
):
    """Base of the structs that appear in a log; equal when their fields are."""

    def to_dict(self) -> dict[str, Any]:
        """The wire form: plain JSON with camelCase keys, unknown fields included."""
        return flatten(self)


class Opaque(Record, frozen=True, tag_field="type", tag=OPAQUE):
    """A content block of a type that we do not know, kept whole.

    `value` is the wire object, its own `type` included.
    """

    value: dict[str, Any]

    @property
    def type(self) -> str:
        """The block's own type, as its writer spelled it."""
        return str(self.value.get("type", ""))


# -- out ---------------------------------------------------------------------------------------


def encode(record: Any) -> bytes:
    """A record (or any structure of records) as JSON bytes, unknown fields at their place."""
    raw = jsontext.encode(record)
    return jsontext.encode(flatten(record)) if _DEL in raw else raw


def flatten(record: Any) -> Any:
    """Records as plain JSON: dicts, lists, strings, numbers."""
    return msgspec.to_builtins(_wire(record))


#: The fields of a struct, looked up once: msgspec reads the annotations again each time.
_fields = cache(msgspec.structs.fields)


def _wire(value: Any) -> Any:
    """Records as dicts with their unknown fields; what a free-form field holds stays as it is."""
    if isinstance(value, (list, tuple)):
        return [_wire(item) for item in cast("Sequence[Any]", value)]
    if type(value) is Opaque:
        return value.value
    if not isinstance(value, msgspec.Struct):
        return value
    config = value.__struct_config__
    if config.array_like:
        return msgspec.to_builtins(value)
    shape = _shape(type(value))
    wire: dict[str, Any] = {}
    if config.tag_field is not None:
        wire[config.tag_field] = config.tag
    for field in _fields(type(value)):
        item = getattr(value, field.name)
        if field.encode_name == EXTRA:
            continue
        if not config.omit_defaults or item is not field.default:
            listed = field.encode_name in shape.listed or isinstance(item, msgspec.Struct)
            wire[field.encode_name] = _wire(item) if listed else item
    if shape.keeps:
        wire.update(getattr(value, "extra") or {})  # noqa: B009 - the field of every open record
    return wire


# -- in ----------------------------------------------------------------------------------------

R = TypeVar("R")


class Codec(Generic[R]):
    """Encodes and decodes one record type, `cls`, losslessly."""

    __slots__ = ("_fast", "cls")

    def __init__(self, cls: type[R]) -> None:
        self.cls = cls
        self._fast = msgspec.json.Decoder(cls).decode

    def admission(
        self, free: int | None, otherwise: Callable[[Any, int], tuple[bytes, R]]
    ) -> Callable[[Any, int], tuple[bytes, R]]:
        """`admit(data, seq)`: the bytes of a record or dict, and the snapshot decoded from them.

        One closure of one call to C after another, because this runs for every append; what is
        not plainly right is for `otherwise` to judge.

        Args:
            free: a byte that the JSON contains if it has parts of any shape, whose integers and
                depth have to be looked at; None when there are never such parts.
            otherwise: as `admit`, slowly, with errors that name what is wrong.
        """
        cls, write, read, plain = self.cls, _encode, self._fast, _decode
        most, suspicious = jsontext.MAX_BYTES, jsontext.suspicious

        def admit(data: Any, seq: int) -> tuple[bytes, R]:
            try:
                raw = write(data)
                snapshot = read(raw)
                if (
                    (snapshot if type(data) is cls else plain(raw)) == data
                    and _DEL not in raw
                    and (free is None or free not in raw or not suspicious(raw))
                    and len(raw) <= most
                ):
                    return raw, snapshot
            except Exception:  # noqa: BLE001, S110 - whatever the codec disliked, the walk names it
                pass
            return otherwise(data, seq)

        return admit

    def admit(self, record: R, seq: int | None = None) -> tuple[bytes, R]:
        """The bytes of a record, and the private snapshot decoded from them.

        Raises:
            InvalidPayload: a field holds the wrong type.
            NotJson: the record does not survive the way to JSON and back (NaN, tuples …).
            PayloadTooLarge, PayloadTooDeep: as they say.
        """
        try:
            wire = _wire(record)
        except RecursionError:
            detail = "records are nested too deeply"
            raise NotJson(detail, seq=seq, value=type(record).__name__, path="$") from None
        raw = jsontext.admit(wire, seq=seq)
        try:
            snapshot = self.decode(raw)
        except msgspec.ValidationError as error:
            raise InvalidPayload(str(error), seq=seq, value=record) from None
        if snapshot != record and not jsontext.has_surrogates(wire):
            path, value, read = _difference(record, snapshot, "$")
            kept = type(value) is type(read)
            detail = "does not survive encoding" if kept else f"expected {type(read).__name__}"
            raise NotJson(detail, seq=seq, value=value, path=path)
        return raw, snapshot

    def decode(self, raw: bytes) -> R:
        """The record in `raw`, with what we do not know in `extra`.

        Raises:
            msgspec.ValidationError: JSON of another shape.
            ValueError: not JSON.
        """
        if _DEL not in raw:
            try:
                return self._fast(raw)
            except (msgspec.DecodeError, RecursionError):
                pass
        return self.convert(jsontext.decode(raw))

    def reading(self) -> Callable[[bytes], Any]:
        """`read(raw)`: the record in `raw`, or the plain JSON if it has another shape.

        A closure, because this runs for every event that is loaded and looked at.
        """
        fast, decode = self._fast, self.decode

        def read(raw: bytes) -> Any:
            if _DEL not in raw:
                try:
                    return fast(raw)
                except (msgspec.DecodeError, RecursionError):
                    pass
            try:
                return decode(raw)
            except msgspec.ValidationError:
                return jsontext.decode(raw)

        return read

    def convert(self, plain: Any) -> R:
        """The record in a plain value, with what we do not know in `extra`.

        Raises:
            msgspec.ValidationError: another shape.
        """
        try:
            return msgspec.convert(_absorb(plain, _shape(self.cls)), self.cls)
        except UnicodeEncodeError:  # msgspec, telling of a string with a lone surrogate
            msg = f"another shape than {self.cls.__name__}, with a lone surrogate in it"
            raise msgspec.ValidationError(msg) from None


def _difference(value: Any, read: Any, path: str) -> tuple[str, Any, Any]:
    """Where a record first differs from what was read back: the path, and both values there."""
    parts: list[tuple[str, Any, Any]] = []
    if type(value) is type(read) is tuple:
        parts = [(f"[{i}]", *pair) for i, pair in enumerate(zip(value, read, strict=False))]
    elif isinstance(value, msgspec.Struct) and type(value) is type(read):
        for field in msgspec.structs.fields(value):
            name = field.name
            parts.append((f".{field.encode_name}", getattr(value, name), getattr(read, name)))
    for step, mine, other in parts:
        if mine != other:
            return _difference(mine, other, path + step)
    return path, value, read


# What `_absorb` needs to know of a type: nothing (None), a record, a union of tagged records, or a
# sequence of one of these.


class _RecordShape:
    __slots__ = ("fields", "keeps", "known", "listed")

    def __init__(self) -> None:
        self.known: frozenset[str] = frozenset()
        self.keeps = False
        self.listed: frozenset[str] = frozenset()  # fields that the type says are tuples
        self.fields: dict[str, Any] = {}


class _UnionShape:
    __slots__ = ("members", "opaque")

    def __init__(self, members: dict[str, _RecordShape], *, opaque: bool) -> None:
        self.members = members
        self.opaque = opaque


class _ListShape:
    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item


_shapes: dict[Any, Any] = {}


def _shape(kind: Any) -> Any:
    """The shape of a type, made once."""
    try:
        return _shapes[kind]
    except KeyError:
        pass
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        shape = _shapes[kind] = _RecordShape()
        hints = get_type_hints(kind)
        names = {f.encode_name: f.name for f in msgspec.structs.fields(kind)}
        tag = kind.__struct_config__.tag_field
        shape.known = frozenset(names) - {EXTRA} | ({tag} if tag else set())
        shape.keeps = EXTRA in names
        nested = {wire: _shape(hints[name]) for wire, name in names.items() if wire != EXTRA}
        shape.fields = {wire: inner for wire, inner in nested.items() if inner is not None}
        shape.listed = frozenset(wire for wire, name in names.items() if _is_listed(hints[name]))
        return shape
    shape = _generic_shape(kind)
    _shapes[kind] = shape
    return shape


def _is_listed(kind: Any) -> bool:
    """Whether a type is a tuple or a list of records or of anything, or may be one."""
    if getattr(kind, "__origin__", None) in (tuple, list):
        return True
    return any(_is_listed(arg) for arg in getattr(kind, "__args__", ()))


def _generic_shape(kind: Any) -> Any:
    args: tuple[Any, ...] = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) in (tuple, list):
        item = _shape(args[0])
        return None if item is None else _ListShape(item)
    structs = [a for a in args if isinstance(a, type) and issubclass(a, msgspec.Struct)]
    if len(structs) == 1:
        return _shape(structs[0])
    if structs:
        tags = {str(s.__struct_config__.tag): _shape(s) for s in structs if s is not Opaque}
        return _UnionShape(tags, opaque=Opaque in structs)
    inner = [s for s in map(_shape, args) if s is not None]
    return inner[0] if len(inner) == 1 else None


def _absorb(value: Any, shape: Any) -> Any:
    """Move what the shape does not know to where its record keeps it."""
    if isinstance(shape, _ListShape):
        if is_array(value):
            return [_absorb(item, shape.item) for item in value]
        return value
    if shape is None or not is_object(value):
        return value
    if isinstance(shape, _UnionShape):
        member = shape.members.get(value.get("type", ""))
        if member is None:
            if not shape.opaque:
                return value
            return {"type": OPAQUE, "value": freeze(value)}
        shape = member
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in value.items():
        if key in shape.known:
            known[key] = _absorb(item, shape.fields.get(key))
        else:
            extra[key] = item
    if extra:
        if not shape.keeps:
            known.update(extra)
        else:
            known[EXTRA] = freeze(extra)
    return known


def plain(value: Any) -> Any:
    """A payload or part of one as plain JSON: records flattened, mappings and tuples copied."""
    if isinstance(value, msgspec.Struct):
        return flatten(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return {key: plain(item) for key, item in mapping.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    return value
