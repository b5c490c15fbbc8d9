"""Plays an engine's event publisher with a real libzmq, driven by JSON lines on stdin.

Prints "events ENDPOINT replay ENDPOINT" once it is bound. Commands:
  {"op": "publish", "batch": ...}   number it, buffer it, send it
  {"op": "swallow", "batch": ...}   number and buffer it, and send nothing
  {"op": "raw", "hex": "c1"}        send these bytes as a payload
  {"op": "restart"}                 begin the sequence again with an empty buffer
Each is answered by "ok NUMBER". In a batch {"$hex": "..."} stands for bytes.
"""
import json
import sys
import threading

import msgpack
import zmq

END = b"\xff" * 8


def plain(value):
    if isinstance(value, dict):
        if list(value) == ["$hex"]:
            return bytes.fromhex(value["$hex"])
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


class Engine:
    def __init__(self, bind, replay, keep, topic_in_replay):
        ctx = zmq.Context()
        self.pub = ctx.socket(zmq.PUB)
        self.pub.setsockopt(zmq.SNDHWM, 100_000)
        self.pub.setsockopt(zmq.LINGER, 0)
        self.pub.bind(bind)
        self.router = ctx.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.LINGER, 0)
        self.router.bind(replay)
        self.keep, self.topic_in_replay = keep, topic_in_replay
        self.lock = threading.Lock()
        self.next, self.buffer = 0, []
        threading.Thread(target=self.serve, daemon=True).start()

    def send(self, payload, sent=True):
        with self.lock:
            seq = self.next.to_bytes(8, "big")
            self.buffer = (self.buffer + [(self.next, payload)])[-self.keep:]
            self.next += 1
            if sent:
                self.pub.send_multipart([b"kv", seq, payload])
            return self.next - 1

    def restart(self):
        with self.lock:
            self.next, self.buffer = 0, []
            return 0

    def serve(self):
        while True:
            who, empty, start = self.router.recv_multipart()
            topic = [b"kv"] if self.topic_in_replay else []
            with self.lock:
                for seq, payload in self.buffer:
                    if seq >= int.from_bytes(start, "big"):
                        self.router.send_multipart([who, empty, *topic, seq.to_bytes(8, "big"), payload])
                self.router.send_multipart([who, empty, *topic, END, b""])


def main():
    bind, replay, keep, newer = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "newer"
    engine = Engine(bind, replay, keep, newer)
    print("events", engine.pub.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0"),
          "replay", engine.router.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        op = command["op"]
        if op in ("publish", "swallow"):
            number = engine.send(msgpack.packb(plain(command["batch"])), op == "publish")
        elif op == "raw":
            number = engine.send(bytes.fromhex(command["hex"]))
        elif op == "restart":
            number = engine.restart()
        else:
            raise SystemExit(f"unknown op {op}")
        print("ok", number, flush=True)


main()
