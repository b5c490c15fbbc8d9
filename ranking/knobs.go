package ranking

import (
	"errors"
	"fmt"
	"math"
	"time"
)

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

// Validate reports every field that makes no sense, nil if all do.
func (k *Knobs) Validate() error {
	var errs []error
	weight := func(name string, v float32) {
		if !(v >= 0 && v <= math.MaxFloat32) {
			errs = append(errs, fmt.Errorf("%s is %v: it must be a finite number of 0 or more", name, v))
		}
	}
	weight("PressureWeight", k.PressureWeight)
	weight("SLOTightBias", k.SLOTightBias)
	weight("TenantHotMinHitRate", k.TenantHotMinHitRate)
	if k.SLOTightTTFTMS < 0 {
		errs = append(errs, fmt.Errorf("SLOTightTTFTMS is %d: it must be 0 or more milliseconds", k.SLOTightTTFTMS))
	}
	if k.TenantHotMaxAge < 0 {
		errs = append(errs, fmt.Errorf("TenantHotMaxAge is %s: it must be 0 or more", k.TenantHotMaxAge))
	}
	return errors.Join(errs...)
}
