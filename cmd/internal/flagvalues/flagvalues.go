// Package flagvalues reads the values of flags that are numbers or durations, and says
// of a wrong one what to write instead. All commands share it.
package flagvalues

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// Span is a duration of 0 or more.
type Span time.Duration

// UnmarshalText takes what time.ParseDuration takes.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%s is negative: write a duration of 0 or more, such as %s", text, durations)
	}
	*s = Span(d)
	return nil
}

func (s Span) String() string { return time.Duration(s).String() }

// Options make kong read numbers, durations and Spans as this package does, and the
// named types of a command's own, which must be encoding.TextUnmarshalers.
func Options(texts ...reflect.Type) kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		options := []kong.Option{
			kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
			kong.TypeMapper(reflect.TypeFor[Span](), kong.MapperFunc(text)),
		}
		for _, t := range texts {
			options = append(options, kong.TypeMapper(t, kong.MapperFunc(text)))
		}
		for _, kind := range []reflect.Kind{reflect.Int, reflect.Int32, reflect.Int64} {
			options = append(options, kong.KindMapper(kind, kong.MapperFunc(whole)))
		}
		for _, kind := range []reflect.Kind{reflect.Float32, reflect.Float64} {
			options = append(options, kong.KindMapper(kind, kong.MapperFunc(number)))
		}
		for _, o := range options {
			if err := o.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

const durations = "250ms, 30s or 5m"

// negative is a value that begins like a flag: kong would take it for one.
var negative = regexp.MustCompile(`^-[0-9.]`)

// pop takes the flag's value off the command line.
func pop(ctx *kong.DecodeContext, example string) (string, error) {
	if next := ctx.Scan.Peek(); next.Type == kong.UntypedToken && negative.MatchString(next.String()) {
		return ctx.Scan.Pop().String(), nil
	}
	t, err := ctx.Scan.PopValue("")
	if err != nil { // kong's own words advise to quote the next flag
		return "", fmt.Errorf("has no value: write one, such as %s", example)
	}
	return t.String(), nil
}

func text(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx, ctx.Value.Default)
	if err != nil {
		return err
	}
	return target.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
}

func duration(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx, durations)
	if err != nil {
		return err
	}
	d, err := parseDuration(s)
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

var wellFormed = regexp.MustCompile(`^[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err == nil:
		return d, nil
	case wellFormed.MatchString(s):
		return 0, fmt.Errorf("%q is too long: write at most %dh, such as %s", s, int64(math.MaxInt64/time.Hour), durations)
	default:
		return 0, fmt.Errorf("%q is no duration: write a number with its unit, such as %s", s, durations)
	}
}

func whole(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx, "16")
	if err != nil {
		return err
	}
	bits := target.Type().Bits()
	n, err := strconv.ParseInt(s, 0, bits)
	switch {
	case err == nil:
		target.SetInt(n)
		return nil
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range: write a whole number up to %d", s, int64(math.MaxInt64)>>(64-bits))
	default:
		return fmt.Errorf("%q is no whole number: write one such as 16", s)
	}
}

func number(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx, "0.5")
	if err != nil {
		return err
	}
	n, err := strconv.ParseFloat(s, target.Type().Bits())
	switch {
	case err == nil:
		target.SetFloat(n)
		return nil
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range: write a smaller number, such as 0.5", s)
	default:
		return fmt.Errorf("%q is no number: write one such as 0.5", s)
	}
}
