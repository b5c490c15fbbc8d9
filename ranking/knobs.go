package ranking

import "time"

// Knobs tune the score for every tenant of a lookup pod. Zero values switch
// the parts off that they tune; DefaultKnobs has the defaults.
type Knobs struct {
	// PressureWeight is how much of its score a saturated replica loses; 0 = no penalty.
	PressureWeight float32
	// SLOTightTTFTMS: a request that wants its first token sooner than this many
	// milliseconds is tight; 0 = none is.
	SLOTightTTFTMS int32
	// SLOTightBias is how much a tight request favours fresh holds; 0 = not at all.
	SLOTightBias float32
	// TenantHotMinHitRate is the least hit rate of a TENANT_HOT replica.
	TenantHotMinHitRate float32
	// TenantHotMaxAge: stats of this age or older say nothing about warmth; 0 =
	// no TENANT_HOT at all.
	TenantHotMaxAge time.Duration
}

// DefaultKnobs are the defaults of the flags.
func DefaultKnobs() Knobs {
	return Knobs{
		PressureWeight:      1,
		SLOTightTTFTMS:      200,
		SLOTightBias:        1,
		TenantHotMinHitRate: 0.1,
		TenantHotMaxAge:     5 * time.Minute,
	}
}
