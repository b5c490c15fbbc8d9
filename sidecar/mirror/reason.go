package mirror

// Reason says why a block is kept out of the index. The zero value: it is not.
type Reason uint8

const (
	// UnknownParent means: the block continues one that the mirror never saw, so its
	// position is unknown.
	UnknownParent Reason = iota + 1
	// ExtraKeys means: more than tokens and the adapter went into the block.
	ExtraKeys
	// CacheGroup means: the block belongs to a group whose blocks do not mean that the prefix is reusable.
	CacheGroup
	// AmbiguousGroup means: several groups, and the engine does not say what each is for.
	AmbiguousGroup
	// UnmappedAdapter means: an adapter's number without a name.
	UnmappedAdapter
	// TooManyAdapters means: more adapters than the mirror can tell apart.
	TooManyAdapters
	// TooManyMedia means: more media than the mirror can tell apart.
	TooManyMedia
	// BadEvent means: token ids do not cover the blocks, or the parent is of another adapter.
	BadEvent
	// NoTokens means: an offload tier announced a block that the mirror does not know, by its hash alone.
	NoTokens
	// BlockSize means: an offload tier announced blocks of another size than the engine's.
	BlockSize
	// Full means: the mirror holds Options.MaxBlocks.
	Full

	reasons = int(Full) + 1
)

var reasonNames = [reasons]string{"", "unknown_parent", "extra_keys", "cache_group", "ambiguous_group",
	"unmapped_adapter", "too_many_adapters", "too_many_media", "bad_event", "no_tokens", "block_size", "mirror_full"}

// String is the value of the metrics' label reason.
func (r Reason) String() string { return reasonNames[r] }

// Reasons lists all reasons, for metrics.
func Reasons() []Reason {
	all := make([]Reason, 0, reasons-1)
	for r := UnknownParent; int(r) < reasons; r++ {
		all = append(all, r)
	}
	return all
}
