// Package zmtp speaks ZMTP 3.0 and 3.1 with the NULL mechanism: as much of ZeroMQ's wire
// protocol as following an engine takes, and as publishing like one takes.
//
// A connection is one TCP connection, and says when it ends. It does not reconnect behind
// its user's back, because whoever follows a stream must know that it was cut; it asks a
// silent peer whether it is alive; and it bounds what a peer can make it allocate.
package zmtp
