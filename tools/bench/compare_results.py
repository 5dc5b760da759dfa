"""What is concluded from the runs of the comparison: medians, the better peer, ratios, whether losses agree. Standard library only."""
import math
import statistics

LOSS_TOLERANCE = 1e-5


def step_ms(result):
    """Median step of a run; each step is as slow as its slowest rank."""
    return result["step_ms"]["median"]


def peak_mb(result, key="vmhwm_mb"):
    """Peak resident memory of the rank that needs most; a rank that does not tell `key` counts with VmHWM.

    VmHWM, since getrusage's maxrss also counts what the launcher held before it became the rank.
    """
    return max(rank.get(key, rank["vmhwm_mb"]) for rank in result["mem"])


def median_step(results):
    return statistics.median(step_ms(r) for r in results)


def median_extra(results, empty, key="vmhwm_mb"):
    """Median peak above the figure `key` of a rank without a model."""
    return statistics.median(peak_mb(r) for r in results) - peak_mb(empty, key)


def better(figures):
    """The smallest of {name: figure} as (name, figure)."""
    return min(figures.items(), key=lambda item: item[1])


def line(name, ranks, unit, ours, peers):
    """One line of the result: ours against the best of {peer: figure}."""
    by, peer = better(peers)
    ratio = ours / peer if peer > 0 else math.nan
    return {"name": name, "ranks": ranks, "unit": unit, "ours": round(ours, 4), "peer": round(peer, 4),
            "ratio": None if math.isnan(ratio) else round(ratio, 4), "peer_by": by, "peers": {k: round(v, 4) for k, v in peers.items()}}


def losses(result):
    return [float(value) for value in result["losses"]] + [float(result["last_loss"])]


def disagreement(ours, peer):
    """None when the losses of two runs agree, else what is wrong. The tolerance is relative for losses above 1."""
    a, b = losses(ours), losses(peer)
    if len(a) != len(b):
        return "%d losses of ours, %d of the peer's" % (len(a), len(b))
    for i, (x, y) in enumerate(zip(a, b)):
        if not abs(x - y) <= LOSS_TOLERANCE * max(1.0, abs(y)):  # so that a NaN is found
            which = "last loss" if i + 1 == len(a) else "loss %d" % i
            return "%s is %.9g, the peer's is %.9g" % (which, x, y)
    return None


def table(lines):
    """The lines as a table for people, in columns."""
    head = ["name", "ranks", "unit", "ours", "peer", "ratio", "peer is"]
    rows = [head]
    for entry in lines:
        ratio = "-" if entry["ratio"] is None else "%.3f" % entry["ratio"]
        rows.append([entry["name"], str(entry["ranks"]), entry["unit"], "%.2f" % entry["ours"], "%.2f" % entry["peer"], ratio, entry["peer_by"]])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    text = []
    for row in rows:
        cells = [c.rjust(w) if 2 < i < 6 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)
