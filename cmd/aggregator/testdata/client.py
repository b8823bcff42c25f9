"""A real client at work: zae-limiter's synchronous one, on a table that is there, for the end-to-end test.

    python client.py ENDPOINT_URL TABLE ENTITY

It makes 200 requests against a quota and a dripping limit, doubles the shard count in the middle, and prints what it
consumed as one JSON object: tokens by limit name.
"""

import collections
import datetime
import json
import logging
import os
import random
import sys

REGION = "us-east-1"
os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local", AWS_DEFAULT_REGION=REGION,
                  AWS_EC2_METADATA_DISABLED="true")

from zae_limiter import Limit, SyncRateLimiter, SyncRepository  # noqa: E402  (it must find the credentials)

RESOURCE, REQUESTS = "gpt-4", 200


def main(endpoint_url, table, entity):
    logging.disable(logging.WARNING)
    random.seed(table)
    repository = SyncRepository.open("end-to-end", stack=table, region=REGION, endpoint_url=endpoint_url)
    limiter = SyncRateLimiter(repository=repository)
    far = (datetime.datetime.now(datetime.timezone.utc).hour + 12) % 24  # no reset comes near this test
    repository.create_entity(entity)
    repository.set_limits(entity, [Limit.quota("calls", 40_000, cron=f"0 {far} * * *"),
                                   Limit.per_minute("tokens.in", 10_000_000)], resource=RESOURCE)
    consumed = collections.Counter()
    for request in range(REQUESTS):
        if request == REQUESTS // 2:
            assert repository.bump_shard_count(entity, RESOURCE, 1) == 2
        amounts = {"calls": random.randint(1, 4), "tokens.in": random.randint(1, 900)}
        with limiter.acquire(entity, RESOURCE, amounts):
            consumed.update(amounts)
    print(json.dumps(consumed))


if __name__ == "__main__":
    main(*sys.argv[1:])
