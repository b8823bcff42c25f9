"""zae-limiter's synchronous client under a test's command, on a table that is there.

    python driver.py ENDPOINT_URL TABLE NAMESPACE CACHE

It reads commands, one JSON object a line, and answers each with one: {"ok": value}, or {"raised": class, "message": text}.
"do" names the command, a function below; the other members are its arguments ("words" those without a name). What a client of its own would keep in a
process (caches, the shard counts it has learnt) is kept here, so one driver is one client. CACHE is how many seconds it
keeps limits.
"""

import datetime
import json
import logging
import os
import random
import sys
import time

REGION = "us-east-1"
os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local", AWS_DEFAULT_REGION=REGION,
                  AWS_EC2_METADATA_DISABLED="true")

from click.testing import CliRunner  # noqa: E402
from zae_limiter import Limit, RateLimitExceeded, ScheduleEntry, SyncRateLimiter, SyncRepository, __version__  # noqa: E402
from zae_limiter.cli import cli  # noqa: E402
from zae_limiter.exceptions import ResourceDisabled  # noqa: E402
from zae_limiter.version import CURRENT_SCHEMA_VERSION  # noqa: E402
from zae_limiter_provisioner.handler import on_event  # noqa: E402


class Steered(SyncRepository):
    """The real repository, but that a command can tell it what to draw, and hold it up.

    `shard` is the one to draw; None leaves the draw to it. Where `meet` is an item's key, a shard that was planned is put
    once that item has `met` set, which is the answer to its `planned`: what others do in between overtakes it.
    """

    shard = meet = None

    def select_shard(self, entity_id, resource, shard_id=None, shard_count=None, avoid=frozenset()):
        if shard_id is None and self.shard is not None:
            _, count = super().select_shard(entity_id, resource, 0, shard_count)
            return self.shard, max(count, self.shard + 1)
        return super().select_shard(entity_id, resource, shard_id, shard_count, avoid)

    def plan_quota_shard(self, *arguments, **named):
        plan = super().plan_quota_shard(*arguments, **named)
        if self.meet:
            self.set("planned")
            while "met" not in self._get_client().get_item(TableName=self.table_name, Key=self.meet, ConsistentRead=True)["Item"]:
                time.sleep(0.005)
            self.meet = None
        return plan

    def set(self, flag):
        self._get_client().update_item(TableName=self.table_name, Key=self.meet, UpdateExpression="SET #0 = :0",
                                       ExpressionAttributeNames={"#0": flag}, ExpressionAttributeValues={":0": {"BOOL": True}})


class Abandoned(Exception):
    """The work that a lease was for failed."""


def limit_of(wire):
    zone = wire["zone"] or "UTC"
    return Limit(
        name=wire["name"], capacity=wire["capacity"], refill_amount=wire["refill"],
        refill_period_seconds=wire["period"] or 1, soft=wire["soft"],
        reset_after=datetime.timedelta(seconds=wire["window"]) if wire["window"] else None,
        reset_schedule=tuple(ScheduleEntry.reset(cron, zone) for cron in wire["resets"]),
        schedule=tuple(ScheduleEntry(
            cron=entry["cron"], tz=zone, scale=entry["scale"] / 1000 if entry["scale"] else None,
            capacity=entry["capacity"] or None, refill_amount=entry["refill"] or None,
            refill_period_seconds=entry["period"] or None) for entry in wire["schedule"]))


def wire_of(limit):
    entries = (*limit.schedule, *limit.reset_schedule)
    quota = limit.reset_after is not None or bool(limit.reset_schedule)
    return {
        "name": limit.name, "capacity": limit.capacity, "refill": limit.refill_amount,
        "period": 0 if quota else limit.refill_period_seconds, "soft": limit.soft,
        "window": int(limit.reset_after.total_seconds()) if limit.reset_after else 0,
        "resets": [entry.cron for entry in limit.reset_schedule],
        "zone": entries[0].tz if entries else "",
        "schedule": [{
            "cron": entry.cron, "scale": round(1000 * entry.scale) if entry.scale else 0, "capacity": entry.capacity or 0,
            "refill": entry.refill_amount or 0, "period": entry.refill_period_seconds or 0} for entry in limit.schedule]}


class Driver:
    def __init__(self, endpoint_url, table, namespace, cache):
        self.repository = Steered.open(namespace, stack=table, region=REGION, endpoint_url=endpoint_url,
                                       config_cache_ttl=int(cache))
        self.limiter = SyncRateLimiter(repository=self.repository)
        self.where = ["--name", table, "--region", REGION, "--endpoint-url", endpoint_url]
        self.namespace = ["--namespace", namespace]
        os.environ["AWS_ENDPOINT_URL"] = endpoint_url  # the provisioner's

    def hello(self):
        return {"version": __version__, "namespace": self.repository.namespace_id}

    def deployed(self):
        """Say that the table's functions read all that this version writes: it stores no session limits before."""
        self.repository.set_version_record(CURRENT_SCHEMA_VERSION, lambda_version=__version__)

    # Uses.

    def acquire(self, entity, resource, amounts, adjust=None, abandon=False, shard=None, meet=None):
        """One use, which is given up after it was admitted where abandon is true. What it took, None if refused."""
        self.repository.shard = shard
        self.repository.meet = meet and {"PK": {"S": meet}, "SK": {"S": meet}}
        try:
            with self.limiter.acquire(entity, resource, amounts) as lease:
                if adjust:
                    lease.adjust(**adjust)
                if abandon:
                    raise Abandoned
        except (RateLimitExceeded, ResourceDisabled):
            return None
        except Abandoned:
            return {}
        finally:
            self.repository.shard = None
        return {name: amount + (adjust or {}).get(name, 0) for name, amount in amounts.items()}

    def available(self, entity, resource):
        return self.limiter.available(entity, resource)

    def bump(self, entity, resource, count):
        return self.repository.bump_shard_count(entity, resource, count)

    # Limits and access. A level is that of an entity, a resource, both or neither.

    def set_limits(self, limits, entity="", resource=""):
        limits = [limit_of(wire) for wire in limits]
        if entity:
            self.repository.set_limits(entity, limits, **({"resource": resource} if resource else {}))
        elif resource:
            self.repository.set_resource_defaults(resource, limits)
        else:
            self.repository.set_system_defaults(limits)

    def get_limits(self, entity="", resource=""):
        if entity:
            limits = self.repository.get_limits(entity, **({"resource": resource} if resource else {}))
        elif resource:
            limits = self.repository.get_resource_defaults(resource)
        else:
            limits, _ = self.repository.get_system_defaults()
        return sorted((wire_of(limit) for limit in limits), key=lambda wire: wire["name"])

    def delete_limits(self, entity="", resource=""):
        if entity:
            self.limiter.delete_limits(entity, **({"resource": resource} if resource else {}))
        elif resource:
            self.repository.delete_resource_defaults(resource)
        else:
            self.repository.delete_system_defaults()

    def set_access(self, access, entity="", resource=""):
        """access is "enabled", "disabled", "bypass" or "inherit"."""
        verb = {"enabled": "enable", "disabled": "disable", "bypass": "bypass", "inherit": "clear"}[access]
        kind, suffix = "entity" if entity else "resource", "_disabled" if verb == "clear" else ""
        call = getattr(self.repository, f"{verb}_{kind}{suffix}")
        if entity:
            call(entity, resource or None)
        else:
            call(resource)

    def access(self, entity="", resource=""):
        if entity:
            stored = self.repository.get_entity_disabled(entity, resource or "_default_")
        else:
            stored = self.repository.get_resource_disabled(resource)
        return {True: "disabled", False: "enabled", None: "inherit"}.get(stored, stored)

    def top_up(self, entity, resource, amounts):
        self.repository.top_up(entity, resource, amounts)

    def reset(self, entity, resource):
        self.repository.reset_bucket(entity, resource)

    # What else there is.

    def create_entity(self, entity, name="", parent="", cascade=False):
        self.repository.create_entity(entity, name=name or None, parent_id=parent or None, cascade=cascade)

    def entity(self, entity):
        found = self.repository.get_entity(entity)
        return found and {"name": found.name, "parent": found.parent_id or "", "cascade": found.cascade}

    def move(self, entity, parent):
        self.repository.set_parent(entity, parent)

    def children(self, parent):
        return sorted(child.id for child in self.repository.get_children(parent))

    def listed(self):
        return {"defaults": sorted(self.repository.list_resources_with_defaults()),
                "entities": sorted(self.repository.list_resources_with_entity_configs()),
                "namespaces": sorted(found["name"] for found in self.repository.list_namespaces())}

    def buckets(self, entity, resource):
        """The balances that it reads, millitokens by limit: of shard 0, with what is written on the limits."""
        return {state.limit_name: {
            "balance": state.tokens_milli, "capacity": state.capacity_milli, "consumed": state.total_consumed_milli or 0,
            "soft": bool(state.soft), "resets": len(state.reset_sched), "schedule": len(state.sched),
            "window": state.reset_after_seconds or 0}
            for state in self.repository.get_buckets(entity, resource)}

    def usage(self, entity, resource, window):
        """Whole tokens by limit, added up over all windows of a kind."""
        sums, key = {}, None
        while True:
            found, key = self.repository.get_usage_snapshots(entity_id=entity, resource=resource, window_type=window, next_key=key)
            for snapshot in found:
                for name, amount in snapshot.counters.items():
                    sums[name] = sums.get(name, 0) + amount
            if not key:
                return sums

    # The other programs of the package.

    def provision(self, action, manifest):
        """Have the limits provisioner "plan" or "apply" a manifest. What it would change or has changed."""
        return on_event({"action": action, "table_name": self.repository.table_name,
                         "namespace_id": self.repository.namespace_id, "manifest": manifest}, None)

    def cli(self, *command):
        """What the command line tool prints; it must succeed."""
        namespace = [] if command[0] == "namespace" else self.namespace
        result = CliRunner().invoke(cli, [*command, *self.where, *namespace])
        if result.exit_code:
            raise RuntimeError(f"zae-limiter {' '.join(command)}: {result.output} {result.exception!r}")
        return result.output


def main(*where):
    logging.disable(logging.ERROR)
    random.seed()
    driver = Driver(*where)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": getattr(driver, command.pop("do"))(*command.pop("words", ()), **command)}
        except Exception as error:
            answer = {"raised": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
