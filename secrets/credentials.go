package secrets

import (
	"fmt"
	"strings"
)

// Credentials are a user and a password; the empty user is the server's default one.
type Credentials struct{ Username, Password string }

// LoadCredentials reads them from files; "" = no file, and none of that part. The line
// break that editors leave at the end does not count.
func LoadCredentials(name, usernameFile, passwordFile string) (*Value[Credentials], error) {
	var paths []string
	for _, p := range []string{usernameFile, passwordFile} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	return Load(name, func(files [][]byte) (Credentials, error) {
		var c Credentials
		for i, dst := range []*string{&c.Username, &c.Password} {
			path := []string{usernameFile, passwordFile}[i]
			if path == "" {
				continue
			}
			text, err := line(path, files[0])
			if err != nil {
				return c, err
			}
			*dst, files = text, files[1:]
		}
		return c, nil
	}, paths...)
}

// LoadToken reads one secret text from a file.
func LoadToken(name, path string) (*Value[string], error) {
	return Load(name, func(files [][]byte) (string, error) { return line(path, files[0]) }, path)
}

func line(path string, content []byte) (string, error) {
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case text == "":
		return "", fmt.Errorf("%s is empty: write the secret into it", path)
	case strings.ContainsAny(text, "\r\n\x00"):
		return "", fmt.Errorf("%s has more than one line: write the secret and nothing else", path)
	}
	return text, nil
}
