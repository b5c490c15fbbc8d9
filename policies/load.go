package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads the set of a directory: its *.yaml and *.yml files, symbolic links
// to files included. Hidden files, directories and everything else are left
// alone. A directory without policies gives an empty set; one that is missing is
// an error. Mistakes in the files are a Problems.
func Load(dir string) (*Set, error) {
	sources, err := read(dir)
	if err != nil {
		return nil, err
	}
	return Parse(sources...)
}

// read takes in the policy files of a directory, sorted by name. A file that is
// unreadable is an error: without it a tenant would silently get the defaults.
func read(dir string) ([]Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("policy directory: %w; create it, or correct its path", err)
	}
	var sources []Source
	var errs []error
	for _, e := range entries {
		if !isPolicyFile(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, regular, err := readFile(path)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("policy file: %w", err))
		case regular:
			sources = append(sources, Source{Name: path, Data: data})
		}
	}
	return sources, errors.Join(errs...)
}

func isPolicyFile(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// readFile reads a regular file, up to just more than a policy file may have;
// false if the path is something else. It looks before it opens, since opening a
// named pipe waits for a writer.
func readFile(path string) (data []byte, regular bool, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	data, err = io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	return data, true, err
}

// same reports whether two readings of a directory have the same files with the
// same bytes.
func same(a, b []Source) bool {
	return slices.EqualFunc(a, b, func(x, y Source) bool {
		return x.Name == y.Name && bytes.Equal(x.Data, y.Data)
	})
}
