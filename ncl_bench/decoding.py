"""Decode foreign bytes in worker processes, within a limit of memory and of time, whatever a library does on them.

A library that hangs, swells or crashes takes its worker along; the item becomes one sentence and the others go on.
A worker is a new Python that imports what it needs, answers requests on its standard input, and ends with this process.
JSON and bytes pass between the two, never a pickle.
"""

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from glob import escape, glob
from pathlib import Path
from typing import IO, Any, cast

from ncl_bench.errors import DataError, NclBenchError, as_size, is_out_of_memory
from ncl_bench.foreign import reading

MEMORY, MEMORY_PER_BYTE = 2 * 2**30, 16
"""Bytes of memory of a worker, where the system has such a limit: so many, and for each byte of the item more."""
SECONDS, BYTES_PER_SECOND = 30, 2**20
"""Seconds of CPU time for an item: so many, and one for so many bytes of it. A worker that waits has ten times that."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from ncl_bench.decoding import serve; serve()"
)
_idle: list["subprocess.Popen[bytes]"] = []


def decoded(
    function: Callable[..., Any],
    items: Iterable[tuple[str, Path | bytes]],
    *arguments: Any,
    error: type[NclBenchError] = DataError,
    fix: str = "write or fetch it again",
    workers: int = 1,
) -> Iterator[Any]:
    """Call ``function(source, name, *arguments)`` for every item, in worker processes.

    Args:
        function: of a module that a new Python can import. Gives an array of numbers, an Arrow table, bytes, or None.
        items: name for errors, and the file or its bytes.
        arguments: JSON.
        error: class of what is given for an item that is refused.
        fix: what the user should do about an item, in words that end the sentence.
        workers: items that are decoded at once.

    Yields:
        For every item, in order, the result or the error.
    """
    pool = ThreadPoolExecutor(workers)
    call = {"function": [function.__module__, function.__qualname__], "arguments": arguments, "fix": fix}
    try:
        yield from pool.map(lambda item: _answer(call, item[0], item[1], error), items)
    finally:
        pool.shutdown(cancel_futures=True)


def decode(function: Callable[..., Any], path: Path, *arguments: Any, **options: Any) -> Any:
    """Call ``function(path, name, *arguments)`` in a worker; like :func:`decoded`, but raise the error."""
    (result,) = decoded(function, [(str(path), path)], *arguments, **options)
    if isinstance(result, NclBenchError):
        raise result
    return result


def _answer(call: dict[str, Any], name: str, source: Path | bytes, error: type[NclBenchError]) -> Any:
    content, path = (source, None) if isinstance(source, bytes) else (b"", str(source))
    # an item may be a folder, such as one that `datasets` saved
    files = glob(f"{escape(path)}/**", recursive=True) if path and os.path.isdir(path) else [path or ""]
    size = len(content) + sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    seconds = SECONDS + size / BYTES_PER_SECOND
    memory = MEMORY + MEMORY_PER_BYTE * size
    place = {"name": name, "path": path, "folder": os.getcwd(), "bytes": len(content)}
    request = json.dumps(call | place | {"memory": memory, "seconds": seconds}).encode()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _started()
    to, back = cast(IO[bytes], worker.stdin), cast(IO[bytes], worker.stdout)
    head: dict[str, Any] = {"bytes": -1}
    body = b""
    try:
        with suppress(BrokenPipeError):
            to.write(request + b"\n" + content)
            to.flush()
            head = json.loads(back.readline() or b'{"bytes": -1}')
            body = back.read(max(0, head["bytes"]))
    except BaseException:
        worker.kill()  # its answer would be taken for that of the next item
        raise
    if len(body) == head["bytes"]:
        _idle.append(worker)
        return error(head["error"]) if "error" in head else _unpacked(head, body)
    code = worker.wait()
    by = signal.Signals(-code).name if code < 0 else f"code {code}"
    ended = f"the process that reads it ends with {by}"
    if by in ("SIGPROF", "SIGALRM"):
        ended = f"it takes more than {seconds:,.0f} seconds"
    return error(f"{name} cannot be read ({ended}); {call['fix']}")


def _started() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is left to this process
        pipesize=2**20,
        env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    )


@atexit.register
def close_workers() -> None:
    """End all workers that wait for an item."""
    while _idle:
        _idle.pop().communicate()  # a worker ends with its input


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # two processes must not share a worker


def serve() -> None:
    """Answer requests until standard input ends; what a worker does."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library may print
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        content = sys.stdin.buffer.read(request["bytes"])
        head, body = _served(request, content)
        answers.write(json.dumps(head | {"bytes": memoryview(body).nbytes}).encode() + b"\n")
        answers.write(body)
        answers.flush()


def _served(request: dict[str, Any], content: bytes) -> tuple[dict[str, Any], Any]:
    module, function = request["function"]
    name, memory = request["name"], request["memory"]
    source = content if request["path"] is None else Path(request["path"])
    os.chdir(request["folder"])  # paths may start from it
    call = getattr(importlib.import_module(module), function)
    _limit(memory, request["seconds"])
    try:
        with reading(name, fix=request["fix"]):
            return _packed(call(source, name, *request["arguments"]))
    except NclBenchError as error:
        return {"error": error.args[0]}, b""
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    finally:
        _limit(memory, 0)
    return {
        "error": f"{name} takes more than {as_size(memory)} of memory when decoded; {request['fix']}"
    }, b""


def _limit(memory: int, seconds: float) -> None:
    """Let the system end this process: by its CPU time, as a library may never come back to Python."""
    if sys.platform == "win32":  # it has no such limits
        return
    import resource

    if sys.platform == "linux":  # elsewhere the limit counts little of what a process allocates
        pages = int(Path("/proc/self/statm").read_text().split()[5])  # what Python and its modules have
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def _packed(result: Any) -> tuple[dict[str, Any], Any]:
    if hasattr(result, "schema"):
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, result.schema) as stream:
            stream.write_table(result)
        return {"shape": None}, sink.getvalue()
    if hasattr(result, "dtype"):
        import numpy as np

        # also of a tensor that repeats a row by a step of 0
        content = np.ascontiguousarray(result).reshape(-1).view("u1").data
        return {"dtype": result.dtype.str, "shape": result.shape}, content
    return {}, result or b""


def _unpacked(head: dict[str, Any], body: bytes) -> Any:
    if "shape" not in head:
        return body
    if "dtype" in head:
        import numpy as np

        return np.frombuffer(body, head["dtype"]).reshape(head["shape"])
    import pyarrow as pa

    return pa.ipc.open_stream(body).read_all()
