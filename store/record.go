package store

import (
	"encoding/binary"
	"fmt"
	"math"

	"inferencecache.io/lookuptier/ranking"
)

// EpochMS is 2020-01-01T00:00Z in Unix ms. Times in records are 5 bytes of
// milliseconds since then; they end in 2054.
const EpochMS int64 = 1_577_836_800_000

const (
	maxNumber       = 1<<24 - 1
	maxTokens       = 1<<24 - 1
	maxU40    int64 = 1<<40 - 1

	// HoldBytes is the size of a hold record: number 3, last-seen 5, tier 1, tokens 3.
	HoldBytes = 12
	// replicaFixed is the size of a replica record without stats: number 3,
	// writes 5, alive 5, stats 5, lease 5.
	replicaFixed = 23
	// statsFixed is the size of stats without the version: memory 8, hit rate 4,
	// pressure 4, tier-2 hits 8, tier-2 queries 8.
	statsFixed = 32
)

// text is what go-redis replies and ARGV are made of.
type text interface{ ~string | ~[]byte }

// AppendHold appends h as a hold record. Tokens outside 0…16,777,215 and times
// outside the epoch saturate.
func AppendHold(dst []byte, h ranking.Hold) []byte {
	dst = appendU24(dst, h.Replica)
	dst = appendU40(dst, sinceEpoch(h.SeenMS))
	return appendTail(dst, h.Tier, h.Tokens)
}

// appendTail appends the part of a hold record that a report brings: tier, tokens.
func appendTail(dst []byte, t ranking.Tier, tokens int32) []byte {
	return appendU24(append(dst, byte(t)), uint32(min(max(tokens, 0), maxTokens)))
}

// DecodeHolds appends the records of one block to dst. A value whose length is no
// multiple of HoldBytes is garbage: an error, and dst unchanged.
func DecodeHolds[T text](dst []ranking.Hold, v T) ([]ranking.Hold, error) {
	if len(v)%HoldBytes != 0 {
		return dst, fmt.Errorf("%w: hold records: %d bytes are no multiple of %d", ErrGarbage, len(v), HoldBytes)
	}
	for i := 0; i < len(v); i += HoldBytes {
		dst = append(dst, ranking.Hold{
			Replica: u24(v, i),
			SeenMS:  EpochMS + u40(v, i+3),
			Tier:    tierOf(v[i+8]),
			Tokens:  int32(u24(v, i+9)),
		})
	}
	return dst, nil
}

// tierOf maps the stored byte: a value that this version does not know is colder than all it does.
func tierOf(b byte) ranking.Tier {
	if b == 0 || b > byte(ranking.TierT3) {
		return ranking.TierUnknown
	}
	return ranking.Tier(b)
}

// ReplicaRecord is what the partition keeps for one replica id.
type ReplicaRecord struct {
	// Number is the replica's present generation; never 0.
	Number uint32
	// Writes counts the write scripts that named the replica since it got its number.
	Writes int64
	// AliveMS, StatsMS and LeaseMS are Unix ms of Redis' clock; 0 = never.
	// The replica serves nothing once now ≥ LeaseMS, if it ever had a lease.
	AliveMS, StatsMS, LeaseMS int64
	// Stats is what was reported at StatsMS; zero if StatsMS is 0.
	Stats ranking.Stats
}

// Lapsed tells whether the replica had a lease and let it run out.
func (r *ReplicaRecord) Lapsed(nowMS int64) bool { return r.LeaseMS != 0 && nowMS >= r.LeaseMS }

// Replica is the record as ranking knows it.
func (r *ReplicaRecord) Replica(id string) ranking.Replica {
	return ranking.Replica{ID: id, Stats: r.Stats, StatsAtMS: r.StatsMS, AliveAtMS: r.AliveMS}
}

// AppendReplica appends r as a replica record.
func AppendReplica(dst []byte, r *ReplicaRecord) []byte {
	dst = appendU24(dst, r.Number)
	dst = appendU40(dst, r.Writes)
	for _, t := range [...]int64{r.AliveMS, r.StatsMS, r.LeaseMS} {
		dst = appendU40(dst, eventSinceEpoch(t))
	}
	if r.StatsMS != 0 {
		dst = appendStats(dst, &r.Stats)
	}
	return dst
}

// DecodeReplica reads a replica record; a shorter or overlong one is ErrGarbage.
func DecodeReplica[T text](v T) (ReplicaRecord, error) {
	if len(v) < replicaFixed {
		return ReplicaRecord{}, fmt.Errorf("%w: replica record: %d bytes, want at least %d", ErrGarbage, len(v), replicaFixed)
	}
	r := ReplicaRecord{
		Number:  u24(v, 0),
		Writes:  u40(v, 3),
		AliveMS: eventTime(u40(v, 8)),
		StatsMS: eventTime(u40(v, 13)),
		LeaseMS: eventTime(u40(v, 18)),
	}
	switch {
	case r.Number == 0:
		return ReplicaRecord{}, fmt.Errorf("%w: replica record: number 0", ErrGarbage)
	case r.StatsMS == 0 && len(v) != replicaFixed:
		return ReplicaRecord{}, fmt.Errorf("%w: replica record: %d bytes of stats that were never reported", ErrGarbage, len(v)-replicaFixed)
	case r.StatsMS != 0:
		var err error
		if r.Stats, err = decodeStats(v, replicaFixed); err != nil {
			return ReplicaRecord{}, err
		}
	}
	return r, nil
}

// appendStats appends the payload that scripts carry unread. NaN and infinities become 0.
func appendStats(dst []byte, s *ranking.Stats) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.MemoryBytes))
	dst = binary.BigEndian.AppendUint32(dst, math.Float32bits(finite(s.HitRate)))
	dst = binary.BigEndian.AppendUint32(dst, math.Float32bits(finite(s.Pressure)))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.T2HitTokens))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.T2QueryTokens))
	return append(dst, s.ClientVersion...)
}

func decodeStats[T text](v T, at int) (ranking.Stats, error) {
	if len(v) < at+statsFixed {
		return ranking.Stats{}, fmt.Errorf("%w: stats: %d bytes, want at least %d", ErrGarbage, len(v)-at, statsFixed)
	}
	return ranking.Stats{
		MemoryBytes:   int64(u64(v, at)),
		HitRate:       finite(math.Float32frombits(uint32(u64(v, at+8) >> 32))),
		Pressure:      finite(math.Float32frombits(uint32(u64(v, at+8)))),
		T2HitTokens:   int64(u64(v, at+16)),
		T2QueryTokens: int64(u64(v, at+24)),
		ClientVersion: string(v[at+statsFixed:]),
	}, nil
}

func finite(f float32) float32 {
	if f64 := float64(f); math.IsNaN(f64) || math.IsInf(f64, 0) {
		return 0
	}
	return f
}

// sinceEpoch is the stored form of a hold's Unix ms; what lies outside 2020…2054 saturates.
func sinceEpoch(unixMS int64) int64 { return min(max(unixMS-EpochMS, 0), maxU40) }

// eventSinceEpoch is the stored form of a time for which 0 means never: a time
// before 2020 that is not "never" is kept as 1.
func eventSinceEpoch(unixMS int64) int64 {
	if unixMS == 0 {
		return 0
	}
	return max(sinceEpoch(unixMS), 1)
}

func eventTime(stored int64) int64 {
	if stored == 0 {
		return 0
	}
	return EpochMS + stored
}

func appendU24(dst []byte, n uint32) []byte {
	return append(dst, byte(n>>16), byte(n>>8), byte(n))
}

func appendU40(dst []byte, n int64) []byte {
	return append(dst, byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func u24[T text](v T, i int) uint32 {
	return uint32(v[i])<<16 | uint32(v[i+1])<<8 | uint32(v[i+2])
}

func u40[T text](v T, i int) int64 {
	return int64(v[i])<<32 | int64(v[i+1])<<24 | int64(v[i+2])<<16 | int64(v[i+3])<<8 | int64(v[i+4])
}

func u64[T text](v T, i int) uint64 {
	return uint64(v[i])<<56 | uint64(u24(v, i+1))<<32 | uint64(u24(v, i+4))<<8 | uint64(v[i+7])
}
