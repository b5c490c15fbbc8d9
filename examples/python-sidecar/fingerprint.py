"""Content fingerprints of token ids: XXH3-64 with seed 1337, chained from block to block.

XXH3 stands here in plain Python so that the example needs nothing but python3-redis. In
earnest use the xxhash package (Debian: python3-xxhash): xxhash.xxh3_64_intdigest(data, 1337).
"""
import struct

SEED = 1337
MASK = (1 << 64) - 1
P32 = (2654435761, 2246822519, 3266489917)
P64 = (11400714785074694791, 14029467366897019727, 1609587929392839161,
       9650029242287828579, 2870177450012600261)
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def prefix_hashes(tokens, block_size, parent=None):
    """The prefix hash of each full block, as integers. parent is that of the block before the
    first one, None if there is none. Tokens short of a block are dropped."""
    out = []
    for at in range(0, len(tokens) - block_size + 1, block_size):
        content = xxh3(struct.pack(f"<{block_size}I", *tokens[at:at + block_size]))
        parent = content if parent is None else xxh3(struct.pack("<QQ", parent, content))
        out.append(parent)
    return out


def on_the_wire(prefix_hash):
    """The bytes that the index and the lookups use."""
    return struct.pack(">Q", prefix_hash)


def xxh3(data, seed=SEED):
    n = len(data)
    if n < 4:
        raise ValueError("a block has at least one token, 4 bytes")
    if n <= 8:
        return _up_to_8(data, seed)
    if n <= 16:
        return _up_to_16(data, seed)
    if n <= 128:
        return _up_to_128(data, seed)
    if n <= 240:
        return _up_to_240(data, seed)
    return _long(data, seed)


def _u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def _fold(a, b):
    product = (a & MASK) * (b & MASK)
    return (product ^ product >> 64) & MASK


def _avalanche(h):
    h &= MASK
    h = (h ^ h >> 37) * 0x165667919E3779F9 & MASK
    return h ^ h >> 32


def _swap(x, size):
    return int.from_bytes(x.to_bytes(size, "little"), "big")


def _rotated(x, by):
    return (x << by | x >> 64 - by) & MASK


def _up_to_8(data, seed):
    n = len(data)
    seed ^= _swap(seed & 0xffffffff, 4) << 32
    first, last = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, n - 4)[0]
    h = (last + (first << 32)) ^ ((_u64(SECRET, 8) ^ _u64(SECRET, 16)) - seed & MASK)
    h = (h ^ _rotated(h, 49) ^ _rotated(h, 24)) * 0x9FB21C651E98DF25 & MASK
    h = (h ^ (h >> 35) + n) * 0x9FB21C651E98DF25 & MASK
    return h ^ h >> 28


def _up_to_16(data, seed):
    n = len(data)
    low = _u64(data, 0) ^ ((_u64(SECRET, 24) ^ _u64(SECRET, 32)) + seed & MASK)
    high = _u64(data, n - 8) ^ ((_u64(SECRET, 40) ^ _u64(SECRET, 48)) - seed & MASK)
    return _avalanche(n + _swap(low, 8) + high + _fold(low, high))


def _pair(data, at, secret_at, seed):
    return _fold(_u64(data, at) ^ (_u64(SECRET, secret_at) + seed & MASK),
                 _u64(data, at + 8) ^ (_u64(SECRET, secret_at + 8) - seed & MASK))


def _up_to_128(data, seed):
    n = len(data)
    h = n * P64[0]
    for i in range((n + 31) // 32):
        h += _pair(data, 16 * i, 32 * i, seed) + _pair(data, n - 16 * (i + 1), 32 * i + 16, seed)
    return _avalanche(h)


def _up_to_240(data, seed):
    n = len(data)
    h = n * P64[0] + sum(_pair(data, 16 * i, 16 * i, seed) for i in range(8))
    h = _avalanche(h)
    h += sum(_pair(data, 16 * i, 16 * (i - 8) + 3, seed) for i in range(8, n // 16))
    return _avalanche(h + _pair(data, n - 16, 119, seed))


def _long(data, seed):
    n = len(data)
    secret = b"".join(struct.pack("<QQ", _u64(SECRET, i) + seed & MASK, _u64(SECRET, i + 8) - seed & MASK)
                      for i in range(0, len(SECRET), 16))
    acc = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]

    def stripe(at, secret_at):
        for i in range(8):
            value = _u64(data, at + 8 * i)
            key = value ^ _u64(secret, secret_at + 8 * i)
            acc[i ^ 1] = acc[i ^ 1] + value & MASK
            acc[i] = acc[i] + (key & 0xffffffff) * (key >> 32) & MASK

    last = n - 64
    for at in range(0, (n - 1) // 64 * 64, 64):
        stripe(at, 8 * (at // 64 % 16))
        if at // 64 % 16 == 15:  # the end of 1024 bytes
            for i in range(8):
                acc[i] = (acc[i] ^ acc[i] >> 47 ^ _u64(secret, 128 + 8 * i)) * P32[0] & MASK
    stripe(last, 121)
    return _avalanche(n * P64[0] + sum(_fold(acc[2 * i] ^ _u64(secret, 11 + 16 * i), acc[2 * i + 1] ^ _u64(secret, 19 + 16 * i))
                                       for i in range(4)))
