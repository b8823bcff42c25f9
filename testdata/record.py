#!/usr/bin/env python3
"""Record DynamoDB streams written by a real zae-limiter client.

Why: shardquota reads what another program writes. A hand-written record shows what we believe about that program;
these recordings show what it does. Each scenario runs the synchronous client of zae-limiter 0.17.0 against a table
of its own, then dumps the table's whole stream (configuration, audit, namespaces and operations too, not only
buckets) in the form in which Lambda hands records to a function, one record a line, gzipped.

How to run, with `pip install -r requirements.txt` done and a DynamoDB endpoint that has streams, such as dynoxide:

    dynoxide --port 8000 &
    python record.py --endpoint-url http://127.0.0.1:8000 --output . [SCENARIO ...]

All scenarios together take about three minutes: they run at the same time, and the calendar ones wait for real
minutes to pass. Draws and amounts are seeded, so a second run makes the same requests; clocks, namespace ids,
incarnations and event ids differ. Nothing here is a real identifier.

What is steered: which shard a request draws, in the scenarios that need a certain order (see Steered). Everything
that is written is written by the client, but for the items that put_by_hand writes, which stand for an aggregator's.
"""

import argparse
import collections
import concurrent.futures
import datetime
import gzip
import json
import logging
import os
import pathlib
import random
import sys
import time

REGION = "us-east-1"
os.environ.update(AWS_ACCESS_KEY_ID="dummy", AWS_SECRET_ACCESS_KEY="dummy", AWS_DEFAULT_REGION=REGION,
                  AWS_EC2_METADATA_DISABLED="true")

import boto3  # noqa: E402  (it must find the dummy credentials)
from zae_limiter import (  # noqa: E402
    Limit,
    RateLimitExceeded,
    ScheduleEntry,
    SyncRateLimiter,
    SyncRepository,
    __version__,
    schema,
)
from zae_limiter.exceptions import ResourceDisabled  # noqa: E402
from zae_limiter.version import CURRENT_SCHEMA_VERSION  # noqa: E402

DAILY = "0 0 * * *"


class Steered(SyncRepository):
    """The real repository, told from which shards to draw.

    A client draws among all shards that it knows of, and it learns a new count from its next successful write. To
    record "traffic goes on over the old shards for a while, then each new one is used", the draw alone is narrowed to
    `among`. None leaves the draw to the client.
    """

    among = None

    def select_shard(self, entity_id, resource, shard_id=None, shard_count=None, avoid=frozenset()):
        if shard_id is None and self.among is not None:
            shard_id = random.choice([s for s in self.among if s not in avoid] or list(self.among))
        shard_id, shard_count = super().select_shard(entity_id, resource, shard_id, shard_count, avoid)
        assert shard_id < shard_count, "no client draws a shard beyond the count that it knows"
        return shard_id, shard_count


class Client:
    """One process's view: a repository with its caches, and the limiter on it."""

    def __init__(self, repository):
        self.repository = repository
        self.limiter = SyncRateLimiter(repository=repository)

    def use(self, entity, resource, among=None, also=None, **amounts):
        """One request. Returns False where the client refuses it."""
        self.repository.among = among
        try:
            with self.limiter.acquire(entity, resource, amounts, also=also):
                return True
        except (RateLimitExceeded, ResourceDisabled):
            return False
        finally:
            self.repository.among = None


class Table:
    """A fresh table under a name of its own, and its stream."""

    def __init__(self, endpoint_url, scenario):
        self.endpoint_url = endpoint_url
        self.name = f"{scenario}-{time.time_ns() // 1_000_000:x}"
        self.dynamodb = boto3.client("dynamodb", endpoint_url=endpoint_url)
        self.dynamodb.create_table(**schema.get_table_definition(self.name))
        # Session limits, soft limits and top-ups are refused until the version record says that the stack's functions
        # know them. A deployment writes this; there is none here.
        self.client().repository.set_version_record(CURRENT_SCHEMA_VERSION, lambda_version=__version__)

    def client(self, namespace="acme-app", config_cache_ttl=60):
        return Client(Steered.open(namespace, stack=self.name, region=REGION, endpoint_url=self.endpoint_url,
                                   config_cache_ttl=config_cache_ttl))

    def put_by_hand(self, item):
        self.dynamodb.put_item(TableName=self.name, Item=item)

    def records(self):
        """The whole stream, in the form of a Lambda event's records."""
        prefix = f"arn:aws:dynamodb:{REGION}:000000000000:table/{self.name}/stream"
        streams = boto3.client("dynamodbstreams", endpoint_url=self.endpoint_url)
        arn = self.dynamodb.describe_table(TableName=self.name)["Table"]["LatestStreamArn"]
        label = arn.rsplit("/", 1)[1]
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"],
                                                  ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
            while iterator:
                page = streams.get_records(ShardIterator=iterator, Limit=1000)
                if not page["Records"]:
                    break
                for record in page["Records"]:
                    at = record["dynamodb"]["ApproximateCreationDateTime"].timestamp()
                    record["dynamodb"]["ApproximateCreationDateTime"] = int(at) if at == int(at) else at
                    record["awsRegion"] = REGION  # emulators put their own name here
                    record["eventSourceARN"] = f"{prefix}/{label}"
                    yield record
                iterator = page.get("NextShardIterator")


SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def sleep_until(instant):
    """Sleep to an instant in epoch seconds; past ones are now."""
    time.sleep(max(0.0, instant - time.time()))


# --------------------------------------------------------------------------------------------------------------- steady


@scenario
def steady(table):
    """Fast-path traffic on dripping limits, from each bucket's first use.

    The busiest bucket takes more than 800 writes with no pass between, so its wcu balance as stored ends under a fifth
    though it never was under pressure.
    """
    clients = [table.client(), table.client()]
    admin = clients[0].repository
    pairs = [("acme", "gpt-4"), ("acme", "embeddings"), ("globex", "gpt-4"), ("initech", "gpt-4"),
             ("umbrella", "embeddings"), ("hooli", "images")]
    for entity in sorted({entity for entity, _ in pairs}):
        admin.create_entity(entity)
    for entity, resource in pairs:
        admin.set_limits(entity, [Limit.per_minute("rpm", 100_000), Limit.per_minute("tpm", 10_000_000)],
                         resource=resource)
    for _ in range(1500):
        entity, resource = random.choices(pairs, weights=[20, 4, 6, 3, 1, 1])[0]
        random.choice(clients).use(entity, resource, rpm=1, tpm=random.randint(1, 4000))
        time.sleep(0.01)


# ----------------------------------------------------------------------------------------------------------- quota-walk

WALK_CAPACITY = 40_000


@scenario
def quota_walk(table):
    """A daily quota from 1 shard to 8. After each doubling the old shards alone are used for a while."""
    a, b = table.client(), table.client()
    a.repository.create_entity("acme")
    a.repository.set_limits("acme", [Limit.quota("calls", WALK_CAPACITY, cron=DAILY)], resource="gpt-4")

    def traffic(clients, shards, requests):
        for _ in range(requests):
            assert random.choice(clients).use("acme", "gpt-4", shards, calls=random.randint(1, 4))
            time.sleep(0.002)

    for count in (1, 2, 4):
        old, every = range(count), range(2 * count)
        traffic([a, b], old, 150)
        assert b.repository.bump_shard_count("acme", "gpt-4", count) == 2 * count
        traffic([a], old, 220)
        for new in range(count, 2 * count):
            traffic([b], [new], 1)
        traffic([a, b], every, 120)
    traffic([a, b], None, 500)


def audit_quota_walk(records):
    """What a reader of the recording relies on, proved off the recording itself."""
    capacity, images, lines = WALK_CAPACITY * 1000, {}, []
    count = waited = 0  # shard 0's count, and the requests since it last rose
    for record in buckets(records):
        shard, old, new = shard_of(record), record["dynamodb"].get("OldImage"), record["dynamodb"]["NewImage"]
        if old is None and shard > 0:
            if len(images) == count // 2:
                lines.append(f"{waited} requests on the old shards at count {count} before a new one was used")
            assert number(new, "b_calls_tk") + number(new, "b_calls_tc") == capacity // count, "a shard holds one share"
        if shard == 0 and number(new, "shard_count") != count:
            assert sorted(images) == list(range(count)), "all shards are there before the next doubling"
            count, waited = number(new, "shard_count"), 0
        elif old is not None and number(new, "b_calls_tc") > number(old, "b_calls_tc"):
            waited += 1
        images[shard] = new
        for donor in range(count // 2):
            if count // 2 + donor not in images:
                assert number(images[donor], "b_calls_tk") >= capacity // count, "a donor holds a share to give"
    held = sum(number(image, "b_calls_tk") for image in images.values())
    consumed = sum(number(image, "b_calls_tc") for image in images.values())
    assert sorted(images) == list(range(8)), "8 shards at the end"
    assert held + consumed == capacity, "nothing created, nothing destroyed"
    lines.append(f"at the end 8 shards, held {held} + consumed {consumed} = {held + consumed} millitokens = C")
    return lines


# -------------------------------------------------------------------------------------------------------------- session


@scenario
def session(table):
    """A session window of 20 s: opened, left to end twice, opened by the one shard and rolled by the other."""
    window = 20
    a, b = table.client(), table.client()
    a.repository.create_entity("globex")
    a.repository.set_limits("globex", [
        Limit.quota("sess", 4_000, reset_after=datetime.timedelta(seconds=window)),
        Limit.per_minute("rpm", 60_000),
    ], resource="chat")

    def spend(clients, shards, requests):
        for _ in range(requests):
            assert random.choice(clients).use("globex", "chat", shards, sess=random.randint(1, 5), rpm=1)
            time.sleep(0.02)

    opened = time.time()
    spend([a], [0], 60)
    a.repository.bump_shard_count("globex", "chat", 1)
    spend([a, b], [0], 20)
    spend([b], [1], 1)  # created in mid-window: it joins shard 0's
    spend([a, b], [0, 1], 120)
    sleep_until(opened + window + 1)

    for opener, sibling in ((0, 1), (1, 0)):
        opened = time.time()
        spend([a], [opener], 15)  # opens, and tells the sibling the start
        spend([b], [sibling], 15)  # rolls itself
        spend([a, b], [0, 1], 90)
        sleep_until(opened + window + 1.5)


# --------------------------------------------------------------------------------------------------------- limit-change


@scenario
def limit_change(table):
    """An operator raises, lowers, adds and drops limits while two shards are in use."""
    operator = table.client()
    clients = [table.client(config_cache_ttl=0), table.client(config_cache_ttl=0)]
    operator.repository.create_entity("initech")

    def limits(rpm, calls, *more):
        operator.repository.set_limits(
            "initech", [Limit.per_minute("rpm", rpm), Limit.quota("calls", calls, cron=DAILY), *more], resource="gpt-4")

    def traffic(requests, **extra):
        for _ in range(requests):
            random.choice(clients).use("initech", "gpt-4", rpm=1, calls=random.randint(1, 3), **extra)
            time.sleep(0.005)

    limits(60_000, 20_000)
    traffic(100)
    clients[0].repository.bump_shard_count("initech", "gpt-4", 1)
    clients[0].use("initech", "gpt-4", [1], rpm=1, calls=1)
    traffic(100)
    limits(120_000, 30_000)  # up: the quota's new part comes at the next reset, the ceiling at once
    traffic(100)
    limits(6_000, 8_000)  # down: both shards hold more than their new share
    traffic(100)
    tpm = Limit.per_minute("tpm", 1_000_000)
    limits(6_000, 8_000, tpm)  # a limit that the buckets do not have yet
    traffic(100, tpm=400)
    limits(6_000, 8_000)  # gone from the configuration; its attributes stay on the buckets
    traffic(60)
    limits(6_000, 8_000, tpm)
    traffic(40, tpm=400)
    operator.repository.set_resource_defaults(
        "gpt-4", [Limit.per_minute("rpm", 50_000), Limit.quota("calls", 9_000, cron=DAILY)])
    operator.limiter.delete_limits("initech", resource="gpt-4")  # down to the level above: tpm goes, and a ttl comes
    traffic(60)


# -------------------------------------------------------------------------------------------------------------- refunds


class Abandoned(Exception):
    """The work that a lease was for failed."""


@scenario
def refunds(table):
    """Leases that end otherwise than they began: consumption falls as well as rises."""
    client = table.client()
    repository, limiter = client.repository, client.limiter
    repository.create_entity("acme")
    for resource in ("gpt-4", "images"):
        repository.set_limits("acme", [Limit.per_minute("rpm", 60_000), Limit.per_minute("tpm", 2_000_000),
                                       Limit.quota("calls", 50_000, cron=DAILY)], resource=resource)
    repository.set_limits("acme", [Limit.per_second("burst", 100)], resource="small")

    def lease(resource="gpt-4", also=None, **amounts):
        return limiter.acquire("acme", resource, amounts, also=also)

    for _ in range(120):  # an estimate, then what it really was
        with lease(rpm=1, tpm=1000, calls=1) as held:
            held.adjust(tpm=random.randint(-900, 1500))
    for _ in range(40):
        with lease(rpm=1, tpm=500, calls=3) as held:
            held.release(tpm=random.randint(1, 500), calls=random.randint(0, 2))
    for _ in range(40):
        with lease(rpm=1, tpm=100) as held:
            held.consume(tpm=random.randint(1, 300))
    for _ in range(40):  # rolled back whole
        try:
            with lease(rpm=1, tpm=random.randint(1, 5000), calls=2):
                raise Abandoned
        except Abandoned:
            pass
    for _ in range(10):  # more is given back than was taken: the counter falls below where it was
        with lease(rpm=1, tpm=100) as held:
            held.release(tpm=700)
    for _ in range(20):  # fractions of a token: the client takes them, and writes whole millitokens
        with lease(rpm=1, tpm=10) as held:
            held.adjust(tpm=random.choice([-0.125, 0.25, 0.5, 1.375]))
    for _ in range(20):  # two resources, the second refused: the first is given back
        try:
            with lease(rpm=1, calls=1, also={"small": {"burst": random.choice([1, 500])}}):
                pass
        except RateLimitExceeded:
            pass
    for _ in range(10):  # given back after the bucket has filled up again: above its ceiling, so the fast path closes
        with lease("small", burst=80) as held:
            time.sleep(0.9)
            client.use("acme", "small", burst=60)
            held.release(burst=80)
        client.use("acme", "small", burst=1)
        time.sleep(0.3)
    for _ in range(60):
        client.use("acme", "images", rpm=1, tpm=random.randint(1, 300), calls=1)


# -------------------------------------------------------------------------------------------------------------- cascade


@scenario
def cascade(table):
    """Children whose use counts on their parent too; a parent that refuses; a child that moves to another parent."""
    clients = [table.client(), table.client()]
    admin = clients[0].repository
    for parent in ("acme", "globex"):
        admin.create_entity(parent)
        admin.set_limits(parent, [Limit.per_minute("rpm", 90_000), Limit.per_minute("tpm", 6_000_000)],
                         resource="gpt-4")
    for child in ("acme-web", "acme-batch"):
        admin.create_entity(child, parent_id="acme", cascade=True)
        admin.set_limits(child, [Limit.per_minute("rpm", 30_000), Limit.per_minute("tpm", 3_000_000)], resource="gpt-4")

    def traffic(requests, children=("acme-web", "acme-batch")):
        for _ in range(requests):
            random.choice(clients).use(random.choice(children), "gpt-4", rpm=1, tpm=random.randint(1, 900))
            time.sleep(0.005)

    traffic(250)
    clients[0].repository.bump_shard_count("acme", "gpt-4", 1)  # the hot one is the parent
    traffic(200)
    for _ in range(15):  # fits the child, not the parent's shard: the child's part is given back
        clients[0].use("acme-web", "gpt-4", rpm=1, tpm=2_990_000)
    traffic(100)
    admin.set_parent("acme-batch", "globex")
    traffic(120)
    admin.set_entity_cascade("acme-web", False, resource="gpt-4")
    traffic(80)


# ------------------------------------------------------------------------------------------------------------- schedule


@scenario
def schedule(table):
    """A dripping limit that halves on every other minute beside a quota that resets on it, over two real edges."""
    clients = [table.client(), table.client()]
    admin = clients[0].repository
    admin.create_entity("umbrella")
    admin.create_entity("hooli")
    half = (ScheduleEntry(cron="1-59/2 * * * *", scale=0.5),)
    admin.set_limits("umbrella", [
        Limit.per_minute("rpm", 12_000).with_schedule(half),
        Limit.quota("calls", 6_000, cron="*/2 * * * *"),
        Limit.per_minute("tpm", 600_000),  # neither: the item's defaults must be blocked
    ], resource="gpt-4")
    zone = "America/New_York"
    admin.set_limits("hooli", [
        Limit.quota("calls", 3_000, cron="*/2 * * * *", tz=zone).with_schedule(
            (ScheduleEntry(cron="1-59/2 * * * *", tz=zone, capacity=1_000),
             ScheduleEntry(cron="* 0-22 * * MON-FRI", tz=zone, scale=2.0))),
        Limit.per_minute("rpm", 9_000),
    ], resource="gpt-4")

    minute = time.time() // 60
    edge = (minute + (2 if minute % 2 == 0 else 1)) * 60  # the next even minute: a reset
    sleep_until(edge - 25)
    doubled = False
    while time.time() < edge + 130:
        client = random.choice(clients)
        client.use("umbrella", "gpt-4", rpm=random.randint(1, 6), calls=random.randint(1, 5),
                   tpm=random.randint(1, 900))
        if random.random() < 0.4:
            client.use("hooli", "gpt-4", rpm=1, calls=random.randint(1, 4))
        if not doubled and time.time() > edge - 15:
            client.repository.bump_shard_count("umbrella", "gpt-4", 1)
            doubled = True
        time.sleep(0.2)


# ------------------------------------------------------------------------------------------------------------- operator


@scenario
def operator(table):
    """Top-ups and resets on two shards, of every kind of limit; soft limits; bypass; disabled."""
    admin = table.client().repository
    clients = [table.client(config_cache_ttl=1), table.client(config_cache_ttl=1)]
    admin.create_entity("initech")
    base = [Limit.per_minute("rpm", 3_000), Limit.quota("calls", 5_000, cron=DAILY),
            Limit.quota("sess", 2_000, reset_after=datetime.timedelta(seconds=3600))]
    admin.set_limits("initech", base, resource="gpt-4")

    def traffic(requests, resource="gpt-4"):
        for _ in range(requests):
            random.choice(clients).use("initech", resource, rpm=1, calls=random.randint(1, 3), sess=1)
            time.sleep(0.005)

    traffic(60)
    clients[0].repository.bump_shard_count("initech", "gpt-4", 1)
    clients[0].use("initech", "gpt-4", [1], rpm=1, calls=1, sess=1)
    traffic(60)
    admin.top_up("initech", "gpt-4", {"calls": 501}, principal="billing", idempotency_key="purchase-1")
    traffic(40)
    # The same key again: the client finds its record and writes nothing.
    admin.top_up("initech", "gpt-4", {"calls": 501}, principal="billing", idempotency_key="purchase-1")
    admin.top_up("initech", "gpt-4", {"sess": 100, "rpm": 50}, principal="billing", idempotency_key="purchase-2")
    traffic(40)
    admin.reset_bucket("initech", "gpt-4", ["calls"], principal="support", idempotency_key="ticket-7")
    traffic(40)
    admin.reset_bucket("initech", "gpt-4", principal="support")
    traffic(60)
    for resource in ("images", "audio"):
        admin.set_limits("initech", base, resource=resource)
    admin.top_up("initech", "images", {"calls": 250}, idempotency_key="purchase-3")  # before its first use
    admin.reset_bucket("initech", "audio", idempotency_key="ticket-8")  # nothing to reset
    traffic(30, "images")

    admin.set_limits("initech", [Limit.per_minute("rpm", 3_000), Limit.quota("calls", 5_000, cron=DAILY, soft=True),
                                 base[2]], resource="gpt-4")
    time.sleep(1.1)
    traffic(60)
    admin.bypass_entity("initech", "gpt-4", principal="support")
    time.sleep(1.1)
    traffic(60)
    admin.clear_entity_disabled("initech", "gpt-4")
    time.sleep(1.1)
    traffic(30)
    admin.disable_entity("initech", "gpt-4", principal="security")
    traffic(5)  # all refused
    admin.enable_entity("initech", "gpt-4")
    traffic(30)


# ---------------------------------------------------------------------------------------------------------------- mixed


@scenario
def mixed(table):
    """Two namespaces and everything at once: defaults at every level, expiring buckets, odd names, deletions."""
    clients = [table.client(config_cache_ttl=1), table.client(config_cache_ttl=1)]
    other = table.client("globex-app", config_cache_ttl=1)
    admin = clients[0].repository

    admin.set_system_defaults([Limit.per_minute("rpm", 10_000)], on_unavailable="block")
    admin.set_resource_defaults("gpt-4", [
        Limit.per_minute("rpm", 20_000), Limit.per_minute("tokens.in", 900_000),
        Limit.quota("sess", 5_000, reset_after=datetime.timedelta(minutes=30))])
    admin.set_resource_defaults("models/embed-3", [Limit.quota("calls-day", 30_000, cron=DAILY)])
    admin.create_entity("acme", name="Acme Inc.", metadata={"plan": "gold"})
    admin.create_entity("acme-web", parent_id="acme", cascade=True)
    admin.set_limits("acme", [Limit.per_minute("rpm", 40_000)])  # the entity's own default, for all resources
    admin.set_limits("acme", [Limit.per_minute("rpm", 50_000), Limit.quota("calls", 9_000, cron="0 0 1 * *")],
                     resource="images")
    other.repository.set_system_defaults([Limit.per_minute("rpm", 5_000)])

    def use(client, kind):
        if kind == "default":  # no entity record, resource defaults: the bucket expires
            client.use(random.choice(["user:42@globex", "user:43@globex"]), "gpt-4", rpm=1, sess=1,
                       **{"tokens.in": random.randint(1, 800)})
        elif kind == "system":
            client.use(random.choice(["trial-1", "trial-2"]), "search", rpm=1)
        elif kind == "quota":
            client.use("hooli", "models/embed-3", **{"calls-day": random.randint(1, 9)})
        elif kind == "own":
            client.use("acme", "images", rpm=1, calls=1)
        elif kind == "child":
            client.use("acme-web", "search", rpm=1)
        elif kind == "other":
            other.use("acme", "search", rpm=1)

    kinds = ["default", "default", "system", "quota", "own", "child", "other"]

    def traffic(requests):
        for _ in range(requests):
            use(random.choice(clients), random.choice(kinds))
            time.sleep(0.003)

    traffic(300)
    clients[1].repository.bump_shard_count("hooli", "models/embed-3", 1)
    traffic(150)
    admin.disable_resource("search", principal="security")
    traffic(60)
    admin.enable_resource("search", principal="security")
    admin.clear_resource_disabled("search")
    traffic(100)
    with clients[0].limiter.acquire("acme", "images", {"rpm": 1, "calls": 5}) as lease:
        lease.release(calls=4)
    # An aggregator's own write, which the stream carries back to it. No client makes one.
    namespace = admin.namespace_id
    start = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:00:00Z")
    table.put_by_hand({
        "PK": {"S": f"{namespace}/ENTITY#hooli"}, "SK": {"S": f"#USAGE#models/embed-3#{start}#hourly"},
        "entity_id": {"S": "hooli"}, "resource": {"S": "models/embed-3"}, "window": {"S": "hourly"},
        "window_start": {"S": start}, "calls-day": {"N": "12.5"}, "total_events": {"N": "3"},
        "ttl": {"N": str(int(time.time()) + 90 * 86_400)},
        "GSI2PK": {"S": f"{namespace}/RESOURCE#models/embed-3"}, "GSI2SK": {"S": f"USAGE#{start}#hooli"},
        "GSI4PK": {"S": namespace}, "GSI4SK": {"S": f"{namespace}/ENTITY#hooli"}})
    traffic(100)
    admin.top_up("hooli", "models/embed-3", {"calls-day": 400}, idempotency_key="purchase-9")
    traffic(60)
    admin.delete_limits("acme", resource="images")
    admin.delete_entity("acme-web")  # REMOVE records of its buckets, record and configuration
    traffic(60)
    admin.delete_resource_defaults("models/embed-3")
    admin.delete_system_defaults()


# ------------------------------------------------------------------------------------------------- dumping, summarising


def number(image, attribute):
    return int(image.get(attribute, {"N": "1" if attribute == "shard_count" else "0"})["N"])


def buckets(records):
    return (r for r in records if r["dynamodb"]["Keys"]["SK"]["S"] == "#STATE" and r["eventName"] != "REMOVE")


def shard_of(record):
    return int(record["dynamodb"]["Keys"]["PK"]["S"].rsplit("#", 1)[1])


def kind_of(record):
    sort_key, partition = (record["dynamodb"]["Keys"][k]["S"] for k in ("SK", "PK"))
    if sort_key == "#STATE":
        return "bucket"
    head = sort_key.lstrip("#").split("#")[0].lower()
    return f"config of {partition.split('/', 1)[1].split('#')[0].lower()}" if head == "config" else head


def run(name, endpoint_url, output):
    logging.disable(logging.WARNING)  # an emulator has no STS and no Lambda; the client says so often
    random.seed(name)
    table = Table(endpoint_url, name)
    SCENARIOS[name](table)
    records = list(table.records())
    path = pathlib.Path(output) / f"{name}.jsonl.gz"
    lines = "".join(json.dumps(r, sort_keys=True, separators=(",", ":")) + "\n" for r in records)
    path.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    report = [f"{name}: {len(records)} records, {path.stat().st_size} bytes"]
    for (kind, event), count in sorted(collections.Counter((kind_of(r), r["eventName"]) for r in records).items()):
        report.append(f"  {kind} {event} {count}")
    if name == "quota-walk":
        report += [f"  audit: {line}" for line in audit_quota_walk(records)]
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint-url", required=True, help="a DynamoDB endpoint with streams")
    parser.add_argument("--output", default=".", help="directory for SCENARIO.jsonl.gz (default: here)")
    parser.add_argument("scenario", nargs="*", help=f"which (default: all): {', '.join(SCENARIOS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    names = arguments.scenario or list(SCENARIOS)
    with concurrent.futures.ProcessPoolExecutor(max_workers=len(names)) as pool:
        futures = {name: pool.submit(run, name, arguments.endpoint_url, arguments.output) for name in names}
        failed = False
        for name, future in futures.items():
            try:
                print("\n".join(future.result()), flush=True)
            except Exception as error:
                failed = True
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        sys.exit(failed)


if __name__ == "__main__":
    main()
