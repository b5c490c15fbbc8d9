// Package follow reads one engine's numbered stream of event batches and hands it on
// without a hole: what a ZeroMQ subscriber loses is fetched from the engine's replay
// buffer before anything newer is applied, and where that cannot be, it says so.
//
// It also says when the engine is another one than before, and whether what was handed
// on is the engine's present state. After the connection was cut that is not so until the
// last batch handed on is seen to be in the engine's buffer still, byte for byte, or
// until the next number shows that none is missing.
package follow
