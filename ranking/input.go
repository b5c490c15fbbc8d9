package ranking

// Input is a resolved lookup: what to ask of the index and what to judge the
// answer by.
type Input struct {
	Query
	// PrefixTokens is the length of the prompt's prefix in tokens: the chain's
	// sum, else what the request stated.
	PrefixTokens int64
	// TTFTMS is the time to first token that the request asks for, milliseconds; 0 = none.
	TTFTMS int32
}

// Chain reports whether the lookup walks a chain rather than asks for one exact hash.
func (in *Input) Chain() bool { return !in.Exact }

// Keyed reports whether tenant, model and scheme are all named. Without one of
// them no strategy applies and the index need not be asked.
func (in *Input) Keyed() bool {
	return in.Tenant != "" && in.Model != "" && in.Scheme != ""
}
