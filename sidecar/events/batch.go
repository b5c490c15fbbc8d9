package events

// Hash is an engine's own name of a block, folded to 128 bits. It identifies a
// block within one engine only. The zero Hash is the integer 0, a legal hash.
type Hash struct {
	Hi, Lo uint64
}

// Kind says what an Event tells. The zero value is no event.
type Kind uint8

const (
	// Stored means: the blocks of Hashes are now held.
	Stored Kind = iota + 1
	// Removed means: the blocks of Hashes have left Medium.
	Removed
	// Cleared means: the cache is empty.
	Cleared
)

// String is the tag that engines use.
func (k Kind) String() string {
	switch k {
	case Stored:
		return "BlockStored"
	case Removed:
		return "BlockRemoved"
	case Cleared:
		return "AllBlocksCleared"
	}
	return "unknown"
}

// NoRank is the Rank of a batch that names no data-parallel rank.
const NoRank = -1

// NoGroup is the Group of an event that names no cache group.
const NoGroup = -1

// UnmappableLoraID stands for a lora_id that is no integer.
const UnmappableLoraID = -1 << 63

// Batch is one message of an engine. A Decoder lends it: it and all that hangs on
// it are valid until the Decoder is used again.
type Batch struct {
	// TS is the engine's clock in seconds; 0 if it was absent or not finite.
	TS float64
	// Rank is the data-parallel rank, or NoRank.
	Rank   int
	Events []Event
	// UnknownFields counts fields that this version does not know, and skipped.
	UnknownFields int
	// UnknownEvents counts events whose tag it does not know, and skipped.
	UnknownEvents int
}

// Event is one change of one cache. Removed uses Hashes, Medium and Group only;
// Cleared uses nothing.
type Event struct {
	Kind   Kind
	Hashes []Hash
	// Parent is the block before the first one; it counts if HasParent is set.
	Parent    Hash
	HasParent bool
	// Tokens are those of all the blocks. Their number is not checked against
	// BlockSize here: engines do announce offloaded blocks without tokens.
	Tokens    []uint32
	BlockSize int
	// LoraID is a load-order number, meaningful in this engine only; it counts if HasLoraID is set.
	LoraID    int64
	HasLoraID bool
	// LoraName is the adapter's identity; "" if the release does not send it or there is none.
	LoraName string
	// Medium is where the blocks lie; "" means the engine's own cache.
	Medium string
	// Extra lists what besides tokens went into the hashes, in the order of the blocks.
	Extra []ExtraKey
	// ExtraBlocks is how many entries extra_keys had; 0 if it was absent.
	ExtraBlocks int
	// Group is the cache group of a hybrid model, or NoGroup.
	Group int
	// SpecKind is what kind of attention the group serves; "" if not said.
	SpecKind string
	// SlidingWindow is the group's window in tokens; 0 if it has none.
	SlidingWindow int64
}

// ExtraKey is one thing besides tokens that went into a block's hash.
type ExtraKey struct {
	// Block is the index of the block in Event.Hashes.
	Block int
	// Name is the key if it was a string; "" for anything else (bytes, tuples, numbers),
	// which can be no adapter's name.
	Name string
}
