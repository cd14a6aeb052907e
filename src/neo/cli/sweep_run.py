"""The points of a sweep, one after the other in this process or all through one of Hydra's launchers."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from types import FrameType

from hydra.core.plugins import Plugins
from hydra.core.utils import configure_log
from hydra.core.utils import run_job as run_hydra_job
from omegaconf import OmegaConf

from neo.cli.job import JobEnd
from neo.cli.run_folder import clear
from neo.cli.shared_schema import point_to
from neo.cli.sweep_config import SweepConfiguration
from neo.cli.sweep_job import SweepJob
from neo.cli.sweep_plan import PlannedPoint
from neo.cli.sweep_rows import Row, RowStatus, read_row, recorded_fingerprint, write_csv
from neo.config.purpose import Purpose
from neo.launch.process import environment_with_source, hearing_signals
from neo.launch.spec import OnFailure

_CUT_SHORT = (RowStatus.INTERRUPTED, RowStatus.PREEMPTED)


class SweepRun:
    """The running of a planned sweep; ``sweep.csv`` always says how far it is."""

    def __init__(self, purpose: Purpose, sweep: SweepConfiguration, planned: Sequence[PlannedPoint]) -> None:
        self._purpose, self._sweep, self._planned = purpose, sweep, planned
        self._job = SweepJob(purpose, tuple(entry.point.swept for entry in planned))
        self._received: list[str] = []
        self._rows = {entry.point.number: self._row_without_run(entry, "") for entry in planned}

    def run(self) -> list[Row]:
        """Run all points and return their rows, whatever became of them."""
        callbacks = self._sweep.callbacks
        callbacks.on_multirun_start(config=self._sweep.master, config_name=self._sweep.master.hydra.job.config_name)
        OmegaConf.save(self._sweep.master, self._sweep.folder / "multirun.yaml")
        entries = self._prepare()
        with self._hearing_signals():
            try:
                if self._sweep.runs_here:
                    self._run_here(entries)
                else:
                    self._run_through_launcher(entries)
            except KeyboardInterrupt:
                self._note_interruption()
        callbacks.on_multirun_end(config=self._sweep.master, config_name=self._sweep.master.hydra.job.config_name)
        return list(self._rows.values())

    def _prepare(self) -> list[PlannedPoint]:
        """Return the points to run, their folders free of what an earlier sweep wrote."""
        entries = []
        for entry in self._planned:
            if self._sweep.spec.resume and self._is_done(entry):
                self._rows[entry.point.number] = self._read(entry, None)
                continue
            entry.folder.mkdir(parents=True, exist_ok=True)
            clear(entry.folder)
            if entry.learned is not None:
                point_to(entry.folder, entry.learned)
            entries.append(entry)
        done = len(self._planned) - len(entries)
        if done:
            print(f"{done} point{' is' if done == 1 else 's are'} done already", flush=True)
        return entries

    def _is_done(self, entry: PlannedPoint) -> bool:
        if self._purpose is Purpose.PLAN:
            return False  # As quick to plan again as to find out whether that is needed.
        done = self._read(entry, None).status is RowStatus.DONE
        return done and recorded_fingerprint(entry.folder) == entry.fingerprint

    def _run_here(self, entries: Sequence[PlannedPoint]) -> None:
        stopped = ""
        for entry in entries:
            number = entry.point.number
            if stopped:
                self._rows[number] = self._row_without_run(entry, stopped)
                continue
            self._rows[number] = self._row_without_run(entry, "", RowStatus.INTERRUPTED)
            self._rows[number] = self._read(entry, self._run_one(entry))
            stopped = self._reason_to_stop(self._rows[number])
            write_csv(self._purpose, list(self._rows.values()), self._sweep.folder)

    def _run_one(self, entry: PlannedPoint) -> JobEnd:
        returned = run_hydra_job(
            hydra_context=self._sweep.context,
            task_function=self._job,
            config=entry.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        end: JobEnd = returned.return_value
        return end

    def _reason_to_stop(self, row: Row) -> str:
        if self._received or row.status in _CUT_SHORT:
            how = f"by {self._received[0]}" if self._received else f"in point {row.number}"
            return f"the sweep was interrupted {how}"
        if row.status is RowStatus.FAILED and self._sweep.spec.on_failure is OnFailure.STOP:
            return f"point {row.number} failed, and sweep.on_failure=stop"
        return ""

    def _run_through_launcher(self, entries: Sequence[PlannedPoint]) -> None:
        """Give all points to the launcher, at most ``hydra.sweeper.max_batch_size`` at a time, and wait for them."""
        master = self._sweep.master
        os.environ.update(environment_with_source(dict(os.environ)))  # The launcher's processes inherit it.
        configure_log(master.hydra.hydra_logging, master.hydra.verbose)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=self._sweep.context, task_function=self._job, config=master
        )
        for batch in _batches(entries, self._sweep.max_batch_size):
            for entry in batch:
                self._rows[entry.point.number] = self._row_without_run(entry, "", RowStatus.INTERRUPTED)
            ends: Mapping[int, JobEnd] = {}
            try:
                returned = launcher.launch([e.point.texts for e in batch], initial_job_idx=batch[0].point.number)
                ends = {e.point.number: r.return_value for e, r in zip(batch, returned, strict=True)}
            except Exception as error:  # Whatever a scheduler raises; what its jobs have done is in their folders.
                reason = f"the launcher does not wait for its jobs: {error}"
                print(reason, file=sys.stderr)
                ends = {e.point.number: JobEnd(1, reason) for e in batch}
            for entry in batch:
                self._rows[entry.point.number] = self._read(entry, ends.get(entry.point.number))
            write_csv(self._purpose, list(self._rows.values()), self._sweep.folder)

    def _note_interruption(self) -> None:
        """Say of the points that were not started why."""
        reason = f"the sweep was interrupted by {self._received[0] if self._received else 'SIGINT'}"
        for entry in self._planned:
            row = self._rows[entry.point.number]
            if row.status in (RowStatus.NOT_STARTED, RowStatus.INTERRUPTED) and not row.error:
                self._rows[entry.point.number] = self._row_without_run(entry, reason, row.status)

    def _read(self, entry: PlannedPoint, end: JobEnd | None) -> Row:
        row = read_row(self._purpose, entry.point.number, entry.point.swept, entry.folder, end)
        if row.status is RowStatus.FAILED and self._received:
            return self._row_without_run(entry, f"ended by {self._received[0]}", RowStatus.INTERRUPTED)
        return row

    def _row_without_run(self, entry: PlannedPoint, error: str, status: RowStatus = RowStatus.NOT_STARTED) -> Row:
        return Row(entry.point.number, entry.point.swept, status, entry.folder, {}, error)

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """Let a signal end what this process does; while workers run, it is theirs (``neo.launch.process``)."""

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._received.append(signal.Signals(number).name)
            raise KeyboardInterrupt

        with hearing_signals(interrupt):
            yield


def _batches(entries: Sequence[PlannedPoint], size: int | None) -> Iterator[list[PlannedPoint]]:
    """Cut the points into runs of consecutive numbers, since a launcher counts on from a first one."""
    for _, group in groupby(enumerate(entries), key=lambda pair: pair[1].point.number - pair[0]):
        left = iter([entry for _, entry in group])
        while batch := list(islice(left, size)):
            yield batch
