package ranking

// NumberRun is a Run by replica number, before the number is resolved to a replica.
type NumberRun struct {
	Replica uint32
	Tokens  int64
	SeenMS  int64
	Tier    Tier
	Blocks  int
}

// Walk follows a chain block by block. The zero value is ready after Reset, and
// a Walk is meant to be reused: in steady state it allocates nothing.
type Walk struct{ cutoff int64 }

// Reset starts a new walk; holds last seen at cutoffMS or before are not fresh.
func (w *Walk) Reset(cutoffMS int64) { w.cutoff = cutoffMS }

// Step takes the holds of the next block, which counts for tokens, and returns
// how many replicas still hold everything so far. At 0 the walk is over.
func (w *Walk) Step(holds []Hold, tokens int32) (alive int) { return 0 }

// Runs are the leading runs found so far; valid until the next Reset or Step.
func (w *Walk) Runs() []NumberRun { return nil }

// ExactRuns appends to dst one run for each fresh hold of one block, with the hold's own count.
func ExactRuns(holds []Hold, cutoffMS int64, dst []NumberRun) []NumberRun { return dst }
