"""Plan: what a gallery of so many items takes, and where one machine no longer does; no server is needed.

docs/SCALE.md derives the formulas. Their unit costs were measured; every figure has a range, and says
whether galleries of such sizes were measured.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StrictBool

from vicinal.service.errors import RequestError
from vicinal.service.planning import engines
from vicinal.service.planning.formulas import Range
from vicinal.service.planning.gallery_costs import GalleryCosts
from vicinal.service.request_fields import Body, CommandOption
from vicinal.service.request_fields import Request as AnyRequest
from vicinal.service.words import number_of, size_of

Engine = Literal["faiss", "postgres", "milvus"]
Way = Literal["one machine", "replicas", "postgres", "milvus"]

# Positions of items are numbers of 32 bits in neighbor lists.
MOST_ITEMS = 2**31 - 1
LONGEST = 65_536
# Of the most that a machine answers: the 99th percentile of searches was measured there.
LOAD = 0.5
_GB = 1e9


class Request(AnyRequest):
    """Wish: so many items and searches, on such machines."""

    items: Annotated[int, CommandOption("Items of the gallery.")] = Field(ge=1)
    dim: Annotated[int, CommandOption("Numbers of an embedding.")] = Field(ge=1, le=LONGEST)
    qps: Annotated[float, CommandOption("Searches a second when there are most.")] = Field(
        ge=0.0, allow_inf_nan=False
    )
    images: Annotated[StrictBool, CommandOption("Items and queries are pictures, not embeddings.")] = False
    picture_bytes: Annotated[float | None, CommandOption("Bytes of a picture's file, on average.")] = Field(
        None, gt=0.0, allow_inf_nan=False
    )
    embed_ms: Annotated[
        float | None, CommandOption("Milliseconds of a core for a picture; those of the bundled model.")
    ] = Field(None, gt=0.0, allow_inf_nan=False)
    refine: Annotated[StrictBool, CommandOption("Items and queries are refined.")] = False
    build_hours: Annotated[float, CommandOption("Hours that a version may take to be made.")] = Field(
        12.0, gt=0.0, allow_inf_nan=False
    )
    spare: Annotated[int, CommandOption("Machines that may fail at once.")] = Field(0, ge=0, le=100)
    cores: Annotated[int, CommandOption("Cores of one machine.")] = Field(16, ge=1, le=1024)
    memory_gb: Annotated[float, CommandOption("Memory of one machine, in GB.")] = Field(
        64.0, gt=0.0, allow_inf_nan=False
    )
    disk_gb: Annotated[float, CommandOption("Disk of one machine, in GB.")] = Field(
        2000.0, gt=0.0, allow_inf_nan=False
    )
    engine: Annotated[
        Literal["auto", "faiss", "postgres", "milvus"],
        CommandOption("Who finds candidates; auto is Faiss as far as memory goes."),
    ] = "auto"


class Figure(Body):
    """Figure of a plan.

    Attributes:
        unit: `bytes`, `hours` or `searches/s`.
        is_measured: Whether galleries of such sizes were measured; else it is by formula.
    """

    name: str
    unit: Literal["bytes", "hours", "searches/s"]
    low: float
    high: float
    is_measured: bool

    @property
    def span(self) -> str:
        """Range in words, such as `3.1 GB to 4.0 GB`."""
        low, high = self._told(self.low), self._told(self.high)
        return low if low == high else f"{low} to {high}"

    def _told(self, value: float) -> str:
        if self.unit == "bytes":
            return size_of(value)
        if self.unit == "hours" and value < 1.0:
            return f"{60 * value:,.1f} minutes"
        return f"{value:,.{0 if value >= 100 else 1}f} {self.unit}"


class Plan(Body):
    """Plan of what a gallery takes.

    Attributes:
        way: Who serves it: one machine, replicas of a home, or these with candidates of an engine.
        replicas: Machines that answer.
        processes: Processes that answer on each.
        shards: Machines that the engine is spread over; 0 where there is none.
        build_machines: Machines that make a version in time; more than one by Ray.
        figures: Memory, disk, build and searches, with ranges.
        limits: What one machine does not do, in sentences.
        notes: What is not in the figures, or was not measured.
    """

    way: Way
    replicas: int
    processes: int
    shards: int
    build_machines: int
    figures: tuple[Figure, ...]
    limits: tuple[str, ...]
    notes: tuple[str, ...]

    def figure(self, name: str) -> Figure:
        """A figure by its name."""
        return next(one for one in self.figures if one.name == name)


class _Serving(NamedTuple):
    """Engine, memory, processes and replicas that a gallery is served with."""

    engine: Engine
    engine_memory: Range
    least_memory: Range
    n_processes: int
    searches: Range
    n_busy: int


def run(request: Request) -> Plan:
    """Compute a plan; RequestError where what is wished for cannot be."""
    _require_possible(request)
    costs = GalleryCosts(
        *(request.items, request.dim, request.cores),
        has_images=request.images,
        is_refined=request.refine,
        embed_ms=request.embed_ms,
    )
    serving = _serving(request, costs)
    replicas = serving.n_busy + request.spare
    way: Way = "replicas" if replicas > 1 else "one machine"
    shards = {"faiss": 0, "postgres": 1, "milvus": _machines(serving.engine_memory.high, request)}
    build_machines = max(
        math.ceil(costs.hours.high / request.build_hours), _machines(costs.building.high, request)
    )
    return Plan(
        way=way if serving.engine == "faiss" else serving.engine,
        replicas=replicas,
        processes=serving.n_processes,
        shards=shards[serving.engine],
        build_machines=build_machines,
        figures=tuple(_figures(request, costs, serving)),
        limits=(*_limits(request, costs, serving), *_build_limits(request, costs, build_machines)),
        notes=tuple(_notes(request, serving.engine)),
    )


def _require_possible(request: Request) -> None:
    if request.items > MOST_ITEMS:
        raise RequestError(
            f"a gallery holds at most {MOST_ITEMS:,} items, whose positions are numbers of 32 bits, and "
            f"{request.items:,} are asked for: plan several galleries"
        )
    longest = engines.LONGEST.get(request.engine, LONGEST)
    if request.dim > longest:
        raise RequestError(
            f"engine '{request.engine}' takes vectors of at most {longest:,} numbers, and {request.dim:,} "
            "are asked for: plan with another engine"
        )
    if not request.images and (request.picture_bytes, request.embed_ms) != (None, None):
        raise RequestError("ready embeddings have no pictures to read or to embed: give --images too")


def _serving(request: Request, costs: GalleryCosts) -> _Serving:
    alone = costs.process + costs.index
    engine: Engine = "milvus" if alone.high > request.memory_gb * _GB else "faiss"
    if request.engine != "auto":
        engine = request.engine
    of_engine = {"postgres": engines.postgres_memory, "milvus": engines.milvus_memory}.get(engine)
    index = costs.index if engine == "faiss" else Range.exactly(0)
    room = request.memory_gb * _GB - index.high
    # One a core, as far as memory goes; that not even one has room is told as a limit.
    n_processes = max(1, min(request.cores, int(room // costs.process.high)))
    searches = costs.searches.times(LOAD * n_processes).by_formula()
    return _Serving(
        engine=engine,
        engine_memory=of_engine(request.items, request.dim).times(costs.n_spaces)
        if of_engine
        else Range.exactly(0),
        least_memory=costs.process + index,
        n_processes=n_processes,
        searches=searches,
        n_busy=max(1, math.ceil(request.qps / searches.low)),
    )


def _machines(n_bytes: float, request: Request) -> int:
    return max(1, math.ceil(n_bytes / (request.memory_gb * _GB)))


def _figures(request: Request, costs: GalleryCosts, serving: _Serving) -> list[Figure]:
    processes = costs.process.times(serving.n_processes)
    least, most = processes + serving.least_memory - costs.process, processes + costs.mapped
    of_replica = Range(low=least.low, high=most.high, is_measured=most.is_measured)
    found: list[tuple[str, Literal["bytes", "hours", "searches/s"], Range]] = [
        ("memory of a process", "bytes", costs.process),
        ("memory of a replica", "bytes", of_replica),
        ("disk of a replica", "bytes", costs.disk),
        ("disk while a version is made", "bytes", costs.disk_while_building),
        ("memory of a build", "bytes", costs.building),
        ("build on one core", "hours", costs.core_hours),
        ("build on one machine", "hours", costs.hours),
        ("searches of a process", "searches/s", costs.searches),
        ("searches of a replica", "searches/s", serving.searches),
    ]
    if serving.engine != "faiss":
        found.append(("memory of the engine", "bytes", serving.engine_memory))
    if serving.engine == "postgres":
        building = engines.postgres_building(request.items, request.dim)
        seconds = engines.postgres_seconds(request.items, request.dim).times(costs.n_spaces)
        found.append(("memory of the engine's build", "bytes", building))
        found.append(("build of the engine on one core", "hours", seconds.times(1 / 3600)))
    if request.picture_bytes is not None:
        read = Range.exactly(request.items * request.picture_bytes).by_formula()
        found.append(("pictures to read", "bytes", read))
    return [Figure(name=name, unit=unit, **one.model_dump()) for name, unit, one in found]


def _limits(request: Request, costs: GalleryCosts, serving: _Serving) -> list[str]:
    """Limits of one machine's memory, disk, searches and uptime, each in a sentence."""
    found = []
    has, memory = f"and one machine has {request.memory_gb:,g} GB", request.memory_gb * _GB
    alone = (costs.process + costs.index).high
    if serving.engine != "faiss" and alone > memory:
        found.append(
            f"memory: one process with its index needs {size_of(alone)}, {has}: an engine holds the index"
        )
    if serving.least_memory.high > memory:
        needed = size_of(serving.least_memory.high)
        found.append(f"memory: one process needs {needed}, {has}: take larger ones, or several galleries")
    if serving.engine == "postgres" and serving.engine_memory.high > memory:
        needed = size_of(serving.engine_memory.high)
        found.append(
            f"memory of PostgreSQL: its graph of {needed} is slow where it is not in memory, {has}: give it "
            "a larger one, or take milvus"
        )
    if costs.disk.high > request.disk_gb * _GB:
        found.append(
            f"disk: a replica keeps {size_of(costs.disk.high)}, and one machine has {request.disk_gb:,g} GB: "
            "take larger disks, or several galleries"
        )
    if serving.n_busy > 1:
        low, high = serving.searches.low, serving.searches.high
        found.append(
            f"searches: one machine answers {low:,.0f} to {high:,.0f} a second at half of what it can do, "
            f"and {request.qps:,g} are asked for: {number_of(serving.n_busy, 'replica')} over one home"
        )
    if request.spare:
        failing = number_of(request.spare, "machine")
        found.append(f"uptime: {failing} may fail at once: as many replicas more over one home")
    return found


def _build_limits(request: Request, costs: GalleryCosts, n_machines: int) -> list[str]:
    found = []
    how = f"build on Ray, on {number_of(n_machines, 'such machine')}"
    hours, needed = costs.hours, costs.building.high
    if hours.high > request.build_hours:
        found.append(
            f"build hours: one machine takes {hours.low:,.1f} to {hours.high:,.1f}, and "
            f"{request.build_hours:g} are allowed: {how}"
        )
    if needed > request.memory_gb * _GB:
        found.append(
            f"memory of a build: {size_of(needed)} with all vectors in it, and one machine has "
            f"{request.memory_gb:,g} GB: {how}, or wait for its disk, which was not measured"
        )
    return found


def _notes(request: Request, engine: Engine) -> list[str]:
    found = [
        "hours and searches are of a core of an AMD EPYC; how quick yours are is not in them",
        f"searches of a replica are at {LOAD:.0%} of what it can do: there the 99th percentile was below 50 "
        "ms on two cores; more cores were not measured",
    ]
    if engine == "milvus":
        found.append("memory of Milvus is what published calculators name for its query nodes alone")
    if engine != "faiss":
        found.append("a replica beside an engine keeps vectors and neighbor lists on its own disk")
    if request.spare:
        found.append("Redis, the home and an engine have to outlive a machine too: none is in the figures")
    return found
