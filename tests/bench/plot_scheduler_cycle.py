"""Draws how the time of a scheduling cycle grows, from the table that bench_scheduler_cycle prints:

    build/tests/bench/bench_scheduler_cycle | python3 tests/bench/plot_scheduler_cycle.py > docs/scheduler-cycle.svg
"""

import math
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP, LEGEND = 440, 300, 76, 44, 52, 84, 150
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444"]  # distinguishable for colour-blind readers
PANELS = {"jobs": ("jobs, on 64 nodes of 8 GPUs", 2), "nodes": ("nodes of 8 GPUs, for 160 jobs", 3)}
TICKS_MS = [0.1, 1, 10, 100, 1000]


def read(lines):
    """Returns the points (number, median in ms) by panel and policy, in the order of the table."""
    panels = {panel: {} for panel in PANELS}
    for line in lines:
        fields = line.split()
        if fields and fields[0] in PANELS:
            points = panels[fields[0]].setdefault(fields[1], [])
            points.append((int(fields[PANELS[fields[0]][1]]), float(fields[5])))
    if not all(panels.values()):
        sys.exit("plot_scheduler_cycle: no rows of growth; pipe the table of bench_scheduler_cycle in")
    return panels


def axis(min_value, max_value, length):
    low, high = math.log(min_value), math.log(max_value)
    return lambda value: length * (math.log(value) - low) / (high - low)


def text(x, y, words, anchor="middle", **more):
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{words}</text>'


def panel(left, name, lines, colours, ticks):
    numbers = sorted({number for points in lines.values() for number, _ in points})
    across, up = axis(numbers[0], numbers[-1], WIDTH), axis(ticks[0], ticks[-1], HEIGHT)
    floor = TOP + HEIGHT
    yield text(left + WIDTH / 2, floor + 40, PANELS[name][0])
    for tick in ticks:
        y = floor - up(tick)
        yield f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(left - 8, y + 4, f"{tick:g} ms", "end")
    for number in numbers:
        yield text(left + across(number), floor + 18, number)
    for policy, points in lines.items():
        path = " ".join(f"{left + across(number):.1f},{floor - up(max(ms, ticks[0])):.1f}" for number, ms in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colours[policy]}" stroke-width="2"/>'
        for point in path.split():
            x, y = point.split(",")
            yield f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colours[policy]}"/>'


def main():
    panels = read(sys.stdin)
    policies = list(dict.fromkeys(policy for lines in panels.values() for policy in lines))
    colours = {policy: COLOURS[i % len(COLOURS)] for i, policy in enumerate(policies)}
    slowest = max(ms for lines in panels.values() for points in lines.values() for _, ms in points)
    ticks = TICKS_MS + [10 ** e for e in range(4, 9) if 10 ** (e - 1) < slowest]
    width = LEFT + 2 * WIDTH + GAP + LEGEND
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + BOTTOM}" '
          'font-family="sans-serif" font-size="12" fill="#333">')
    print('<rect width="100%" height="100%" fill="white"/>')
    print(text(LEFT, 22, "Time of a scheduling cycle (median)", "start", font_size=15))
    for i, (name, lines) in enumerate(panels.items()):
        print("\n".join(panel(LEFT + i * (WIDTH + GAP), name, lines, colours, ticks)))
    for i, policy in enumerate(policies):
        x, y = LEFT + 2 * WIDTH + GAP + 16, TOP + 12 + 20 * i
        print(f'<line x1="{x}" x2="{x + 18}" y1="{y - 4}" y2="{y - 4}" stroke="{colours[policy]}" stroke-width="2"/>')
        print(text(x + 24, y, policy, "start"))
    print("</svg>")


if __name__ == "__main__":
    main()
