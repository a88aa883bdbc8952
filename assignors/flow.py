"""Integer minimum-cost flow through a network, for the sticky assignors."""

from __future__ import annotations

from heapq import heappop, heappush

UNBOUNDED = 1 << 60


class Network:
    """Network of nodes 0..n-1 and arcs, each with a capacity and a cost per unit (an integer from 0 on).

    The algorithm is primal-dual. Potentials keep every reduced cost of the residual network non-negative; on the arcs
    with reduced cost 0 a maximum flow is found by blocking flows (Dinic); then the potentials are raised by the shortest
    distances. It ends because each blocking flow lengthens the shortest path of its round, and each round raises the
    distance to the sink, which is bounded by the sum of all costs.
    """

    def __init__(self, nodes: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]
        self._to: list[int] = []
        self._left: list[int] = []
        self._cost: list[int] = []
        self._potential = [0] * nodes
        self._priced = False

    def arc(self, tail: int, head: int, capacity: int, cost: int = 0, back: int = 0) -> int:
        """Adds an arc, and its reverse with the capacity `back` and the negated cost; returns its id.

        Both directions may have capacity only if the cost is 0: the network must start without a
        negative cycle.
        """
        arc = len(self._to)
        self._to += (head, tail)
        self._left += (capacity, back)
        self._cost += (cost, -cost)
        self._arcs[tail].append(arc)
        self._arcs[head].append(arc + 1)
        self._priced = self._priced or cost != 0
        return arc

    def moved(self, arc: int) -> int:
        """Flow along an arc that was added with `back` 0."""
        return self._left[arc ^ 1]

    def widen(self, arc: int, by: int) -> None:
        """Raises the capacity of an arc."""
        self._left[arc] += by

    def push(self, source: int, sink: int) -> int:
        """Sends a maximum flow at the least cost. Returns the units sent. May be called again after `widen`."""
        total = 0
        while True:
            while (level := self._levels(source, sink)) is not None:
                total += self._block(source, sink, level)
            if not (self._priced and self._raise_potentials(source, sink)):
                return total

    def reached(self, start: list[int]) -> set[int]:
        """Nodes that one more unit could reach from any node of `start`."""
        return self._closure(start, forward=True)

    def reaching(self, end: list[int]) -> set[int]:
        """Nodes from which one more unit could reach any node of `end`."""
        return self._closure(end, forward=False)

    def _closure(self, start: list[int], *, forward: bool) -> set[int]:
        flip = 0 if forward else 1
        to, left = self._to, self._left
        seen = set(start)
        todo = list(seen)
        while todo:
            for arc in self._arcs[todo.pop()]:
                if left[arc ^ flip] and to[arc] not in seen:
                    seen.add(to[arc])
                    todo.append(to[arc])
        return seen

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """Distances from the source in arcs of reduced cost 0; None if the sink can't be reached."""
        to, left, cost, potential = self._to, self._left, self._cost, self._potential
        level = [-1] * len(self._arcs)
        level[source] = 0
        front = [source]
        while front and level[sink] < 0:
            behind, front = front, []
            for node in behind:
                height, depth = potential[node], level[node] + 1
                for arc in self._arcs[node]:
                    head = to[arc]
                    if level[head] < 0 and left[arc] and cost[arc] + height == potential[head]:
                        level[head] = depth
                        front.append(head)
        return level if level[sink] >= 0 else None

    def _block(self, source: int, sink: int, level: list[int]) -> int:
        """Fills paths along which each arc leads to the next level, until none is left; no dead end is entered twice."""
        to, left = self._to, self._left
        tried = [0] * len(self._arcs)
        path: list[int] = []
        total = 0
        node = source
        while True:
            if node == sink:
                units = min(left[arc] for arc in path)
                for arc in path:
                    left[arc] -= units
                    left[arc ^ 1] += units
                total += units
                # Continue before the first arc that is full now.
                full = next(i for i, arc in enumerate(path) if not left[arc])
                node = to[path[full] ^ 1]
                del path[full:]
            elif (step := self._step(node, level, tried)) >= 0:
                path.append(step)
                node = to[step]
            elif path:
                level[node] = -1
                node = to[path.pop() ^ 1]
            else:
                return total

    def _step(self, node: int, level: list[int], tried: list[int]) -> int:
        to, left, cost, potential = self._to, self._left, self._cost, self._potential
        arcs = self._arcs[node]
        height, depth = potential[node], level[node] + 1
        for at in range(tried[node], len(arcs)):
            arc = arcs[at]
            head = to[arc]
            if level[head] == depth and left[arc] and cost[arc] + height == potential[head]:
                tried[node] = at
                return arc
        tried[node] = len(arcs)
        return -1

    def _raise_potentials(self, source: int, sink: int) -> bool:
        """Runs Dijkstra's algorithm on reduced costs up to the sink. Returns False if the sink is out of reach."""
        to, left, cost, potential = self._to, self._left, self._cost, self._potential
        distance: dict[int, int] = {source: 0}
        done: dict[int, int] = {}
        heap = [(0, source)]
        while heap and sink not in done:
            far, node = heappop(heap)
            if node in done:
                continue
            done[node] = far
            base = far + potential[node]
            for arc in self._arcs[node]:
                head = to[arc]
                if left[arc] and head not in done:
                    length = base + cost[arc] - potential[head]
                    if length < distance.get(head, UNBOUNDED):
                        distance[head] = length
                        heappush(heap, (length, head))
        if sink not in done:
            return False
        limit = done[sink]
        for node in range(len(potential)):
            potential[node] += done.get(node, limit)
        return True
