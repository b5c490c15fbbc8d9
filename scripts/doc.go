// Package scripts holds the Lua that reads and changes the index in Redis, and one
// small Go function for each script. The contract of a script (KEYS, ARGV, what it
// returns, why it must be atomic) stands above its text.
//
// A function makes a Call; Run sends Calls in one round trip, in order; the Call's
// reader gives its typed reply. Scripts are called by their SHA-1. A server that does
// not know one (it restarted, failed over, or was told SCRIPT FLUSH) gets the text.
package scripts
