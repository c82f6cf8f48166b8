"""The loss study again on a pretrained network: heads on frozen features, and last stages that learn.

    run      what the frozen part gives (some minutes on one core), then every run of the plan
    report   tables of the plan's page
`pretrained_runs.py` has the plans. A run that is done is not run again. Learning rates, margins and weights
of TCM are chosen on held-out training classes; calibration classes give a threshold; test classes are only
reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.features import FeatureParts
from benchmarks.losses.learners import HEAD, STAGES, Learner, measure, measure_held_out, train
from benchmarks.losses.pretrained_report import plan_tables
from benchmarks.losses.pretrained_runs import HEADS, TUNING, Plan
from benchmarks.losses.report import replace_tables
from benchmarks.losses.training import Run

__all__ = ["Study"]

_PAGES = Path(__file__).parents[2] / "docs" / "studies"
_KINDS = {"heads": (HEADS, HEAD), "tuning": (TUNING, STAGES)}


@dataclass(frozen=True)
class Study:
    """A plan that is carried out.

    Attributes:
        plan: What is run.
        learner: What learns in its runs.
        work: Folder that gets a record of each run.
    """

    plan: Plan
    learner: Learner
    work: Path

    def run(self, parts: Mapping[str, FeatureParts]) -> None:
        """Whatever was not run yet, first what choices are made of.

        Args:
            parts: By image set.
        """
        for images, own in parts.items():
            self._keep(self._untrained(images, own))
            self._do(self.plan.rate_runs(images), parts)
            self._do(self.plan.tcm_runs(images, self.records), parts)
        final = [run for images in parts for run in self.plan.loss_runs(images, self.records)]
        # A study cut short has all sets.
        self._do(sorted(final, key=lambda run: run.seed), parts)
        self._do([run for images in parts for run in self.plan.noise_runs(images, self.records)], parts)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Of all runs that are done."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.work.glob("*.json"))]

    def _do(self, runs: Sequence[Run], parts: Mapping[str, FeatureParts]) -> None:
        pending = [run for run in runs if not (self.work / f"{run.key}.json").exists()]
        for done, run in enumerate(pending, start=1):
            own = parts[run.images]
            network, record = train(run, self.learner, own.train)
            if run.fold is None:
                record["test"] = measure(network, own)
            else:
                record["held_out"] = measure_held_out(network, run, own.train)
            self._keep(record)
            print(f"{done}/{len(pending)} {run.key} {record['seconds']} s", flush=True)

    def _untrained(self, images: str, parts: FeatureParts) -> dict[str, Any]:
        """What the network is worth before anything learns."""
        record = {"images": images, "group": self.plan.group, "name": self.plan.untrained, "seed": 0}
        record["key"] = f"{images}--{self.plan.group}--{self.plan.untrained}--seed0"
        return {**record, "test": measure(self.learner.untrained(parts.train), parts)}

    def _keep(self, record: dict[str, Any]) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        partial = self.work / f"{record['key']}.partial"
        partial.write_text(json.dumps(record), encoding="utf-8")
        partial.rename(self.work / f"{record['key']}.json")


def report(plan: Plan) -> None:
    """Write the tables of the plan's page."""
    stored = json.loads((RESULTS / f"{plan.name}.json").read_text(encoding="utf-8"))
    replace_tables(_PAGES / f"{plan.name.replace('_', '-')}.md", plan_tables(plan, stored["runs"]))


def main() -> None:
    """Run a plan and save its records, or write its page from them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=list(_KINDS))
    parser.add_argument("stage", choices=["run", "report"])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--frozen", type=Path, default=Path("build/frozen"))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    plan, learner = _KINDS[given.kind]
    if given.stage == "report":
        report(plan)
        return
    torch.set_num_threads(given.threads)
    study = Study(plan, learner, given.work or Path("build") / plan.name)
    sets = given.sets or plan.sets
    study.run({images: learner.load(given.data / images, given.frozen) for images in sets})
    save_result(plan.name, {"threads": given.threads, "runs": study.records})


if __name__ == "__main__":
    main()
