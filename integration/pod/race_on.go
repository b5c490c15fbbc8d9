//go:build race

package pod

const raceEnabled = true
