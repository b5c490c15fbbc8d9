"""Writes one engine replica into the index: docs/writing-to-redis.md in Python.

The client must return bytes (decode_responses=False, the default). On a Cluster give a client of
the node that owns `Replica.head`: all keys but the layout's and the catalog's lie there.
"""
import base64
import collections
import hashlib
import pathlib
import struct
import time

import redis

LAYOUT_VERSION = 1
MAX_HASHES = 500  # of one call
T1, T2, T3 = 1, 2, 3

Call = collections.namedtuple("Call", "script keys args")


class Lost(Exception):
    """Redis no longer has what it was told: retire the replica and report everything again."""


def u32(text):
    data = text.encode()
    return struct.pack(">I", len(data)) + data


def digest(*names):
    sha = hashlib.sha256(b"".join(map(u32, names))).digest()
    return base64.urlsafe_b64encode(sha[:12]).decode()


class Scripts:
    """The directory that `lookupctl scripts DIR` made."""

    def __init__(self, directory):
        self.texts = {p.stem: p.read_bytes() for p in pathlib.Path(directory).glob("*.lua")}
        if "report" not in self.texts:
            raise SystemExit(f"no scripts in {directory}: run `lookupctl scripts {directory}`")
        self.sha = {name: hashlib.sha1(text).hexdigest() for name, text in self.texts.items()}

    def run(self, client, calls):
        """Sends the calls in one round trip, in order, and returns their replies."""
        replies = self._send(client, calls, "EVALSHA", self.sha)
        for i, reply in enumerate(replies):
            if isinstance(reply, redis.exceptions.NoScriptError):
                # Those after it may have run already. All run again, or a removal would overtake
                # the report before it.
                replies[i:] = self._send(client, calls[i:], "EVAL", self.texts)
                break
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    @staticmethod
    def _send(client, calls, command, names):
        pipe = client.pipeline(transaction=False)
        for call in calls:
            pipe.execute_command(command, names[call.script], len(call.keys), *call.keys, *call.args)
        return pipe.execute(raise_on_error=False)


class Replica:
    """One replica of one model of one tenant, and what Redis said of it last."""

    def __init__(self, client, scripts, tenant, model, replica, scheme, shards=1, hold_ttl_ms=86_400_000, log_length=2048):
        self.client, self.scripts, self.shards = client, scripts, shards
        self.tenant, self.model, self.replica, self.scheme = tenant, model, replica, scheme
        self.hold_ttl_ms, self.log_length = hold_ttl_ms, log_length
        shard = struct.unpack(">Q", hashlib.sha256(replica.encode()).digest()[:8])[0] % shards
        base = f"ic1:{{{digest(tenant, model)}.{shard}}}:"
        self.head, self.replicas, self.serving, self.spaces, self.log = (base + k for k in ("h", "r", "c", "s", "log"))
        self.base = base
        self.catalog_keys = ["ic1:{catalog}:tenants", "ic1:{catalog}:t:" + digest(tenant), "ic1:{catalog}:partitions"]
        self.catalog_member = u32(model) + str(shard).encode()
        self.number = self.writes = 0  # 0: not known
        self.catalogued = 0.0

    def agree(self):
        """Must succeed before anything is written, and again after Redis was lost."""
        found = self.scripts.run(self.client, [Call("layout", ["ic1:layout"], [LAYOUT_VERSION, self.shards, 2 * self.hold_ttl_ms])])[0]
        want = [str(LAYOUT_VERSION).encode(), str(self.shards).encode()]
        if found != want:
            raise SystemExit(f"ic1:layout has version {found[0].decode()} and {found[1].decode()} shards, "
                             f"this writer knows version {LAYOUT_VERSION} and was told {self.shards}")

    def lease(self, milliseconds):
        return self._stats("L", milliseconds)

    def stats(self, memory_bytes=0, hit_rate=0.0, pressure=0.0, t2_hit_tokens=0, t2_query_tokens=0, version="python"):
        return self._stats("S", struct.pack(">qffqq", memory_bytes, hit_rate, pressure, t2_hit_tokens, t2_query_tokens) + version.encode())

    def _stats(self, what, payload):
        return Call("stats", [self.head, self.replicas, self.serving, self.log],
                    [self.replica, self.tenant, self.model, -1, self.hold_ttl_ms, self.log_length, what, payload])

    def report(self, adapter, holds):
        """Calls that say: the replica holds these now. holds has hash → (tokens up to the block's end, tier)."""
        calls, all_holds = [], list(holds.items())
        for at in range(0, len(all_holds), MAX_HASHES):
            part = all_holds[at:at + MAX_HASHES]
            tails = [struct.pack(">I", min(tokens, 0xffffff) | tier << 24) for _, (tokens, tier) in part]
            logged = [bytes([len(h)]) + h + tail for (h, _), tail in zip(part, tails)]
            calls.append(Call("report", [self.head, self.replicas, self.serving, self.spaces, self.log, self._blocks(adapter)],
                              [self.replica, self.tenant, self.model, self._space(adapter), -1, self.hold_ttl_ms, self.log_length,
                               b"".join(logged), b"".join(tails), *(h for h, _ in part)]))
        return calls

    def evict(self, adapter, hashes):
        """Calls that say: it holds none of these any more."""
        calls, hashes = [], list(hashes)
        for at in range(0, len(hashes), MAX_HASHES):
            calls.append(Call("evict", [self.head, self.replicas, self.serving, self.spaces, self.log, self._blocks(adapter)],
                              [self.replica, -1, self.hold_ttl_ms, self.log_length, -1, self._space(adapter), *hashes[at:at + MAX_HASHES]]))
        return calls

    def _blocks(self, adapter):
        return self.base + "b:" + digest(self.scheme, adapter)

    def _space(self, adapter):
        return u32(self.scheme) + adapter.encode()

    def write(self, calls):
        """Sends the calls in one round trip. Raises Lost if the replies show that Redis forgot."""
        replies = self.scripts.run(self.client, calls)
        turned = False
        for call, reply in zip(calls, replies):
            if call.script == "report":
                turned = turned or reply[3] == 1  # the partition was empty
            elif call.script == "evict":
                turned = turned or reply[4] == 1  # it is now
        number, writes = replies[-1][1], replies[-1][2]
        lost = self.number and (number != self.number or writes - len(calls) < self.writes)
        self.number, self.writes = number, writes
        self._file(turned)
        if lost:
            raise Lost

    def retire(self):
        """Takes the replica out of the index, whatever it held."""
        call = Call("clear", [self.head, self.replicas, self.serving, self.spaces, self.log], [self.replica, self.hold_ttl_ms, self.log_length])
        reply = self.scripts.run(self.client, [call])[0]
        self.number = self.writes = 0
        self._file(reply[2] == 1)

    def _file(self, turned):
        """Keeps the catalog's entry of the partition true."""
        if not turned and time.monotonic() < self.catalogued + 60:
            return
        self.catalogued = 0.0  # due again if anything below fails
        has = self._has()
        while True:
            self.scripts.run(self.client, [Call("catalog_file", self.catalog_keys,
                             [self.tenant, self.catalog_member, u32(self.tenant) + self.catalog_member, has, 2 * self.hold_ttl_ms])])
            before, has = has, self._has()
            if has == before:
                break
        self.agree()  # which keeps the layout's key from expiring
        self.catalogued = time.monotonic()

    def _has(self):
        """0 nothing, 1 rows, 2 holds."""
        pipe = self.client.pipeline(transaction=False)
        pipe.exists(self.serving)
        pipe.exists(self.replicas, self.spaces)
        holds, rows = pipe.execute()
        return 2 if holds else 1 if rows else 0
