package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"inferencecache.io/lookuptier/scripts"
)

type scriptsCmd struct {
	Dir string `arg:"" help:"Directory to write to; it is made if it is not there."`
}

// Help is shown under the usage of the command.
func (scriptsCmd) Help() string {
	return "One NAME.lua for each script, as Redis is to get it, for sidecars in other languages: see docs/writing-to-redis.md. " +
		"Export them again with each new version of the tier."
}

func (c *scriptsCmd) Run(s *session) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	texts := scripts.Texts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if err := os.WriteFile(filepath.Join(c.Dir, name+".lua"), []byte(texts[name]), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.out, "%d scripts in %s\n", len(texts), printable(c.Dir))
	return nil
}
