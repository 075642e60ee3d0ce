"""OpenTelemetry's metrics of the writer, as its own SDK collects them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)

import turnlog
from tests.servers.postgres import PASSWORD, server
from tests.store_urls import SERVERS, STORES, forget, url_of
from tests.unit.stores.medium import done, media
from turnlog.errors import MissingExtra, QueueFull, StaleWriter, WriteFailed
from turnlog.stores.live import StoredSession
from turnlog.stores.memory import MemoryStore
from turnlog.stores.metrics import kind_of
from turnlog.stores.store import Store
from turnlog.stores.writer import OVERHEAD, Writer
from turnlog.telemetry import is_configured, writer_metrics
from turnlog.testing.conformance.samples import FIRST, header, notes

NEVER = 1 << 60


class Point(NamedTuple):
    """One data point: a sum, or a histogram's count and sum."""

    value: float
    times: int


class Meters:
    """A provider of the test's own, and what it collected."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)

    def collected(self) -> str:
        """All of it, as JSON."""
        data = self._reader.get_metrics_data()
        return data.to_json() if data else ""

    def points(self, **attributes: str) -> dict[str, Point]:
        """The data points with just these attributes, by the metric's name; `_` stands for `.`."""
        wanted = {name.replace("_", "."): value for name, value in attributes.items()}
        data = self._reader.get_metrics_data()
        found: dict[str, Point] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "turnlog"
                assert scope.scope.version == turnlog.__version__
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        if dict(point.attributes or {}) != wanted:
                            continue
                        name = f"{metric.name.removeprefix('turnlog.writer.')} {metric.unit}"
                        match point:
                            case HistogramDataPoint():
                                found[name] = Point(point.sum, point.count)
                            case NumberDataPoint():
                                found[name] = Point(point.value, 1)
                            case _:
                                pytest.fail(f"{name}: {point}")
        return found


@pytest.fixture
def meters() -> Iterator[Meters]:
    """Meters."""
    made = Meters()
    yield made
    made.provider.shutdown()


def say(session: StoredSession, count: int) -> int:
    """Append so many messages; the bytes of their payloads."""
    return sum(len(session.add_user(f"message {i}").raw) for i in range(count))


@pytest.mark.parametrize("name", [*STORES, *SERVERS])
async def test_what_happened_is_what_is_counted(name: str, tmp_path: Path, meters: Meters) -> None:
    """Events, bytes, commits, batches and the queue, on each kind of store."""
    url = url_of(name, tmp_path)
    kind = kind_of(url)
    metrics = writer_metrics(meters.provider)
    async with (
        turnlog.open_store(url, metrics=metrics) as store,
        store.session("a") as a,
        store.session("b") as b,
    ):
        first = say(a, 3) + say(b, 4)
        waiting = meters.points(turnlog_store=kind)
        await a.flush()
        second = say(b, 1)
        await b.flush()
        found = meters.points(turnlog_store=kind)
    assert waiting == {
        "queue.events {event}": Point(7, 1),
        "queue.usage By": Point(first + 7 * OVERHEAD, 1),
        "queue.limit By": Point(64 * 1024 * 1024, 1),
    }
    assert found["events {event}"].value == 8
    assert found["io By"].value == first + second
    assert found["commit.size {event}"] == Point(8, 2)
    assert found["commit.duration s"].times == 2
    assert found["lag s"].times == 3
    assert found["lag s"].value >= found["commit.duration s"].value > 0
    assert found["queue.events {event}"].value == found["queue.usage By"].value == 0
    assert not any(name.startswith(("failures", "refusals")) for name in found)
    forget(tmp_path)


@pytest.mark.parametrize("name", ["jsonl", "sqlite"])
async def test_a_failure_is_counted_by_its_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meters: Meters
) -> None:
    """A full disk, and then room again: what failed waits on, and is counted once stored."""
    medium = media(name, monkeypatch)
    metrics = writer_metrics(meters.provider)
    url = url_of(name, tmp_path)
    async with turnlog.open_store(url, metrics=metrics) as store, store.session("a") as session:
        say(session, 2)
        medium.fail("full", 1, NEVER)
        for _ in range(3):
            with pytest.raises(WriteFailed):
                await session.flush()
        failed = meters.points(turnlog_store=name, error_type="WriteFailed")
        plain = meters.points(turnlog_store=name)
        medium.work()
        await session.flush()
        after = meters.points(turnlog_store=name)
    done(medium)
    assert failed["failures {batch}"].value == 3
    assert failed["commit.duration s"].times == 3
    assert plain["queue.events {event}"].value == 2
    assert plain.keys() == {"queue.events {event}", "queue.usage By", "queue.limit By"}
    assert (after["events {event}"].value, after["commit.duration s"].times) == (2, 1)
    assert after["queue.events {event}"].value == 0


async def robbed(store: Store, url: str) -> None:
    """Write to two sessions, of which another handle has taken the first."""
    async with (
        store.session("a") as a,
        store.session("b") as b,
        turnlog.open_store(url) as other,
        other.session("a", steal=True),
    ):
        say(a, 1)
        say(b, 1)
        await b.flush()


@pytest.mark.parametrize("name", ["memory", "sqlite", *SERVERS])
async def test_a_lost_session_is_counted(name: str, tmp_path: Path, meters: Meters) -> None:
    """As a batch that was not stored, of a commit that stored another."""
    url = url_of(name, tmp_path)
    kind = kind_of(url)
    async with turnlog.open_store(url, metrics=writer_metrics(meters.provider)) as store:
        with pytest.raises(StaleWriter):
            await robbed(store, url)
        lost = meters.points(turnlog_store=kind, error_type="StaleWriter")
        plain = meters.points(turnlog_store=kind)
    assert lost == {"failures {batch}": Point(1, 1)}
    assert (plain["events {event}"].value, plain["commit.duration s"].times) == (1, 1)
    forget(tmp_path)


async def test_a_refused_append_is_counted(meters: Meters) -> None:
    """While the queue is at its bound."""
    store, (first, second) = MemoryStore(), notes(0, 2)
    writer = Writer(store, bound=1, metrics=writer_metrics(meters.provider))
    await store.create(header("a"))
    outbox = writer.attach(await store.claim("a", FIRST), 0)
    writer.put(outbox, first)
    for _ in range(2):
        with pytest.raises(QueueFull):
            writer.put(outbox, second)
    assert meters.points(turnlog_store="memory") == {"refusals {event}": Point(2, 1)}


async def test_stores_that_are_open_together(meters: Meters) -> None:
    """Those of one kind are added up, attributes tell them apart, a closed one has no queue."""
    plain = writer_metrics(meters.provider)
    again = writer_metrics(meters.provider)
    named = writer_metrics(meters.provider, attributes={"shard": "2"})
    name = "queue.events {event}"
    async with turnlog.open_store("memory:", metrics=plain) as one, one.session("a") as a:
        async with turnlog.open_store("memory:", metrics=again) as two, two.session("a") as b:
            async with (
                turnlog.open_store("memory:", metrics=named) as three,
                three.session("a") as c,
            ):
                for count, session in ((1, a), (2, b), (4, c)):
                    say(session, count)
                assert meters.points(turnlog_store="memory")[name].value == 3
                assert meters.points(turnlog_store="memory", shard="2")[name].value == 4
            assert name not in meters.points(turnlog_store="memory", shard="2")
        await a.flush()
        say(a, 2)
        assert meters.points(turnlog_store="memory")[name].value == 2
    assert name not in meters.points(turnlog_store="memory")


async def test_no_password_is_measured(meters: Meters) -> None:
    """Nor anything else of a URL but its beginning."""
    on = server()
    url = on.tcp_url(on.new_schema())
    metrics = writer_metrics(meters.provider)
    async with (
        turnlog.open_store(url, metrics=metrics) as store,
        store.session("a private id") as session,
    ):
        say(session, 1)
        await session.flush()
        data = meters.collected()
    assert "postgresql" in data
    for secret in (PASSWORD, "a private id", "127.0.0.1", "message 0"):
        assert secret not in data


def test_it_can_be_measured_from_synchronous_code(tmp_path: Path, meters: Meters) -> None:
    """By the same argument."""
    metrics = writer_metrics(meters.provider)
    url = f"sqlite:{tmp_path / 'a.db'}"
    with turnlog.sync.open_store(url, metrics=metrics) as store, store.session("a") as session:
        session.add_user("hello")
        session.flush()
        assert meters.points(turnlog_store="sqlite")["events {event}"].value == 1


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(MissingExtra, match=r"pip install 'turnlog\[otel\]'"):
        writer_metrics()
    with pytest.raises(MissingExtra, match=r"pip install 'turnlog\[otel\]'"):
        is_configured()
