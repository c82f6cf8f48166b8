"""Store of job records: rows of the server, and the few steps that must happen once only, whoever tries.

A worker holds a job by a lease. The number of its attempt says whether it still does: who takes a job over
counts it up, and what an earlier attempt tells changes nothing any more.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, and_, func, or_, select, update

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.state import Rows, server_state
from vicinal.indexer.state.rows import seal_of
from vicinal.indexer.state.schema import job_lists, jobs
from vicinal.service.errors import (
    DamagedJobError,
    JobConflictError,
    JobNotFoundError,
    JobStoppedError,
    JobsUnavailableError,
    RequestError,
)
from vicinal.service.jobs.records import FINAL_STATES, Job

logger = logging.getLogger(__name__)
# Finished jobs beyond these are forgotten when another is created.
_KEPT = 200
# Of one job: more than anybody reads, and less than a store feels.
_KEPT_FAILURES = 10_000
ListKind = Literal["failures", "log"]
_JSON = ("request", "folders", "progress", "problem_members", "result")


class JobStore:
    """Job records of a data folder; `clock` tells the seconds since 1970 in place of the database."""

    def __init__(self, data_dir: Path, *, clock: Callable[[], float] | None = None) -> None:
        self.state = server_state(data_dir)
        self._clock = clock
        self._lock = threading.Lock()
        self._problem: str | None = None
        # Until then leases count that seem to have run out: nobody could renew them while the store was away.
        self._patient_until: float | None = None

    @property
    def place(self) -> str:
        """Words for where the jobs are."""
        shared = self.state.shared
        return f"'{self.state.path}'" if shared is None else shared.database.place

    def look(self) -> JobsUnavailableError | None:
        """Find out whether there is a place for jobs; the error says why it does not answer."""
        try:
            with self._asking(self.state.reading()) as rows:
                rows.has(jobs)
        except JobsUnavailableError as error:
            return error
        return None

    def create(self, job: Job) -> Job:
        """Keep a new job and let it wait for a worker."""
        with self._asking(self.state.changing()) as rows:
            known, damaged = self._all(rows)
            _require_free(job, known)
            rows.add(jobs, _row(job.model_copy(update={"revision": 1})))
            old = [one.id for one in known if one.is_final][_KEPT:]
            for table in (jobs, job_lists):
                rows.remove_each(table.c.id, [*old, *damaged])
            return _get(rows, job.id)

    def get(self, job_id: str) -> Job:
        """Record of a job; one that is damaged counts as none."""
        with self._asking(self.state.reading()) as rows:
            return _get(rows, job_id)

    def all(self) -> list[Job]:
        """Every job, newest first, without damaged ones."""
        with self._asking(self.state.reading()) as rows:
            return self._all(rows)[0]

    def claim(self, worker: str, lease: float) -> Job | None:
        """Take the job that waits longest, or whose worker left no sign of life, for `lease` seconds; of all
        that try, exactly one gets it. None where there is none.
        """
        with self._asking(self.state.reading()) as rows:
            now = self._now(rows)
            if self._patient_until is None:
                self._patient_until = now + lease
            if not rows.has(jobs, self._is_free(now)):
                return None
        with self._asking(self.state.noting()) as rows:
            now = self._now(rows)
            first = select(jobs.c.id).where(self._is_free(now)).order_by(jobs.c.created_at, jobs.c.id)
            free = first.limit(1).with_for_update(skip_locked=True).scalar_subquery()
            begun = {
                "state": "running",
                "attempt": jobs.c.attempt + 1,
                "worker": worker,
                "lease_until": now + lease,
                "started_at": func.coalesce(jobs.c.started_at, now),
            }
            try:
                taken = self._change(rows, jobs.c.id == free, **begun)
            except DamagedJobError as error:
                logger.warning("%s", error)
                rows.remove(jobs, jobs.c.id == error.job_id)
                return None
        if taken is not None and taken.attempt > 1:
            logger.warning("job %s goes on, attempt %d", taken.id, taken.attempt)
        return taken

    def beat(self, job: Job, lease: float) -> None:
        """Leave a sign of life of an attempt, which holds for `lease` seconds."""
        with self._asking(self.state.noting()) as rows:
            rows.change(jobs, *_is_attempt(job), lease_until=self._now(rows) + lease)

    def tell(self, job: Job, **changes: Any) -> Job:
        """Keep changes that an attempt makes; a `JobStoppedError` where another worker took the job over."""
        changed = _row(job.model_copy(update=changes), changes)
        with self._asking(self.state.noting()) as rows:
            told = self._change(rows, *_is_attempt(job), **changed)
        if told is None:
            raise JobStoppedError("overtaken")
        return told

    def finish(self, job: Job, **changes: Any) -> Job:
        """Keep a final record, which frees its gallery."""
        return self.tell(job, finished_at=datetime.now(UTC), **changes)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once when nobody has begun it, else when its worker has finished a batch."""
        with self._asking(self.state.changing()) as rows:
            job, asked = _get(rows, job_id), {"cancel_requested": 1}
            if job.is_final:
                return job
            never_begun = (jobs.c.id == job_id, jobs.c.state == "queued", jobs.c.attempt == 0)
            ended = {"state": "cancelled", "finished_at": self._now(rows)}
            return (
                self._change(rows, *never_begun, **asked, **ended)
                or self._change(rows, jobs.c.id == job_id, jobs.c.state.not_in(FINAL_STATES), **asked)
                or _get(rows, job_id)
            )

    def resume(self, job_id: str) -> Job:
        """Let a cancelled job wait for a worker again, which goes on after what was kept of it."""
        with self._asking(self.state.changing()) as rows:
            job = _get(rows, job_id)
            if job.state != "cancelled":
                state = "being cancelled" if job.cancel_requested else job.state
                raise RequestError(f"job '{job_id}' is {state}: only a cancelled one can be resumed")
            _require_free(job, self._all(rows)[0])
            waits = {"state": "queued", "cancel_requested": 0, "finished_at": None}
            return self._change(rows, jobs.c.id == job_id, **waits) or job

    def keep_list(self, job_id: str, kind: ListKind, listed: Sequence[Any]) -> None:
        """Keep what is listed beside a job, in place of what was; of failures the first 10,000."""
        content = zlib.compress(json.dumps(listed[:_KEPT_FAILURES]).encode())
        with self._asking(self.state.noting()) as rows:
            rows.put(job_lists, {"id": job_id, "kind": kind, "content": content})

    def list_of(self, job_id: str, kind: ListKind) -> list[Any]:
        """List that is kept beside a job; none where it is damaged."""
        is_asked = (job_lists.c.id == job_id, job_lists.c.kind == kind)
        with self._asking(self.state.reading()) as rows:
            found = rows.all(job_lists, *is_asked, on_damage=lambda error: logger.warning("%s", error))
        return list(json.loads(zlib.decompress(found[0].content))) if found else []

    def _all(self, rows: Rows) -> tuple[list[Job], list[str]]:
        """Every job, newest first, and the ids of damaged ones, which are told."""
        found, damaged = [], []
        asked = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        for row in rows.connection.execute(asked):
            try:
                found.append(_job(row))
            except DamagedJobError as error:
                logger.warning("%s", error)
                damaged.append(row.id)
        return found, damaged

    def _is_free(self, now: float) -> ColumnElement[bool]:
        waits = jobs.c.state == "queued"
        if self._patient_until is None or now < self._patient_until:
            return waits
        return or_(waits, and_(jobs.c.state == "running", jobs.c.lease_until < now))

    def _change(self, rows: Rows, *where: ColumnElement[bool], **values: Any) -> Job | None:
        """Change what is loose of a job; None where none fits."""
        values |= {"revision": jobs.c.revision + 1, "updated_at": self._now(rows)}
        # Of whole numbers SQLite returns others here than it reads, so that the row is read.
        changed = rows.connection.scalar(update(jobs).where(*where).values(values).returning(jobs.c.id))
        return None if changed is None else _get(rows, changed)

    def _now(self, rows: Rows) -> float:
        return rows.now() if self._clock is None else self._clock()

    @contextmanager
    def _asking(self, transaction: AbstractContextManager[Rows]) -> Iterator[Rows]:
        try:
            with transaction as rows:
                yield rows
        except IndexerError as error:
            raise JobsUnavailableError(self._note(f"the store of jobs does not answer: {error}")) from error
        if self._problem is not None:
            self._note(None)

    def _note(self, problem: str | None) -> str:
        with self._lock:
            was_away, self._problem = self._problem is not None, problem
            if problem is not None:
                self._patient_until = None
        if problem is None and was_away:
            logger.warning("the store of jobs answers again")
        elif problem is not None and not was_away:
            logger.warning("%s; jobs wait for it", problem)
        return problem or ""


def _is_attempt(job: Job) -> tuple[ColumnElement[bool], ...]:
    return jobs.c.id == job.id, jobs.c.attempt == job.attempt, jobs.c.state == "running"


def _require_free(job: Job, known: Sequence[Job]) -> None:
    """Refuse a second job on a gallery."""
    for one in known:
        if one.gallery == job.gallery and not one.is_final:
            raise JobConflictError(job.gallery, one.id)


def _get(rows: Rows, job_id: str) -> Job:
    found = rows.connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if found is None:
        raise JobNotFoundError(job_id)
    return _job(found)


def _job(row: Row[Any]) -> Job:
    values = row._asdict()
    try:
        if seal_of(jobs, values) != row.seal:
            raise DamagedJobError(row.id)
        parsed = {name: json.loads(values[name]) for name in _JSON if values[name] is not None}
        return Job.model_validate(values | parsed)
    except ValueError as error:
        raise DamagedJobError(row.id) from error


def _row(job: Job, names: Iterable[str] = Job.model_fields) -> dict[str, Any]:
    """Columns of a record, or some of them."""
    told = job.model_dump(mode="json", include={*names})
    return {name: _stored(getattr(job, name), value) for name, value in told.items()}


def _stored(value: object, told: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bool):
        return int(value)
    return told if told is None or isinstance(told, str | int) else json.dumps(told)
