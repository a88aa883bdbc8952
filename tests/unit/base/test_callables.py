"""What keeps a user's code from other processes is named, and what it raises is said in one line."""

import pickle
import threading

import pytest
from fakes.errors import NoText

from kafka_actors.base.callables import described, error_text, type_and_text, unpicklable

cloudpickle = pytest.importorskip("ray.cloudpickle")


def test_an_error_is_described_with_the_place_that_a_note_names():
    error = OSError("disk full")
    assert (described(error), described(SystemExit())) == ("OSError: disk full", "SystemExit")
    error.add_note("as raised\nTraceback …")
    error.add_note("raised by the sink <ParquetSink /out>")
    assert described(error) == "OSError: disk full (raised by the sink <ParquetSink /out>)"


def test_a_variable_of_a_closure():
    lock = threading.Lock()

    def process(batch):
        with lock:
            return batch

    assert unpicklable(process, cloudpickle.dumps) == (
        "the variable 'lock': cannot pickle '_thread.lock' object"
    )


def test_a_global():
    namespace = {"LOCK": threading.Lock()}
    exec("def process(batch):\n    return LOCK", namespace)
    said = unpicklable(namespace["process"], cloudpickle.dumps)
    assert said == "the global 'LOCK': cannot pickle '_thread.lock' object"


def test_a_function_that_calls_itself():
    used = threading.Lock()

    def process(batch):
        return process(batch) if batch else used

    assert unpicklable(process, cloudpickle.dumps) == (
        "the variable 'used': cannot pickle '_thread.lock' object"
    )


def test_functions_that_call_each_other():
    used = threading.Lock()

    def helper(batch):
        return process(batch), used

    def process(batch):
        return helper(batch)

    assert unpicklable(process, cloudpickle.dumps) == (
        "the variable 'used' in the variable 'helper': cannot pickle '_thread.lock' object"
    )


def test_a_variable_that_has_no_value_yet():
    lock = threading.Lock()

    def process(batch):
        return lock, later

    assert "cannot pickle '_thread.lock' object" in unpicklable(process, cloudpickle.dumps)
    later = 1


def test_what_a_function_calls_is_looked_into():
    lock = threading.Lock()

    def inner():
        return lock

    def process(batch):
        return inner()

    assert unpicklable(process, cloudpickle.dumps) == (
        "the variable 'lock' in the variable 'inner': cannot pickle '_thread.lock' object"
    )


def test_attributes_of_classes_objects_and_methods():
    class Model:
        lock = threading.Lock()

        def __call__(self, batch):
            return batch

    assert unpicklable(Model, cloudpickle.dumps).startswith("the attribute 'lock': ")

    class Client:
        def __init__(self):
            self.connection = threading.Lock()

        def process(self, batch):
            return batch

    client = Client()
    assert unpicklable(client, cloudpickle.dumps).startswith("the attribute 'connection': ")
    assert unpicklable(client.process, cloudpickle.dumps).startswith(
        "the attribute 'connection' in the object of the method: "
    )


def test_arguments_by_their_names():
    assert unpicklable({"by": 1, "lock": threading.Lock()}, cloudpickle.dumps).startswith("'lock': ")


def test_what_can_be_sent_and_what_nobody_knows_more_of():
    assert unpicklable(lambda batch: batch, cloudpickle.dumps) is None
    assert unpicklable(threading.Lock(), cloudpickle.dumps) == "cannot pickle '_thread.lock' object"
    assert unpicklable(lambda batch: batch, pickle.dumps) is not None


def test_an_error_whose_text_cannot_be_made_is_described_by_its_type():
    error = NoText()
    error.add_note("raised by the constructor of Made")
    assert (error_text(error), type_and_text(error)) == ("", "NoText")
    assert described(error) == "NoText (raised by the constructor of Made)"

    class Refuses:
        def __reduce__(self):
            raise error

    assert unpicklable(Refuses(), cloudpickle.dumps) == "NoText"
