package wire

import "unicode/utf8"

// names remembers what the last request of the same memory was called: a gateway
// asks about few models and tenants, so most names need no new string.
type names struct {
	model, tenant, scheme, adapter name
}

type name struct{ last string }

// take is b as a string, and false if b is not UTF-8.
func (n *name) take(b []byte) (string, bool) {
	if string(b) == n.last {
		return n.last, true
	}
	if !utf8.Valid(b) {
		return "", false
	}
	n.last = string(b)
	return n.last, true
}
