"""OpenTelemetry metrics of what stores write; the extra `otel`.

    async with turnlog.open_store(url, metrics=writer_metrics()) as store: ...

Only OpenTelemetry's API is used: what is measured goes wherever the application's meter provider
sends it, and nowhere where there is none. Names and units are in docs/stores.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from turnlog.errors import MissingExtra
from turnlog.stores.metrics import Commit, Queue, WriterMetrics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, CallbackT, MeterProvider, Observation

SCOPE = "turnlog"
"""The name of the instrumentation scope; its version is turnlog's."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)

_lock = threading.Lock()
_made: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()
_global: list[_Instruments] = []  # one at most: what it made before it was set serves it, too


def writer_metrics(
    meter_provider: MeterProvider | None = None, *, attributes: Mapping[str, str] | None = None
) -> WriterMetrics:
    """What `open_store(url, metrics=…)` takes; one may serve any number of stores.

    Args:
        meter_provider: where to; by default the global one, which may also be set later.
        attributes: for every measurement, besides `turnlog.store`: to tell several stores of one
            kind apart.

    Raises:
        MissingExtra: OpenTelemetry's API is not installed.
    """
    return _Metrics(_instruments(meter_provider), dict(attributes or {}))


def is_configured() -> bool:
    """Whether this process has a global meter provider that is more than OpenTelemetry's API.

    Raises:
        MissingExtra: that API is not installed.
    """
    module = type(_provider()).__module__
    return module.split(".")[:2] != ["opentelemetry", "metrics"]


def flush(seconds: float = 5.0) -> None:
    """Have the global meter provider send what was measured, if it can: before a process ends.

    Raises:
        MissingExtra: OpenTelemetry's API is not installed.
    """
    send = getattr(_provider(), "force_flush", None)  # the SDK's have it
    if send is not None:
        send(timeout_millis=seconds * 1_000)


def _instruments(provider: MeterProvider | None) -> _Instruments:
    """The instruments of a provider: each is made once, or gauges of the second are lost."""
    current = _provider()
    provider = current if provider is None else provider
    with _lock:
        found = _global[0] if provider is current and _global else _made.get(provider)
        if found is None:
            found = _made[provider] = _Instruments(provider)
        if provider is current and not _global:
            _global.append(found)
        return found


def _provider() -> MeterProvider:
    """The global meter provider.

    Raises:
        MissingExtra: OpenTelemetry's API is not installed.
    """
    try:
        from opentelemetry.metrics import get_meter_provider  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        msg = "needs opentelemetry-api, which is not installed: pip install 'turnlog[otel]'"
        raise MissingExtra(msg) from error
    return get_meter_provider()


class _Instruments:
    """The instruments of one meter provider, and the queues that its gauges look at."""

    def __init__(self, provider: MeterProvider) -> None:
        from turnlog import __version__  # noqa: PLC0415 - the root, loaded by then

        meter = provider.get_meter(SCOPE, __version__)
        self.queues: dict[Queue, dict[str, str]] = {}
        self.events = meter.create_counter(
            "turnlog.writer.events", "{event}", "Events that were made durable."
        )
        self.io = meter.create_counter(
            "turnlog.writer.io", "By", "Bytes of the payloads of events that were made durable."
        )
        self.failures = meter.create_counter(
            "turnlog.writer.failures",
            "{batch}",
            "Batches, each of one session, that a commit did not store.",
        )
        self.refusals = meter.create_counter(
            "turnlog.writer.refusals",
            "{event}",
            "Appends that were refused because too much waited to become durable.",
        )
        self.duration = meter.create_histogram(
            "turnlog.writer.commit.duration",
            "s",
            "How long the store took for one commit.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.size = meter.create_histogram(
            "turnlog.writer.commit.size",
            "{event}",
            "Events that one commit made durable, of all sessions.",
            explicit_bucket_boundaries_advisory=COUNTS,
        )
        self.lag = meter.create_histogram(
            "turnlog.writer.lag",
            "s",
            "From the append of the oldest event of a session's batch until it was durable.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        meter.create_observable_up_down_counter(
            "turnlog.writer.queue.events",
            [self._observed(lambda queue: queue.waiting()[0])],
            "{event}",
            "Events that wait to become durable.",
        )
        meter.create_observable_up_down_counter(
            "turnlog.writer.queue.usage",
            [self._observed(lambda queue: queue.waiting()[1])],
            "By",
            "Bytes that wait to become durable.",
        )
        meter.create_observable_up_down_counter(
            "turnlog.writer.queue.limit",
            [self._observed(lambda queue: queue.bound)],
            "By",
            "Bytes that may wait; appends past them are refused.",
        )

    def _observed(self, number: Callable[[Queue], int]) -> CallbackT:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation  # noqa: PLC0415 - an extra

            sums: dict[tuple[tuple[str, str], ...], int] = {}
            for queue, attributes in tuple(self.queues.items()):
                key = tuple(sorted(attributes.items()))
                sums[key] = sums.get(key, 0) + number(queue)
            return [Observation(value, dict(key)) for key, value in sums.items()]

        return observe


class _Metrics:
    """Measures with some instruments; see `WriterMetrics`."""

    def __init__(self, instruments: _Instruments, attributes: dict[str, str]) -> None:
        self._to = instruments
        self._attributes = attributes

    def _of(self, queue: Queue) -> dict[str, str]:
        return {**self._attributes, "turnlog.store": queue.kind}

    def opened(self, queue: Queue) -> None:
        """Its queue is looked at from now on."""
        self._to.queues[queue] = self._of(queue)

    def closed(self, queue: Queue) -> None:
        """And no longer."""
        self._to.queues.pop(queue, None)

    def committed(self, queue: Queue, commit: Commit) -> None:
        """Count and measure it."""
        to, plain = self._to, self._of(queue)
        kinds = [type(error).__name__ for error in commit.errors]
        if commit.lags:
            to.events.add(commit.events, plain)
            to.io.add(commit.bytes, plain)
            to.size.record(commit.events, plain)
        for lag in commit.lags:
            to.lag.record(lag, plain)
        for kind in kinds:
            to.failures.add(1, {**plain, "error.type": kind})
        failed = kinds and not commit.lags
        to.duration.record(commit.seconds, {**plain, "error.type": kinds[0]} if failed else plain)

    def refused(self, queue: Queue) -> None:
        """Count it."""
        self._to.refusals.add(1, self._of(queue))
