// Package events decodes what an inference engine publishes about its KV cache.
//
// Engines differ by release in the form of a batch (array or map), of an event
// (array or map), of a hash (unsigned, signed, bytes) and in how many trailing
// fields they send. Decoder takes all of them and hides the difference: what
// leaves this package is one form. What a release adds later is skipped and
// counted, and a payload that breaks the grammar is refused whole, because half
// a batch would leave the reader of it with a wrong idea of the cache.
package events
