package events

import "fmt"

// field is one field of an event; its text is the key in the map form.
type field string

const (
	fieldHashes    field = "block_hashes"
	fieldParent    field = "parent_block_hash"
	fieldTokens    field = "token_ids"
	fieldBlockSize field = "block_size"
	fieldLoraID    field = "lora_id"
	fieldMedium    field = "medium"
	fieldLoraName  field = "lora_name"
	fieldExtra     field = "extra_keys"
	fieldGroup     field = "group_idx"
	fieldSpecKind  field = "kv_cache_spec_kind"
	fieldWindow    field = "kv_cache_spec_sliding_window"
)

// The order of the array form. Older releases end earlier; newer ones append.
var (
	storedFields = []field{fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoraID, fieldMedium,
		fieldLoraName, fieldExtra, fieldGroup, fieldSpecKind, fieldWindow}
	removedFields = []field{fieldHashes, fieldMedium, fieldGroup}
)

// needed tells the fields that a map must have too: encoders leave out a nil parent.
func (f field) needed() bool { return f != fieldParent }

func fieldNamed(fields []field, key []byte) int {
	for i, f := range fields {
		if string(f) == string(key) {
			return i
		}
	}
	return -1
}

func (d *Decoder) readField(e *Event, f field) (err error) {
	// These may not be nil, or take it for nothing themselves. Any other may be left out by nil.
	needed := f == fieldHashes || f == fieldTokens || f == fieldBlockSize
	if !needed && d.null() {
		return nil
	}
	switch f {
	case fieldHashes:
		err = d.readHashes(e)
	case fieldTokens:
		err = d.readTokens(e)
	case fieldExtra:
		err = d.readExtra(e)
	case fieldBlockSize:
		var v uint64
		v, err = d.count("block_size", maxBlockSize)
		e.BlockSize = int(v)
	case fieldLoraName:
		e.LoraName, err = d.readName()
	case fieldMedium:
		e.Medium, err = d.readName()
	case fieldParent:
		e.HasParent = true
		e.Parent, err = d.readHash()
	case fieldLoraID:
		e.HasLoraID = true
		b, peekErr := d.peek()
		if peekErr != nil {
			return peekErr
		}
		if isText(b) { // some releases name a load, not an adapter, by a string: no operator can have mapped it
			e.LoraID = UnmappableLoraID
			return d.skip(0)
		}
		var v uint64
		v, _, err = d.integer()
		e.LoraID = int64(v)
	case fieldGroup:
		var v uint64
		v, err = d.count("group_idx", maxGroup)
		e.Group = int(v)
	case fieldSpecKind:
		// An encoder may write the kind as a number of an enumeration, which says nothing.
		b, peekErr := d.peek()
		if peekErr != nil {
			return peekErr
		}
		if !isText(b) && !isBin(b) {
			return d.skip(0)
		}
		e.SpecKind, err = d.readName()
	case fieldWindow:
		var v uint64
		v, err = d.count("kv_cache_spec_sliding_window", 1<<40)
		e.SlidingWindow = int64(v)
	}
	return err
}

func fmtTooLarge(n int) error {
	return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, n, MaxPayload)
}
