package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfManyLinesAFewAndTheirNumberAreWritten(t *testing.T) {
	var s sampled
	var mu sync.Mutex
	var lines []string
	write := func(msg string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, msg+fmt.Sprint(args...))
	}
	for range 2 { // it begins anew
		lines = nil
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() { s.line(write, "dropped ", "i", i) })
		}
		all.Wait()
		require.Len(t, lines, 5)
		s.rest(write, "dropped ")
		require.Len(t, lines, 6)
		require.Equal(t, "dropped omitted2995", lines[5])
	}
	s.rest(write, "dropped ")
	require.Len(t, lines, 6, "nothing was left out")
}
