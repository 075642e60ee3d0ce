"""Models behind one port, by name: `open_model("provider:model")` is the only registry.

What a provider needs is imported when a model of it is opened; a missing package is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnlog.errors import InvalidModel
from turnlog.models.port import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from turnlog.events import Event

__all__ = ["Model", "open_model"]


def open_model(
    name: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    context_window: int | None = None,
    events: Iterable[Event[Any]] | None = None,
) -> Model:
    """The model that `name` says, as `provider:model`. Nothing is sent or started yet.

        local:smollm2                     a small model in this process: no key, no network
        openai:MODEL                      $OPENAI_API_KEY, $OPENAI_BASE_URL
        deepseek:MODEL                    $DEEPSEEK_API_KEY, $DEEPSEEK_BASE_URL
        openai-compatible:MODEL@BASE_URL  a key only if $TURNLOG_API_KEYS has one for that host
        scripted:FILE                     answers from a JSON file
        recorded:SESSION                  the answers of a session, whose events are passed

    Args:
        name: the model's name.
        api_key: instead of the one in the environment.
        base_url: of an `openai:` or `deepseek:` model, instead of the provider's own; a key from
            the environment does not go there.
        context_window: in tokens, where it is not known or should be smaller.
        events: the session of a `recorded:` model.

    Raises:
        InvalidModel: no such name, no key, or a file that is no script.
        MissingExtra: the provider's package is not installed.
    """
    provider, colon, model = name.partition(":")
    opener = _PROVIDERS.get(provider)
    if opener is None or not colon or not model:
        forms = ", ".join(f"{known}:…" for known in _PROVIDERS)
        raise InvalidModel(f"no model is called {name!r}; a name is one of {forms}")
    options: dict[str, Any] = {
        "api_key": api_key,
        "base_url": base_url,
        "context_window": context_window,
        "events": events,
    }
    return opener(model, {key: value for key, value in options.items() if value is not None})


def _only(provider: str, options: Mapping[str, Any], *allowed: str) -> None:
    if wrong := sorted(set(options) - set(allowed)):
        raise InvalidModel(f"a {provider}: model takes no {', '.join(wrong)}")


def _local(model: str, options: dict[str, Any]) -> Model:
    from turnlog.models.local import open_local

    _only("local", options, "context_window")
    return open_local(model, **options)


def _openai(model: str, options: dict[str, Any]) -> Model:
    from turnlog.models.openai import open_openai

    _only("openai", options, "api_key", "base_url", "context_window")
    return open_openai("openai", model, **options)


def _deepseek(model: str, options: dict[str, Any]) -> Model:
    from turnlog.models.openai import open_openai

    _only("deepseek", options, "api_key", "base_url", "context_window")
    return open_openai("deepseek", model, **options)


def _compatible(model: str, options: dict[str, Any]) -> Model:
    from turnlog.models.openai import open_compatible

    _only("openai-compatible", options, "api_key", "context_window")
    return open_compatible(model, **options)


def _scripted(path: str, options: dict[str, Any]) -> Model:
    from turnlog.models.scripted import ScriptedModel

    _only("scripted", options, "context_window")
    return ScriptedModel.from_file(path, **options)


def _recorded(session: str, options: dict[str, Any]) -> Model:
    from turnlog.models.recorded import RecordedModel

    _only("recorded", options, "events", "context_window")
    if "events" not in options:
        raise InvalidModel(f"recorded:{session} needs the events of that session")
    return RecordedModel(session, **options)


_PROVIDERS: Final[Mapping[str, Callable[[str, dict[str, Any]], Model]]] = {
    "local": _local,
    "openai": _openai,
    "deepseek": _deepseek,
    "openai-compatible": _compatible,
    "scripted": _scripted,
    "recorded": _recorded,
}
