"""A participant of `cargo xtask bench` in Python: `participant.py torch|numpy|onnxruntime`.

Speaks the protocol of tallow-bench-protocol: one JSON value a line on standard input and output. What is computed is in
peer_torch.py, peer_numpy.py and peer_onnxruntime.py; each has `hello()` and `prepare(job)`, which gives a Prepared.
"""

import contextlib
import importlib
import json
import os
import sys
import time

import numpy as np


class Unsupported(Exception):
    """This peer has no way of doing it."""


class Prepared:
    """`work()` computes once, and `values(work())` is its result as an array. Runs happen inside `scope()`."""

    def __init__(self, work, values, scope=contextlib.nullcontext):
        self.work, self.values, self.scope = work, values, scope

    def run(self, warm, times):
        work, nanoseconds = self.work, []
        with self.scope():
            for _ in range(warm):
                work()
            for _ in range(times):
                start = time.perf_counter_ns()
                result = work()
                nanoseconds.append(time.perf_counter_ns() - start)
                # Dropped after the clock has stopped.
                del result
        return nanoseconds


def load(job):
    """The inputs as arrays: ids as int64, all else as float32."""
    arrays = []
    for file in job["inputs"]:
        ids = file["fill"]["kind"] == "ids"
        array = np.fromfile(file["path"], dtype="<u4" if ids else "<f4").reshape(file["dims"])
        arrays.append(array.astype(np.int64) if ids else array)
    return arrays


def answer(peer, prepared, request):
    """The reply to a request, and what is prepared from now on."""
    match request["do"]:
        case "hello":
            name, version, about = peer.hello()
            return {"is": "hello", "name": name, "version": version, "about": about}, prepared
        case "prepare":
            # The memory of the case before is given back first.
            del prepared
            ready = peer.prepare(request)
            with ready.scope():
                values = np.ascontiguousarray(ready.values(ready.work()), dtype="<f4")
            values.tofile(request["result"])
            return {"is": "ready", "dims": list(values.shape)}, ready
        case "run":
            if prepared is None:
                raise ValueError("`run` before `prepare`")
            return {"is": "ran", "nanoseconds": prepared.run(request["warm"], request["times"])}, prepared
        case other:
            raise Unsupported(f"no request `{other}` here")


def main():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    # The peers import this file by its name.
    sys.modules["participant"] = sys.modules["__main__"]
    peer = importlib.import_module("peer_" + sys.argv[1])
    prepared = None
    for line in sys.stdin:
        try:
            reply, prepared = answer(peer, prepared, json.loads(line))
        except Unsupported as reason:
            reply, prepared = {"is": "unsupported", "reason": str(reason)}, None
        except Exception as error:  # Whatever a library raises is told, and the next case gets its turn.
            reply, prepared = {"is": "failed", "message": f"{type(error).__name__}: {error}"[:500]}, None
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
