package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// A fault says what is wrong with a variable's value and what to write instead, as the
// end of a sentence that begins with the variable's name; "" is none.
type fault func(value string) string

const (
	// mostSpans is far above what a pod's memory has room for; the SDK makes its queue at once.
	mostSpans = 1_000_000
	// longestMS is a day. What is much longer overflows the SDK's durations.
	longestMS = 24 * 60 * 60 * 1000
)

// settings are the variables of the SDK where it panics on nonsense, or goes on without.
var settings = []struct {
	name  string
	fault fault
}{
	{"OTEL_BSP_MAX_QUEUE_SIZE", upTo(mostSpans, "a number of spans")},
	{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", upTo(mostSpans, "a number of spans")},
	{"OTEL_BSP_SCHEDULE_DELAY", upTo(longestMS, "milliseconds without a unit")},
	{"OTEL_BSP_EXPORT_TIMEOUT", upTo(longestMS, "milliseconds without a unit")},
	{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", limit},
	{"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", limit},
	{"OTEL_SPAN_EVENT_COUNT_LIMIT", limit},
	{"OTEL_SPAN_LINK_COUNT_LIMIT", limit},
	{"OTEL_ATTRIBUTE_COUNT_LIMIT", limit},
	{"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", limit},
	{"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", limit},
	{"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", limit},
}

// ofExporter are the exporter's, without the prefix: each exists for all signals and for
// traces alone, and the SDK reads both.
var ofExporter = []struct {
	name  string
	fault fault
}{
	{"TIMEOUT", upTo(longestMS, "milliseconds without a unit")},
	{"HEADERS", headers},
	{"COMPRESSION", oneOf("gzip", "none")},
	{"INSECURE", oneOf("true", "false", "TRUE", "FALSE", "True", "False")},
	{"CERTIFICATE", certificates},
}

func checkSettings() error {
	for _, s := range settings {
		if value := os.Getenv(s.name); value != "" {
			if fault := s.fault(value); fault != "" {
				return fmt.Errorf("%s %s", s.name, fault)
			}
		}
	}
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"} {
		for _, s := range ofExporter {
			if value := trimmed(prefix + s.name); value != "" {
				if fault := s.fault(value); fault != "" {
					return fmt.Errorf("%s%s %s", prefix, s.name, fault)
				}
			}
		}
		if err := checkClient(prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"); err != nil {
			return err
		}
	}
	return nil
}

// trimmed reads as the exporter does; the rest of the SDK takes no spaces.
func trimmed(name string) string { return strings.TrimSpace(os.Getenv(name)) }

func upTo(most int, what string) fault {
	return func(value string) string {
		if n, err := strconv.Atoi(value); err != nil || n < 1 || n > most {
			return fmt.Sprintf("is %q: write %s, from 1 to %d", value, what, most)
		}
		return ""
	}
}

func limit(value string) string {
	if n, err := strconv.Atoi(value); err != nil || n < -1 {
		return fmt.Sprintf("is %q: write a whole number, or -1 for no limit", value)
	}
	return ""
}

func oneOf(words ...string) fault {
	return func(value string) string {
		for _, word := range words {
			if value == word {
				return ""
			}
		}
		return fmt.Sprintf("is %q: write %s or %s", value, words[0], words[1])
	}
}

// What gRPC sends; it would fail each export for another name or value.
var (
	headerName  = regexp.MustCompile(`^[0-9A-Za-z_.-]+$`)
	headerValue = regexp.MustCompile(`^[ -~]*$`)
)

// headers never quotes: they hold the collector's credentials.
func headers(list string) string {
	for i, pair := range strings.Split(list, ",") {
		name, escaped, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(escaped)
		printable := headerValue.MatchString(strings.TrimSpace(value)) || strings.HasSuffix(strings.ToLower(name), "-bin")
		if !ok || !headerName.MatchString(name) || err != nil || !printable {
			return fmt.Sprintf("has no header as number %d: write name=value,name=value, with %%2C for a comma and %%25 for a percent sign in a value", i+1)
		}
	}
	return ""
}

func certificates(file string) string {
	pem, err := os.ReadFile(file)
	if err != nil {
		return unreadable(file, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return fmt.Sprintf("is %q, which has no certificate: name a PEM file of the collector's authority", file)
	}
	return ""
}

// unreadable is one line: what errors of files say quotes their names as they are.
func unreadable(file string, err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return fmt.Sprintf("is %q, which cannot be read (%v): name a PEM file that this pod can read", file, err)
}

// checkClient checks the pod's own certificate. The SDK would leave out half a pair.
func checkClient(certName, keyName string) error {
	cert, key := trimmed(certName), trimmed(keyName)
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		return fmt.Errorf("%s is set and %s is not: set both, or none", keyName, certName)
	case key == "":
		return fmt.Errorf("%s is set and %s is not: set both, or none", certName, keyName)
	}
	for _, f := range []struct{ name, file string }{{certName, cert}, {keyName, key}} {
		if _, err := os.ReadFile(f.file); err != nil {
			return fmt.Errorf("%s %s", f.name, unreadable(f.file, err))
		}
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("%s and %s are no pair: name PEM files of a certificate and its key: %w", certName, keyName, err)
	}
	return nil
}
