// Package ranking is the pure core of the lookup tier: values in, values out.
//
// It knows the order of decisions behind LookupRoute, the factors of a score, the
// longest-prefix walk over hold records, and the fingerprint of token ids. It does
// no I/O and has no clock of its own: every time is a parameter.
package ranking
