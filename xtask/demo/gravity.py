"""Numbers without NumPy: bodies that attract each other, in a quadtree (Barnes and Hut), deep and recursive."""
import math, os, random, time


class Cell:
    __slots__ = ("x", "y", "size", "mass", "mx", "my", "body", "children")

    def __init__(self, x, y, size):
        self.x, self.y, self.size = x, y, size
        self.mass = self.mx = self.my = 0.0
        self.body = self.children = None

    def insert(self, body, depth=0):
        px, py, mass = body
        self.mass += mass
        self.mx += px * mass
        self.my += py * mass
        if self.children is None and (self.body is None or depth > 30):
            self.body = body
            return
        if self.children is None:
            self.split()
            self.child_of(self.body).insert(self.body, depth + 1)
            self.body = None
        self.child_of(body).insert(body, depth + 1)

    def split(self):
        half = self.size / 2
        self.children = [Cell(self.x + i * half, self.y + j * half, half) for j in (0, 1) for i in (0, 1)]

    def child_of(self, body):
        half = self.size / 2
        return self.children[(body[0] >= self.x + half) + 2 * (body[1] >= self.y + half)]


def pull(cell, px, py):
    if cell.mass == 0.0:
        return 0.0, 0.0
    dx, dy = cell.mx / cell.mass - px, cell.my / cell.mass - py
    distance = math.sqrt(dx * dx + dy * dy) + 1e-3
    if cell.children is None or cell.size / distance < 0.7:
        force = cell.mass / distance**3
        return dx * force, dy * force
    parts = [pull(child, px, py) for child in cell.children]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def step(bodies, speeds, dt):
    top = Cell(0.0, 0.0, 1.0)
    for body in bodies:
        top.insert(body)
    for n, (px, py, mass) in enumerate(bodies):
        ax, ay = pull(top, px, py)
        vx, vy = speeds[n] = speeds[n][0] + ax * dt, speeds[n][1] + ay * dt
        bodies[n] = ((px + vx * dt) % 1.0, (py + vy * dt) % 1.0, mass)


def main():
    parent, rng = os.getppid(), random.Random(2)
    bodies = [(rng.random(), rng.random(), 1e-4) for _ in range(250)]
    speeds = [(0.0, 0.0)] * len(bodies)
    while os.getppid() == parent:
        step(bodies, speeds, 1e-4)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
