"""Worker processes that live as long as the test session and run functions as the ranks of a gloo group.

Starting a process and importing torch takes seconds; a group takes milliseconds. So the processes stay, and every
``run`` makes a group of its own. A function is found by its file, so it may live in any test module.
"""

import importlib.util
import inspect
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

LIMIT = 8


class WorkerError(RuntimeError):
    """A rank failed with an error that cannot be carried between processes, or its process died."""


@dataclass(frozen=True)
class _Call:
    module: str
    file: str
    function: str
    arguments: bytes
    rank: int
    world_size: int
    store: str
    timeout_s: float


@dataclass(frozen=True)
class _Reply:
    result: bytes = b""
    error: bytes = b""
    traceback: str = ""
    time_s: float = 0.0


@dataclass
class _Worker:
    process: Any
    connection: Connection


class WorkerPool:
    """Processes 0, 1, ... that serve as ranks; they are started when first needed, at most ``LIMIT``."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []

    def run(
        self, world_size: int, function: Callable[..., Any], *arguments: object, timeout_s: float = 60.0
    ) -> list[Any]:
        """Call ``function(*arguments)`` on ``world_size`` ranks of a fresh gloo group.

        Inside, ``torch.distributed`` is initialised and torchrun's environment variables are set.

        Args:
            world_size: Number of ranks, 1 to 8.
            function: A function at the top level of a module.
            arguments: Picklable arguments, the same for every rank.
            timeout_s: Limit for the call and for every collective in it.

        Returns:
            What the function returned, by rank.

        Raises:
            TimeoutError: Ranks did not answer in time (they are ended).
            WorkerError: A process died, or failed with an error that cannot be pickled.
            Exception: The error of the rank that failed first, with its traceback as a note.
        """
        if not 1 <= world_size <= LIMIT:
            raise ValueError(f"world_size {world_size} is outside 1 to {LIMIT}")
        self._grow(world_size)
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(world_size):
                call = _Call(
                    module=function.__module__,
                    file=inspect.getfile(function),
                    function=function.__qualname__,
                    arguments=pickle.dumps(arguments),
                    rank=rank,
                    world_size=world_size,
                    store=str(Path(folder) / "store"),
                    timeout_s=timeout_s,
                )
                self._workers[rank].connection.send(call)
            replies = self._collect(world_size, time.monotonic() + timeout_s)
        return _results(replies, world_size, timeout_s)

    def close(self) -> None:
        """End every process."""
        self._end(range(len(self._workers)))
        self._workers = []

    def _grow(self, size: int) -> None:
        with _environment({"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}):
            for position in range(size):
                if position == len(self._workers):
                    self._workers.append(_start())
                elif not self._workers[position].process.is_alive():
                    self._workers[position] = _start()

    def _collect(self, world_size: int, deadline: float) -> dict[int, _Reply]:
        replies: dict[int, _Reply] = {}
        waiting = {self._workers[rank].connection: rank for rank in range(world_size)}
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for ready in wait(list(waiting), timeout=left_s):
                assert isinstance(ready, Connection)
                rank = waiting.pop(ready)
                try:
                    replies[rank] = ready.recv()
                except EOFError:
                    process = self._workers[rank].process
                    process.join()
                    replies[rank] = _Reply(traceback=f"process ended with {process.exitcode}", time_s=time.time())
        self._end(waiting.values())
        return replies

    def _end(self, positions: Iterable[int]) -> None:
        for position in positions:
            worker = self._workers[position]
            worker.process.kill()
            worker.process.join()
            worker.connection.close()


def _results(replies: dict[int, _Reply], world_size: int, timeout_s: float) -> list[Any]:
    failed = {rank: reply for rank, reply in replies.items() if reply.traceback}
    silent = [rank for rank in range(world_size) if rank not in replies]
    if failed:
        first = min(failed, key=lambda rank: failed[rank].time_s)
        note = f"rank {first} of {world_size}: {failed[first].traceback}"
        if silent:
            note += f"\nranks {silent} did not answer within {timeout_s:g} s"
        if not failed[first].error:
            raise WorkerError(note)
        error = _unpack(failed[first].error)
        error.add_note(note)
        raise error
    if silent:
        raise TimeoutError(f"ranks {silent} of {world_size} did not answer within {timeout_s:g} s")
    return [pickle.loads(replies[rank].result) for rank in range(world_size)]


def _start() -> _Worker:
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _serve(connection: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            call = connection.recv()
        except EOFError:
            return
        connection.send(_answer(call))


def _answer(call: _Call) -> _Reply:
    import torch.distributed as dist

    variables = {
        "RANK": call.rank,
        "LOCAL_RANK": call.rank,
        "WORLD_SIZE": call.world_size,
        "LOCAL_WORLD_SIZE": call.world_size,
        "GROUP_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,  # never used: the group exists already
        "TORCHELASTIC_RUN_ID": "tests",
    }
    with _environment({name: str(value) for name, value in variables.items()}):
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{call.store}",
                rank=call.rank,
                world_size=call.world_size,
                timeout=timedelta(seconds=call.timeout_s),
            )
            function = _function(call)
            return _Reply(result=pickle.dumps(function(*pickle.loads(call.arguments))))
        except BaseException as error:
            return _Reply(error=_pack(error), traceback=traceback.format_exc(), time_s=time.time())
        finally:
            if dist.is_initialized():  # closing the connections wakes the ranks that wait for this one
                dist.destroy_process_group()


def _function(call: _Call) -> Callable[..., Any]:
    if call.module not in sys.modules:
        spec = importlib.util.spec_from_file_location(call.module, call.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[call.module] = module
        spec.loader.exec_module(module)
    found: Any = sys.modules[call.module]
    for name in call.function.split("."):
        found = getattr(found, name)
    function: Callable[..., Any] = found
    return function


def _pack(error: BaseException) -> bytes:
    """Pickle an error without calling its constructor again, which may take other arguments than ``args``."""
    try:
        packed = pickle.dumps((type(error), error.args, error.__dict__))
        pickle.loads(packed)
    except Exception:
        return b""
    return packed


def _unpack(packed: bytes) -> BaseException:
    kind, arguments, attributes = pickle.loads(packed)
    error = kind.__new__(kind, *arguments)
    assert isinstance(error, BaseException)
    error.__dict__.update(attributes)
    return error


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
