package store

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"inferencecache.io/lookuptier/ranking"
)

// LayoutVersion is the version of everything in docs/data-model.md. A component
// that finds another one in LayoutKey refuses to touch the data.
const LayoutVersion = 1

const (
	keyPrefix = "ic1:"
	// digestBytes of SHA-256 name a partition, a space or a tenant: 96 bits.
	digestBytes = 12

	// LayoutKey is a HASH: version and shards, agreed by all components.
	LayoutKey = keyPrefix + "layout"
	// CatalogTenantsKey is a ZSET: tenant → expiry, Unix ms.
	CatalogTenantsKey = keyPrefix + "{catalog}:tenants"
	// CatalogPartitionsKey is a ZSET: PartitionMember → expiry, Unix ms. It names
	// every partition that has anything at all, a lone stats row included.
	CatalogPartitionsKey = keyPrefix + "{catalog}:partitions"
)

// Keys builds the names of one partition's keys. A partition is one shard of one
// (tenant, model); the hash tag keeps its keys in one slot of a Cluster, so that
// each script is atomic there too.
type Keys struct{ base string }

// KeysOf names the partition of a scope. Names are digested with their lengths,
// so that no name, however odd, reaches another partition.
func KeysOf(s ranking.Scope, shard int) Keys {
	return Keys{base: keyPrefix + "{" + digest(s.Tenant, s.Model) + "." + strconv.Itoa(shard) + "}:"}
}

// Head is a HASH: ids of log entries, counters and flags of the partition.
func (k Keys) Head() string { return k.base + "h" }

// Replicas is a HASH: replica id → replica record.
func (k Keys) Replicas() string { return k.base + "r" }

// Serving is a HASH: CountField → how many hold records carry the number in the scheme.
func (k Keys) Serving() string { return k.base + "c" }

// Spaces is a HASH: SpaceField → scheme index.
func (k Keys) Spaces() string { return k.base + "s" }

// Blocks is the HASH of one space, given by its SpaceSuffix: hash bytes → hold records.
func (k Keys) Blocks(suffix string) string { return k.base + "b:" + suffix }

// Log is the capped STREAM of the partition's changes.
func (k Keys) Log() string { return k.base + "log" }

// Lock is the STRING that one sweeper holds.
func (k Keys) Lock() string { return k.base + "lock" }

// Tag is what stands between the braces: digest and shard, equal for all keys of the partition.
func (k Keys) Tag() string { return k.base[len(keyPrefix)+1 : len(k.base)-2] }

// CatalogTenantKey is a ZSET of one tenant: CatalogMember → expiry, Unix ms.
func CatalogTenantKey(tenant string) string {
	return keyPrefix + "{catalog}:t:" + digest(tenant)
}

// CatalogMember names a partition in its tenant's ZSET: u32be(len model) model
// shard, the shard in decimal.
func CatalogMember(model string, shard int) string {
	return prefixed(model) + strconv.Itoa(shard)
}

// ParseCatalogMember is the inverse of CatalogMember.
func ParseCatalogMember(member string) (model string, shard int, err error) {
	model, rest, err := cutPrefixed(member)
	if err != nil {
		return "", 0, fmt.Errorf("catalog member: %w", err)
	}
	shard, err = strconv.Atoi(rest)
	if err != nil || shard < 0 {
		return "", 0, fmt.Errorf("catalog member: shard %q is no shard number", rest)
	}
	return model, shard, nil
}

// PartitionMember names a partition in CatalogPartitionsKey: u32be(len tenant)
// tenant, then as CatalogMember.
func PartitionMember(p Partition) string {
	return prefixed(p.Tenant) + CatalogMember(p.Model, p.Shard)
}

// ParsePartitionMember is the inverse of PartitionMember.
func ParsePartitionMember(member string) (Partition, error) {
	tenant, rest, err := cutPrefixed(member)
	if err != nil {
		return Partition{}, fmt.Errorf("partition member: %w", err)
	}
	model, shard, err := ParseCatalogMember(rest)
	if err != nil {
		return Partition{}, fmt.Errorf("partition member: %w", err)
	}
	return Partition{Scope: ranking.Scope{Tenant: tenant, Model: model}, Shard: shard}, nil
}

// SpaceSuffix ends the key of a space's blocks: 16 characters of base64url.
func SpaceSuffix(sp ranking.Space) string { return digest(sp.Scheme, sp.Adapter) }

// spaceSuffixLen is the length of every SpaceSuffix.
const spaceSuffixLen = digestBytes * 4 / 3

// SpaceField is the field of a space in Keys.Spaces: u32be(len scheme) scheme adapter.
func SpaceField(sp ranking.Space) string { return prefixed(sp.Scheme) + sp.Adapter }

// ParseSpaceField is the inverse of SpaceField.
func ParseSpaceField(field string) (ranking.Space, error) {
	scheme, adapter, err := cutPrefixed(field)
	if err != nil {
		return ranking.Space{}, fmt.Errorf("space field: %w", err)
	}
	return ranking.Space{Scheme: scheme, Adapter: adapter}, nil
}

// countFieldLen is the length of every CountField.
const countFieldLen = 5

// CountField is the field of a number in Keys.Serving: u16be scheme index, u24be number.
func CountField(scheme uint16, number uint32) string {
	return string([]byte{byte(scheme >> 8), byte(scheme), byte(number >> 16), byte(number >> 8), byte(number)})
}

// ParseCountField is the inverse of CountField.
func ParseCountField(field string) (scheme uint16, number uint32, err error) {
	if len(field) != countFieldLen {
		return 0, 0, fmt.Errorf("count field: %d bytes, want %d", len(field), countFieldLen)
	}
	scheme = uint16(field[0])<<8 | uint16(field[1])
	return scheme, uint32(field[2])<<16 | uint32(field[3])<<8 | uint32(field[4]), nil
}

// ShardOf places a replica: whole in one of shards (≥ 1).
func ShardOf(replica string, shards int) int {
	if shards <= 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(replica))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(shards))
}

// digest is base64url of the first 12 bytes of SHA-256 over the names, each after its length.
func digest(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteString(prefixed(n))
	}
	sum := sha256.Sum256([]byte(b.String()))
	return base64.RawURLEncoding.EncodeToString(sum[:digestBytes])
}

// prefixed is u32be(len s) s.
func prefixed(s string) string {
	return string(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(s)), uint32(len(s)))) + s
}

func cutPrefixed(s string) (head, rest string, err error) {
	if len(s) < 4 {
		return "", "", errors.New("shorter than its length prefix")
	}
	n := uint64(binary.BigEndian.Uint32([]byte(s[:4])))
	if uint64(len(s)-4) < n {
		return "", "", fmt.Errorf("length prefix %d, but %d bytes follow", n, len(s)-4)
	}
	return s[4 : 4+n], s[4+n:], nil
}
