"""Threads of Python's, forked workers, and the interpreter's lock."""

import multiprocessing
import os
import threading
import time

import numpy as np
import pytest
import retrograd

#: Large enough that the pool of threads computes it.
NETWORK = retrograd.Network([64], [{"kind": "kan", "out": 64, "grid": 5, "degree": 3}] * 2)
X = np.random.default_rng(0).uniform(-1, 1, (512, 64)).astype(np.float32)


def work(_=None):
    outputs = NETWORK(X)
    gradients, d_x = NETWORK.gradients(X, outputs)
    return outputs.tobytes() + d_x.tobytes() + b"".join(np.ascontiguousarray(g).tobytes() for g in gradients.values())


def train(_=None):
    model = retrograd.NetworkRegressor(hidden=(32,), epochs=3)
    return model.fit(X[:, :8], X[:, 9]).params_.tobytes()


@pytest.mark.parametrize("task", [work, train])
def test_two_threads_get_the_bits_of_one(task):
    expected, seen = task(), []

    def repeat():
        seen.extend(task() for _ in range(4))

    threads = [threading.Thread(target=repeat) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "hangs"
    assert len(seen) == 8 and all(one == expected for one in seen)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("task", [work, train])
def test_workers_get_the_bits_of_their_parent(method, task):
    expected = task()
    with multiprocessing.get_context(method).Pool(2) as pool:
        seen = pool.map_async(task, range(4)).get(timeout=120)
    assert all(one == expected for one in seen)


def test_a_child_of_a_child_has_threads_of_its_own():
    expected = work()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        good = False
        try:
            good = work() == expected
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if work() == expected else 1)
            good = good and os.waitpid(grandchild, 0)[1] == 0
        finally:
            os.write(writer, b"1" if good else b"0")
            os._exit(0)
    end = time.monotonic() + 120
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < end, "hangs"
        time.sleep(0.05)
    assert os.read(reader, 1) == b"1"


def test_a_fork_while_another_thread_computes_does_not_hang():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            work()

    other = threading.Thread(target=busy)
    other.start()
    try:
        expected = work()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if work() == expected else 1)
            end = time.monotonic() + 60
            done = (0, 0)
            while done == (0, 0):
                assert time.monotonic() < end, "hangs"
                done = os.waitpid(child, os.WNOHANG)
                time.sleep(0.01)
            assert done[1] == 0
    finally:
        stop.set()
        other.join()
