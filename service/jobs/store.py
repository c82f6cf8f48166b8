"""Store of job records, and the few steps that must happen once only, whoever tries.

job:<id>              the record, sealed; written by whoever creates the job, then by its worker
cancel:<id>           somebody wants it cancelled
claim:<id>:<attempt>  the one worker that may make this attempt
beat:<id>             changes as long as the worker lives
failures:<id>         files that the job could not use, compressed; the record itself has the first of them
log:<id>              lines of its log, compressed
gallery:<name>        the one job that works on the gallery
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from vicinal.models.configs.sealed_json import sealed, unsealed
from vicinal.service.errors import DamagedJobError, JobConflictError, JobNotFoundError, RequestError
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, JobFailure

logger = logging.getLogger(__name__)
# Finished jobs beyond these are forgotten when another is created.
_KEPT = 200
# Of one job: more than anybody reads, and less than a store feels.
_KEPT_FAILURES = 10_000
# What may lie beside a job's record.
_BESIDE = ("beat", "cancel", "failures", "log")
_FAILURES = TypeAdapter(tuple[JobFailure, ...])


class JobStore:
    """Job records in a queue's store."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue

    def create(self, job: Job) -> Job:
        """Keep a new job and let it wait for a worker."""
        saved = self.save(job)
        holder = self.reserve(saved)
        if holder != job.id:
            self._forget(job)
            raise JobConflictError(job.gallery, holder)
        self.queue.enqueue(job.id, 1)
        self._forget_old()
        return saved

    def get(self, job_id: str) -> Job:
        """Record of a job; one that is damaged counts as none."""
        found = self.queue.get(f"job:{job_id}", f"cancel:{job_id}")
        if f"job:{job_id}" not in found:
            raise JobNotFoundError(job_id)
        return _read(found, job_id)

    def all(self) -> list[Job]:
        """Every job, newest first; a record that is damaged is given up."""
        stored = self.queue.all()
        jobs = []
        for job_id in [key.removeprefix("job:") for key in stored if key.startswith("job:")]:
            try:
                jobs.append(_read(stored, job_id))
            except DamagedJobError as error:
                logger.warning("%s", error)
                self.queue.remove(*(f"{one}:{job_id}" for one in _BESIDE), f"job:{job_id}")
        return sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True)

    def save(self, job: Job, **changes: Any) -> Job:
        """Keep a record with changes; the caller is the only one that writes it."""
        changes |= {"revision": job.revision + 1, "updated_at": datetime.now(UTC)}
        saved = job.model_copy(update=changes)
        self.queue.put(f"job:{job.id}", sealed(saved.model_dump_json()))
        return saved

    def finish(self, job: Job, **changes: Any) -> Job:
        """Keep a final record and free its gallery."""
        finished = self.save(job, finished_at=datetime.now(UTC), **changes)
        if self._holder(job.gallery) == job.id:
            self.queue.remove(f"gallery:{job.gallery}")
        return finished

    def reserve(self, job: Job) -> str:
        """Reserve a job's gallery, and say which job has it: this one, or another that is not finished."""
        key = f"gallery:{job.gallery}"
        while not self.queue.put_if_empty(key, job.id.encode()):
            holder = self._holder(job.gallery)
            if holder is None:
                continue
            if holder == job.id or not self._is_over(holder):
                return holder
            # Whoever held it died between its last word and letting go.
            self.queue.remove(key)
        return job.id

    def claim(self, job_id: str, attempt: int, worker: str) -> bool:
        """Take an attempt; of all that try, exactly one may make it."""
        return self.queue.put_if_empty(f"claim:{job_id}:{attempt}", worker.encode())

    def n_claims(self, job: Job) -> int:
        """Number of the last attempt that somebody took."""
        attempt = job.attempt
        while self.queue.get(f"claim:{job.id}:{attempt + 1}"):
            attempt += 1
        return attempt

    def is_overtaken(self, job_id: str, attempt: int) -> bool:
        """Tell whether somebody took a later attempt."""
        return bool(self.queue.get(f"claim:{job_id}:{attempt + 1}"))

    def request_cancel(self, job_id: str) -> None:
        """Ask a job's worker to stop."""
        self.queue.put(f"cancel:{job_id}", b"1")

    def is_cancel_requested(self, job_id: str) -> bool:
        """Tell whether somebody wants it cancelled."""
        return bool(self.queue.get(f"cancel:{job_id}"))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once when nobody has begun it, else when its worker has finished a batch."""
        job = self.get(job_id)
        if job.is_final:
            return job
        self.request_cancel(job_id)
        # What an earlier attempt has kept is removed by a worker.
        if job.attempt == 0 and self.claim(job_id, 1, "cancelled before it began"):
            return self.finish(job, state="cancelled")
        return self.get(job_id)

    def resume(self, job_id: str) -> Job:
        """Let a cancelled job wait for a worker again, which goes on after what was kept of it."""
        cancelled = self.get(job_id)
        if cancelled.state != "cancelled":
            state = "being cancelled" if cancelled.cancel_requested else cancelled.state
            raise RequestError(f"job '{job_id}' is {state}: only a cancelled one can be resumed")
        self.queue.remove(f"cancel:{job_id}")
        # Before the gallery is asked for: a job that is over could not hold it.
        waiting = self.save(cancelled, state="queued", finished_at=None)
        holder = self.reserve(waiting)
        if holder != job_id:
            self.save(waiting, state="cancelled", finished_at=cancelled.finished_at)
            raise JobConflictError(waiting.gallery, holder)
        self.queue.enqueue(job_id, self.n_claims(waiting) + 1)
        return self.get(job_id)

    def keep_failures(self, job_id: str, failures: Sequence[JobFailure]) -> None:
        """Keep the first 10,000 files that a job could not use."""
        kept = _FAILURES.dump_json(tuple(failures[:_KEPT_FAILURES]))
        self.queue.put(f"failures:{job_id}", zlib.compress(kept))

    def failures(self, job: Job) -> tuple[JobFailure, ...]:
        """The files that a job could not use, up to 10,000; those of its record where no others are kept."""
        key = f"failures:{job.id}"
        kept = self.queue.get(key).get(key)
        if kept is None:
            return job.progress.failures
        try:
            return _FAILURES.validate_json(zlib.decompress(kept))
        except (ValueError, zlib.error) as error:
            logger.warning("the list of failures of job %s is damaged: %s", job.id, error)
            return job.progress.failures

    def keep_lines(self, job_id: str, lines: Sequence[dict[str, Any]]) -> None:
        """Keep the lines of a job's log, in place of those before."""
        self.queue.put(f"log:{job_id}", zlib.compress(json.dumps(lines).encode()))

    def lines(self, job_id: str) -> list[dict[str, Any]]:
        """Lines of a job's log; none where it is damaged."""
        kept = self.queue.get(f"log:{job_id}").get(f"log:{job_id}")
        try:
            return [] if kept is None else list(json.loads(zlib.decompress(kept)))
        except (ValueError, zlib.error) as error:
            logger.warning("the log of job %s is damaged: %s", job_id, error)
            return []

    def beat(self, job_id: str, sign: str) -> None:
        """Leave a sign of life that differs from the one before."""
        self.queue.put(f"beat:{job_id}", sign.encode())

    def signs_of_life(self, job: Job) -> tuple[object, ...]:
        """Something that changes as long as anybody works on a job."""
        return job.revision, self.n_claims(job), self.queue.get(f"beat:{job.id}").get(f"beat:{job.id}")

    def _holder(self, gallery: str) -> str | None:
        found = self.queue.get(f"gallery:{gallery}")
        return found[f"gallery:{gallery}"].decode() if found else None

    def _is_over(self, job_id: str) -> bool:
        try:
            return self.get(job_id).is_final
        except JobNotFoundError:
            return True

    def _forget_old(self) -> None:
        for job in [job for job in self.all() if job.is_final][_KEPT:]:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        claims = [f"claim:{job.id}:{attempt}" for attempt in range(1, self.n_claims(job) + 1)]
        others = (f"{one}:{job.id}" for one in _BESIDE)
        self.queue.remove(*others, *claims, f"job:{job.id}")


def _read(stored: Mapping[str, bytes], job_id: str) -> Job:
    try:
        job = Job.model_validate_json(unsealed(stored[f"job:{job_id}"]))
    except ValueError as error:
        raise DamagedJobError(job_id) from error
    return job.model_copy(update={"cancel_requested": f"cancel:{job_id}" in stored})
