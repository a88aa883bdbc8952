"""What is kept from task to task: lent to one at a time, closed when it failed or was idle for long."""

import pytest

from kafka_actors.spark.python_worker import IdlePool


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.closed: list[str] = []
        self.made = 0
        self.pool: IdlePool[str, str] = IdlePool(self.closed.append, idle_s=60.0, clock=lambda: self.now)

    def make(self) -> str:
        self.made += 1
        return f"#{self.made}"

    def use(self, key: str = "k") -> str:
        with self.pool.lend(key, self.make) as thing:
            return thing


def test_the_next_task_has_what_the_last_one_left() -> None:
    scene = Scene()
    assert [scene.use(), scene.use(), scene.use("other"), scene.use()] == ["#1", "#1", "#2", "#1"]


def test_two_tasks_at_once_have_one_each() -> None:
    scene = Scene()
    with scene.pool.lend("k", scene.make) as first, scene.pool.lend("k", scene.make) as second:
        assert first != second


def test_what_failed_is_not_used_again() -> None:
    scene = Scene()
    with pytest.raises(ValueError, match="broken"), scene.pool.lend("k", scene.make):
        raise ValueError("broken")
    assert scene.closed == ["#1"]
    assert scene.use() == "#2"


def test_what_nobody_wants_is_closed_by_the_next_task() -> None:
    scene = Scene()
    scene.use("old")
    scene.now = 50.0
    scene.use("young")
    scene.now = 70.0
    scene.use("young")
    assert scene.closed == ["#1"]
    scene.pool.clear()
    assert scene.closed == ["#1", "#2"]


def test_a_forked_process_begins_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.use()
    monkeypatch.setattr("kafka_actors.spark.python_worker.os.getpid", lambda: -1)
    assert scene.use() == "#2"
    assert scene.closed == []
