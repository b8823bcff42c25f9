"""Writes schedules.json, the golden data of the schedule tests.

Why: the aggregator and the clients must agree, to the minute and the millitoken,
on what a schedule means. The clients are zae-limiter; so this script asks it,
and the Go tests compare.

How: in a throwaway virtual environment,

    pip install zae-limiter==0.17.0
    python schedules.py

It takes a minute or two. The answers depend on the zone rules of 2026 to 2028
only, for zones that announced no change for those years.

Where the client's search gives up at its cap, it is asked again from further on;
where it looks back and gives up, nothing is recorded.
"""

import hashlib
import json
import pathlib
import random
from datetime import UTC, datetime
from fractions import Fraction

from zae_limiter import schedule as zl

MINUTE = 60_000
RNG = random.Random(20260101)
ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Asia/Kolkata",
    "America/St_Johns",
    "Pacific/Apia",
    "Africa/Casablanca",  # daylight saving the other way round, around Ramadan
    "America/Santiago",  # changes at midnight
]


def ms(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000


YEAR = (ms(2026, 1, 1), ms(2027, 1, 1))
LEAP = (ms(2027, 6, 1), ms(2028, 6, 1))

# Around the clock changes of 2026, and the turn of the year.
SENSITIVE = [
    ms(2026, 3, 8, 6, 59), ms(2026, 3, 8, 7, 0), ms(2026, 3, 8, 7, 30),  # New York, forward
    ms(2026, 11, 1, 5, 30), ms(2026, 11, 1, 6, 30), ms(2026, 11, 1, 7, 0),  # and back
    ms(2026, 3, 29, 0, 59), ms(2026, 3, 29, 1, 0), ms(2026, 3, 29, 1, 30),  # Berlin
    ms(2026, 10, 25, 0, 30), ms(2026, 10, 25, 1, 0), ms(2026, 10, 25, 1, 30),
    ms(2026, 4, 4, 14, 45), ms(2026, 4, 4, 15, 15), ms(2026, 10, 3, 15, 30),  # Lord Howe
    ms(2026, 1, 1), ms(2026, 12, 31, 23, 59),
]

RESETS_EVERYWHERE = [
    ["0 0 * * *"], ["30 2 * * *"], ["30 1 * * *"], ["0 * * * *"], ["*/15 * * * *"],
    ["* 1-2 * * *"], ["* 9-17 * * MON-FRI"], ["0 0 * * SUN"], ["0 0 1 * *"], ["45 23 * * 6,7"],
]
RESETS = [
    ["0 0 1 1 *"], ["0 0 1 */3 *"], ["0 0 1 JAN,apr,Jul,OCT *"], ["0 0 31 * *"],
    ["0 0 30 * *"], ["0 0 29 * *"], ["0 0 1-7 * 1"], ["0 0 1-7 * */7"], ["0 0 */2 * *"],
    ["0 0 */2 * 1-5"], ["0 0 */2 * */2"], ["0 0 13 * 5"], ["0 0 13 * FRI"], ["0 0 1 * 0"],
    ["0 0 1 * 7"], ["0 0 * * 0"], ["0 0 * * 7"], ["0 0 * * 5-7"], ["0 0 * * 0-7"],
    ["0 0 * * SUN-TUE"], ["0 0 * * SUN/2"], ["0 0 * * 1/2"], ["0 0 * * 5/2"], ["0 0 * * 7/2"],
    ["0 0 * * */3"], ["0 0 * * */7"], ["0 0 * * sat,SUN"], ["0 0 * * 1,3,5"], ["0 0 * * 0,3"],
    ["*/5 * * * *"], ["*/7 * * * *"], ["5/10 * * * *"], ["50/15 * * * *"], ["5-5/10 6 * * *"],
    ["*/60 * * * *"], ["*/100 */24 * * *"], ["0,30 * * * *"], ["1-10,20-30/5 3 * * *"], ["59 23 31 12 *"],
    ["0 */6 * * *"], ["0 9-17/3 * * 1-5"], ["0 0-23/8 * * *"], ["* 0 * * *"], ["*/2 * * * *"],
    ["* * 1 * *"], ["* * * * MON"], ["* * * 2 *"], ["* * * 2-4 1-5"], ["* 22-23,0-5 * * *"],
    ["0 12 28-31 2 *"], ["15 14 1 * *"], ["0 0 1,15 * *"], ["07 08 09 010 *"], ["0 0 31 1,3 SUN"],
    ["0 0 30 2 MON"], ["0 0 * FEB SUN"], ["0 0 1-31 * MON"], ["0 6 */10 * *"], ["0 0 1/7 6 *"],
    ["0 0 * * *", "0 12 * * *"], ["0 0 1 * *", "0 0 * * MON"], ["0 0 * * *", "* * * * *"],
    ["* * * * *", "0 0 1 * *"], ["*/30 8-9 * * *", "15 8 * * 1", "0 0 1 1 *"],
]
SCHEDULES = [
    [("* 9-17 * * MON-FRI", dict(scale=0.5))],
    [("* 0-6 * * *", dict(capacity=2000))],
    [("* * * * 6,7", dict(scale=2.0))],
    [("* * * * SUN", dict(capacity=5, refill_amount=7, refill_period_seconds=60))],
    [("* 2 * * *", dict(refill_amount=1))],
    [("30-59 1 * * *", dict(refill_period_seconds=3600))],
    [("0 0 1 * *", dict(scale=0.001))],
    [("* * 1-7 * 1", dict(scale=0.3))],
    [("* * 24-26 12 *", dict(scale=3.7))],
    [("* * * 12 *", dict(scale=0.9)), ("* * * 6-8 *", dict(scale=1.1))],
    [("* 12-13 * * *", dict(scale=0.123)), ("* 9-17 * * 1-5", dict(scale=0.5)), ("* * * * 0", dict(capacity=1))],
    [("*/2 * * * *", dict(scale=0.75)), ("*/3 * * * *", dict(scale=0.25))],
    [("* * * * *", dict(scale=1.25)), ("* 9 * * *", dict(scale=0.5))],
    [("* 9 * * *", dict(scale=0.5)), ("* * * * *", dict(capacity=77))],
    [("* 0-11 * * *", dict(scale=0.5)), ("* 12-23 * * *", dict(scale=2.0))],
    [("15,45 */4 */2 * 1-5", dict(capacity=10**15, refill_amount=10**15, refill_period_seconds=10**9))],
    [("* 1 * * *", dict(scale=0.0001))],
    [("* 22-23 * * 5", dict(scale=1.5)), ("* 0-3 * * 6", dict(scale=1.5))],
]
BASES = [(1_000_000, 1_000_000, 60_000), (10_000_123, 0, 86_400_000), (7, 3, 1000)]


def instants(n, begin, end):
    drawn = [RNG.randrange(begin, end) for _ in range(n)]
    return sorted(drawn + [t for t in SENSITIVE if begin <= t < end])


def edges_of(entries, begin, end):
    found, t = [], begin
    while t < end:
        e = zl.next_reset_edge(entries, now_ms=t)
        if e is None:
            # Nothing within the client's cap, which is a week or more. Past it there
            # may be: a month of 31 days and the hour that autumn adds exceeds it.
            t += 86_400_000
        elif e < end:
            found.append(e // MINUTE)
            t = e
        else:
            break
    return found


def reset_case(crons, zone, span):
    entries = tuple(zl.ScheduleEntry.reset(c, zone) for c in crons)
    compact, _ = zl.encode_reset(entries)
    assert zl.decode_reset(compact, zone)
    begin, end = span
    edges = edges_of(entries, begin, end)
    prev = [(t, zl.prev_reset_edge(entries, t)) for t in instants(8, begin, end)]
    return {
        "crons": crons, "zone": zone, "compact": compact, "begin": begin, "end": end,
        "count": len(edges), "edges": edges[:40],
        "sha256": hashlib.sha256("".join(f"{e}\n" for e in edges).encode()).hexdigest(),
        "prev": [[t, e // MINUTE] for t, e in prev if e is not None],
    }


def change_after(entries, now, end):
    """The client's next change, searched on where it answered its cap."""
    parsed = tuple(zl.parse_cron(e.cron, e.tz) for e in entries)
    active, t = zl._active_index(parsed, now), now
    while t < end:
        t = zl._next_param_change(entries, t)
        if zl._active_index(parsed, t) != active:
            return t
    return None


def exact(base, entry):
    cp, ra, rp = base
    s = Fraction(round(entry.scale * 1000), 1000)
    return max(1, int(cp * s)), max(1, int(ra * s)) if ra else 0, rp


def effective(entries, compact, zone, t):
    stored = zl.decode(compact, zone)
    out = [t]
    for base in BASES:
        got = zl.effective_params(*base, stored, t)
        i = zl._active_index(tuple(zl.parse_cron(e.cron, e.tz) for e in stored), t)
        if i is not None and stored[i].scale is not None:
            for a, b in zip(got, exact(base, stored[i])):
                assert b - 1 <= a <= b, (got, stored[i])
        out.append(got)
    return out


def schedule_case(lines, zone):
    entries = tuple(zl.ScheduleEntry(cron, zone, **changes) for cron, changes in lines)
    compact, _ = zl.encode(entries)
    begin, end = YEAR
    changes, t = [], begin
    for _ in range(40):
        if (c := change_after(entries, t, end)) is None:
            break
        changes.append([t, c])
        t = c
    for t in instants(10, begin, end):
        if (c := change_after(entries, t, end)) is not None:
            changes.append([t, c])
    return {
        "entries": [
            {
                "cron": e.cron, "scale": max(1, round(e.scale * 1000)) if e.scale else 0, "capacity": e.capacity or 0,
                "refill": e.refill_amount or 0, "period": e.refill_period_seconds or 0,
            }
            for e in entries
        ],
        "zone": zone, "compact": compact, "changes": changes,
        "effective": [effective(entries, compact, zone, t) for t in instants(12, begin, end)],
    }


def random_item(lo, hi, names):
    def value():
        return RNG.choice(names) if names and RNG.random() < 0.3 else str(RNG.randint(max(0, lo - 1), hi + 1))

    base = RNG.choice(["*", value(), value(), f"{value()}-{value()}", f"{value()}-{value()}"])
    if RNG.random() < 0.35:
        base += f"/{RNG.choice([0, 1, 2, 3, 4, 5, 7, 10, 15, 31, 60, 100])}"
    return base


ODD = [
    "", "-", "/", ",", "1,", ",1", "1,,2", "5-", "-5", "*-5", "**", "*5", "?", "+5", "1_0", "1.5", "00", "007", "5-5/10",
    "1-5/2/3", "*/0", "*/", "/2", "*/00", "*/02", "0-7", "7-0", "7-7", "7/1", "L", "LW", "15W", "W", "5L", "FRI#2", "6#3",
    "MONDAY", "MON-FRI", "SAT-SUN", "SUN-SAT", "sun", "JAN-DEC", "DEC-JAN", "JANFEB", "1MON", "*,5", "5,*", "*/2,3", "3,*/2",
]


def field_cases():
    names = [[], [], [], list(zl._MONTH_NUMBERS), list(zl._DOW_NUMBERS)]
    bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
    cases = []
    for slot in range(5):
        texts = [",".join(random_item(*bounds[slot], names[slot]) for _ in range(RNG.choice([1, 1, 2, 3]))) for _ in range(150)]
        for text in ODD + texts:
            fields = ["*"] * 5
            fields[slot] = text
            cases.append(cron_case(" ".join(fields)))
    day = ["*", "*/2", "1", "30", "31", "30,31", "29", "1-31", "*,5", "5,*"]
    weekday = ["*", "*/2", "MON", "0-7", "1-7", "*/7"]
    cases += [cron_case(f"0 0 {d} {m} {w}") for d in day for m in ("*", "2", "4,6", "2,3") for w in weekday]
    cases += [cron_case(c) for c in ["", "* * * *", "0 * * * * *", "@daily", "TZ=UTC 0 0 * * *", " 0  0\t* * * "]]
    return cases


def mask(values):
    return sum(1 << v for v in values)


def cron_case(cron):
    try:
        p = zl.parse_cron(cron, "UTC")
    except ValueError:
        return {"cron": cron}
    return {
        "cron": cron,
        "sets": [mask(p.minutes), mask(p.hours), mask(p.days), mask(p.months), mask(v % 7 for v in p.weekdays)],
        "both": p.day_and,
        "compact": zl.encode((zl.ScheduleEntry(cron, scale=0.5),))[0],
    }


def main():
    resets = [reset_case(c, z, YEAR) for c in RESETS_EVERYWHERE for z in ZONES]
    for i, crons in enumerate(RESETS):
        resets.append(reset_case(crons, ZONES[i % len(ZONES)], YEAR))
    resets.append(reset_case(["0 0 29 2 *"], "Europe/Berlin", LEAP))
    resets.append(reset_case(["0 0 29 2 *"], "UTC", LEAP))
    data = {
        "crons": field_cases(),
        "bases": BASES,
        "resets": resets,
        "schedules": [schedule_case(s, z) for s in SCHEDULES for z in ZONES],
    }
    lines = ",\n".join(f' "{k}": [\n' + ",\n".join(json.dumps(v, separators=(",", ":")) for v in vs) + "\n ]" for k, vs in data.items())
    pathlib.Path(__file__).with_name("schedules.json").write_text("{\n" + lines + "\n}\n")


main()
