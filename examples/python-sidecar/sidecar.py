#!/usr/bin/python3
"""A small sidecar: follows an engine that speaks JSON lines, and keeps the index equal to its cache.

    {"store": {"tokens": [1, 2, …], "adapter": "french"}}     holds every full block of the prompt
    {"remove": {"tokens": [1, 2, …], "keep": 3}}              holds none of its blocks after the first 3
    {"clear": true}                                           holds nothing
    {"stats": {"hit_rate": 0.4, "pressure": 0.2}}             its load

Each line is answered by "ok" and how many blocks are held, once Redis has it, or by "later" if
Redis is away. At the end of input, and on SIGTERM, the replica is retired.
"""
import argparse
import json
import queue
import signal
import sys
import threading
import time

import redis

import fingerprint
from index import T1, Lost, Replica, Scripts


class Sidecar:
    def __init__(self, replica, block_size, lease, refresh):
        self.replica, self.block_size = replica, block_size
        self.lease_ms = int(1000 * lease)
        self.mirror = {}  # adapter → hash → (tokens, tier): what the engine holds
        self.load = None
        self.renew_every, self.refresh_every = lease / 3, refresh
        # Whatever an earlier process left under this name is not known to be there.
        self.anew = True
        self.renewed = self.refreshed = 0.0

    def take(self, event):
        """Applies one event to the mirror and returns the calls that tell Redis."""
        if "store" in event:
            adapter, holds = self.named(event["store"])
            self.mirror.setdefault(adapter, {}).update(holds)
            return self.replica.report(adapter, holds)
        if "remove" in event:
            adapter, holds = self.named(event["remove"])
            gone = list(holds)[event["remove"].get("keep", 0):]
            for h in gone:
                self.mirror.get(adapter, {}).pop(h, None)
            return self.replica.evict(adapter, gone)
        if "clear" in event:
            self.mirror.clear()
            self.anew = True
            return []
        if "stats" in event:
            self.load = event["stats"]
            return [self.replica.stats(**self.load)]
        raise ValueError(f"no event that this sidecar knows: {event}")

    def named(self, prompt):
        hashes = map(fingerprint.on_the_wire, fingerprint.prefix_hashes(prompt["tokens"], self.block_size))
        return prompt.get("adapter", ""), {h: (self.block_size * (i + 1), T1) for i, h in enumerate(hashes)}

    def everything(self):
        calls = [self.replica.stats(**self.load)] if self.load else []
        for adapter, holds in self.mirror.items():
            calls += self.replica.report(adapter, holds)
        return calls

    def tell(self, calls):
        """Writes, and returns whether Redis has it. What failed may have been done in part, so
        after a failure everything is written anew."""
        try:
            for _ in range(3):
                if self.attempt(calls):
                    return True
        except redis.exceptions.RedisError as e:
            print(f"Redis: {e}", file=sys.stderr)
            self.anew = True
        return False

    def attempt(self, calls):
        now = time.monotonic()
        if self.anew:
            self.replica.agree()
            self.replica.retire()  # what is there may name blocks that nobody remembers
            calls = self.everything()
        elif now >= self.refreshed + self.refresh_every:
            calls = calls + self.everything()  # an engine announces a block once, and a hold grows old
            self.refreshed = now
        renewing = self.anew or now >= self.renewed + self.renew_every
        if renewing:
            # First: a replica without a lease would live by TTL alone until it has one.
            calls = [self.replica.lease(self.lease_ms)] + calls
        if not calls:
            return True
        try:
            self.replica.write(calls)
        except Lost:
            print("Redis lost what it was told: writing everything again", file=sys.stderr)
            self.anew = True
            return False
        if self.anew:
            self.anew, self.refreshed = False, now
        if renewing:
            self.renewed = now
        return True

    def run(self, lines):
        while True:
            try:
                due = self.renewed + self.renew_every - time.monotonic()
                line = lines.get(timeout=1 if self.anew else max(0.05, due))
            except queue.Empty:
                self.tell([])
                continue
            if line is None:
                return
            try:
                calls = self.take(json.loads(line))
            except (ValueError, KeyError, TypeError) as e:
                print(f"skipped, {e!r}: {line.strip()}", file=sys.stderr)
                continue
            print("ok" if self.tell(calls) else "later", sum(map(len, self.mirror.values())), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    p.add_argument("--scripts", required=True, help="what `lookupctl scripts DIR` wrote")
    for name in ("tenant-id", "model-id", "replica-id", "hash-scheme"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--shards", type=int, default=1, help="as the lookup pods'")
    p.add_argument("--block-size", type=int, default=16)
    p.add_argument("--lease", type=float, default=15, help="seconds")
    p.add_argument("--refresh", type=float, default=300, help="seconds; a third of the policy's evictionTTL at most")
    a = p.parse_args()
    client = redis.Redis.from_url(a.redis, socket_timeout=5, socket_connect_timeout=2)
    replica = Replica(client, Scripts(a.scripts), a.tenant_id, a.model_id, a.replica_id, a.hash_scheme, a.shards)
    side = Sidecar(replica, a.block_size, a.lease, a.refresh)

    lines = queue.SimpleQueue()  # whose put a signal's handler may call
    signal.signal(signal.SIGTERM, lambda *_: lines.put(None))

    def read():
        for line in sys.stdin:
            lines.put(line)
        lines.put(None)
    threading.Thread(target=read, daemon=True).start()
    side.tell([])
    try:
        side.run(lines)
    finally:
        try:
            replica.retire()
        except redis.exceptions.RedisError as e:
            sys.exit(f"not retired, it serves until its lease runs out: {e}")


if __name__ == "__main__":
    main()
